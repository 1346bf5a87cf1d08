//! A whole simulated cluster: replicas with their leader loops, hosts, users, a nemesis, and the checkers.

mod health_check;
mod last_states;
mod members;
mod options;
mod quiet;
mod raft;
mod recovery_check;
mod watchers;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use muster_engine::state::State;
use muster_model::ids::ReplicaId;
use muster_model::lifecycle::JobPhase;
use muster_model::timings::HEARTBEATS_PER_SECOND_MAX;
use muster_planner::Budget;
use muster_raft_store::Handle;
use muster_scheduler::leader::{
    HeartbeatStore, LEADER_INPUTS_MAX, LeaderLoop, LeaderSettings, SharedHeartbeatStore,
    WorkerDirectory,
};
use rand::Rng;
use rand_chacha::ChaCha8Rng;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::sim::checkers::Checkers;
use crate::sim::clients::{CLIENT_NODES, Connection, SimClient, has_hostile_user};
use crate::sim::clock::SimClock;
use crate::sim::faults::coverage::Situation;
use crate::sim::faults::nemesis::Nemesis;
use crate::sim::faults::plan::Plan;
use crate::sim::host::{HostSettings, SimHost, SimPlace};
use crate::sim::links::gateway::Gateway;
use crate::sim::links::network::SimNetwork;
use crate::sim::links::peers::{HeartbeatReplica, HeartbeatStores, SimPeers};
use crate::sim::mutant::Mutant;
use crate::sim::random_streams::{StreamOwner, draws, seed_of};
use crate::sim::record::Record;
use crate::sim::replicas::{DRIFT_PERMILLE_MAX, Replicas, StartError};
use crate::sim::results::report::{Report, Violation};
use crate::sim::runtime::{NodeId, panic_message, run_world, spawn_on, take_panics};
use crate::sim::watchers::Hubs;

pub use options::WorldOptions;

/// One in this many worlds has leaders with a low limit on heartbeats.
const BURDENED_WORLDS: u64 = 3;
/// Heartbeats per second within that limit: two hosts send more.
const BEATS_PER_SECOND_BURDENED: u64 = 2;
/// Interval of checks of each replica's metrics, and of the world's continuation.
const LOOK: Duration = Duration::from_secs(1);

/// A cluster under test.
#[derive(Debug)]
pub struct World {
    /// Options of the world.
    pub options: WorldOptions,
    /// Machines of the replicas.
    pub replicas: Replicas<State>,
    /// The hosts.
    pub hosts: Vec<SimHost>,
    /// The network.
    pub network: SimNetwork,
    gateway: Gateway,
    heartbeats: HeartbeatStores,
    hubs: Hubs,
    plan: Plan,
    /// Number of requests sent by operators.
    operators_requests: AtomicU64,
    /// The checkers.
    pub checkers: Checkers,
}

/// Runs one world to its end. A panic is a violation like any other.
///
/// # Errors
/// If the operating system cannot create an event loop.
pub fn simulate(options: &WorldOptions) -> std::io::Result<Report> {
    judged(options, &Checkers::default())
}

/// Runs one world to its end with a full record.
///
/// # Errors
/// If the operating system cannot create an event loop.
pub fn record(options: &WorldOptions) -> std::io::Result<(Report, Record)> {
    let checkers = Checkers::with_record();
    let report = judged(options, &checkers)?;
    Ok((report, checkers.take_record().unwrap_or_default()))
}

/// Runs one world to its end with the given checkers, which can be queried for its progress meanwhile.
///
/// # Errors
/// If the operating system cannot create an event loop.
pub fn judged(options: &WorldOptions, checkers: &Checkers) -> std::io::Result<Report> {
    let ran = catch_unwind(AssertUnwindSafe(|| {
        let (options, checkers) = (options.clone(), checkers.clone());
        run_world(options.seed, async move {
            World::new(options, checkers).run().await
        })
    }));
    ran.unwrap_or_else(|payload| {
        let panicked = Violation::Panic(panic_message(&*payload));
        checkers.violate(panicked.clone());
        Ok(Report {
            seed: options.seed,
            violations: vec![panicked],
            ..Report::default()
        })
    })
}

impl World {
    fn new(options: WorldOptions, checkers: Checkers) -> Self {
        checkers.begin();
        let seed = options.seed;
        let plan = options.plan();
        let network = SimNetwork::new(seed);
        let deceit = Mutant::deceit(options.mutant);
        let machines = plan.shape.machines();
        let replicas = Replicas::new(machines, seed, network.clone(), deceit);
        let mut world = Self {
            options,
            replicas,
            hosts: Vec::new(),
            network,
            gateway: Gateway::default(),
            heartbeats: HeartbeatStores::default(),
            hubs: Hubs::default(),
            plan,
            operators_requests: AtomicU64::new(1),
            checkers,
        };
        world.add_hosts();
        world
    }

    fn add_hosts(&mut self) {
        let began = Instant::now();
        let nodes: Vec<_> = self
            .replicas
            .nodes
            .iter()
            .map(|replica| replica.node)
            .collect();
        let seed = self.options.seed;
        for (number, gpus) in (0..).zip(self.plan.shape.hosts.clone()) {
            let mut random = draws(seed, StreamOwner::Host, number, 0);
            let settings = HostSettings {
                seed,
                number,
                gpus,
                place: draw_place(&mut random, number),
                timings: self.options.scale.tempo.timings(),
                mutant: self.options.mutant,
            };
            let drift = -DRIFT_PERMILLE_MAX..=DRIFT_PERMILLE_MAX;
            let clock = SimClock::new(began, random.random_range(drift));
            let host = SimHost::new(
                settings,
                clock,
                self.network.clone(),
                self.gateway.clone(),
                nodes.clone(),
                self.checkers.clone(),
            );
            self.hosts.push(host);
        }
    }

    async fn run(mut self) -> Report {
        if let Err(error) = self.found().await {
            let refusal = format!("did not start: {error}");
            self.checkers.violate(Violation::Replica(refusal));
            return self.report();
        }
        self.hosts.iter().for_each(SimHost::boot);
        self.start_watchers();
        let users = self.start_users();
        let mut nemesis = Nemesis::new();
        let began = Instant::now();
        for scheduled in self.plan.faults.clone() {
            self.wait_until(began + Duration::from_millis(scheduled.at_ms))
                .await;
            if !self.goes_on() {
                break;
            }
            nemesis.perform(&mut self, &scheduled).await;
        }
        let faults = Duration::from_secs(self.options.faults_s);
        self.wait_until(began + faults).await;
        nemesis.repair(&mut self).await;
        let errands = nemesis.errands();
        self.quiet(users.into_iter().chain(errands).collect()).await;
        self.check_final_states();
        let mut report = self.report();
        nemesis.write_counts(&mut report);
        report
    }

    /// Waits until `at`, or until the world ends.
    async fn wait_until(&self, at: Instant) {
        while self.goes_on() && Instant::now() < at {
            tokio::time::sleep_until(at.min(Instant::now() + LOOK)).await;
        }
    }

    fn goes_on(&self) -> bool {
        self.checkers.is_clean() || Mutant::continues_after_violation(self.options.mutant)
    }

    /// Starts all replicas and forms the group.
    async fn found(&mut self) -> Result<(), StartError> {
        let founders = self.plan.shape.replicas;
        for id in 1..=founders {
            self.start_replica(id).await?;
        }
        let mut members = self.replicas.members();
        members.truncate(founders as usize);
        if let Some((_, first)) = self.replicas.registry.up().into_iter().next()
            && let Err(error) = first.initialize(members).await
        {
            let refusal = format!("did not form the group: {error}");
            self.checkers.violate(Violation::Replica(refusal));
        }
        Ok(())
    }

    /// Number of machines for replicas, in use or not.
    #[must_use]
    pub fn replicas_count(&self) -> u32 {
        u32::try_from(self.replicas.nodes.len()).unwrap_or(u32::MAX)
    }

    /// Number of initial replicas.
    #[must_use]
    pub const fn founders(&self) -> u32 {
        self.plan.shape.replicas
    }

    /// Number of machines for replicas, without the recovery machines.
    #[must_use]
    pub const fn machines_of_before(&self) -> u32 {
        self.plan.shape.replicas + self.plan.shape.spares
    }

    /// Number of users.
    #[must_use]
    pub const fn users(&self) -> u32 {
        self.plan.shape.users
    }

    /// Starts a replica with its leader loop, observed by the checkers.
    ///
    /// # Errors
    /// If it refuses the contents of its disk.
    pub async fn start_replica(&mut self, id: u32) -> Result<(), StartError> {
        let onlooker = self.checkers.onlooker(id);
        let handle = self.replicas.start(id, onlooker).await?;
        let machine = self.replicas.nodes[id as usize - 1].clone();
        let heartbeats = Arc::new(SharedHeartbeatStore::new(HeartbeatStore::new(
            machine.clock.monotonic(),
        )));
        let (inputs, received) = mpsc::channel(LEADER_INPUTS_MAX);
        self.gateway.listen(machine.node, inputs);
        let service = HeartbeatReplica {
            heartbeats: Arc::clone(&heartbeats),
            clock: machine.clock.clone(),
            handle: handle.clone(),
        };
        self.heartbeats.listen(machine.node, service);
        let leader_loop = LeaderLoop {
            handle: handle.clone(),
            peers: SimPeers {
                from: machine.node,
                network: self.network.clone(),
                services: self.heartbeats.clone(),
            },
            clock: machine.clock.clone(),
            heartbeats,
            directory: Arc::new(WorkerDirectory::default()),
            inputs: received,
            settings: LeaderSettings {
                replica: ReplicaId(u64::from(id)),
                timings: self.options.scale.tempo.timings(),
                budget: Budget::default(),
                heartbeats_per_second_max: self.heartbeats_per_second_max(),
            },
        };
        let life = self.replicas.life(id);
        spawn_on(
            machine.node,
            seed_of(self.options.seed, StreamOwner::Leader, id, life),
            leader_loop.run(CancellationToken::new()),
        );
        self.start_hub(id, handle.clone());
        self.start_raft_watch(id, handle.clone());
        self.watch_replica_exit(id, handle);
        Ok(())
    }

    /// Heartbeat limit of leaders: in every third world so low that they ask for fewer, like real ones of
    /// huge clusters.
    const fn heartbeats_per_second_max(&self) -> u64 {
        if self.options.seed.is_multiple_of(BURDENED_WORLDS) {
            BEATS_PER_SECOND_BURDENED
        } else {
            HEARTBEATS_PER_SECOND_MAX
        }
    }

    /// Kills a replica with everything that runs in it.
    pub fn kill_replica(&mut self, id: u32) {
        let node = NodeId(id);
        if self.leads_with_open_proposals(id) {
            self.checkers
                .with(|seen| seen.coverage.reached(Situation::KilledBetween));
        }
        self.gateway.close(node);
        self.heartbeats.close(node);
        self.hubs.close(node);
        let lost = self.replicas.kill(id);
        self.checkers.with(|seen| {
            if lost.writes > 0 {
                seen.coverage.reached(Situation::WritesLost);
            }
            if lost.is_torn {
                seen.coverage.reached(Situation::WriteTorn);
            }
        });
    }

    /// Whether a replica leads with uncommitted entries in its log.
    fn leads_with_open_proposals(&self, id: u32) -> bool {
        let found = self.replicas.registry.up();
        let mut found = found.into_iter().filter(|(node, _)| node.0 == id);
        found.any(|(_, handle)| {
            let status = handle.status();
            status.is_leader && status.last_log_index > status.applied_index
        })
    }

    /// Starts all users, and in some worlds a hostile one; each receiver completes when its user is done.
    fn start_users(&self) -> Vec<oneshot::Receiver<()>> {
        let jobs = self.options.jobs();
        let users = (0..self.users()).map(|number| {
            let client = self.client(number);
            self.start_user(number, client.run(jobs))
        });
        // The answers of a lost group do not bind the next one.
        let tempo = self.options.scale.tempo;
        let is_beset =
            has_hostile_user(self.options.seed, tempo) && self.plan.shape.recovery_machines == 0;
        let hostile = is_beset.then(|| {
            let number = self.users();
            let client = self.client(number);
            self.start_user(number, client.send_hostile(jobs))
        });
        users.chain(hostile).collect()
    }

    fn client(&self, number: u32) -> SimClient {
        let seed = self.options.seed;
        let node = NodeId(CLIENT_NODES + number);
        let (network, checkers) = (self.network.clone(), self.checkers.clone());
        let registry = self.replicas.registry.clone();
        let line = Connection::new(
            node,
            network.clone(),
            registry.clone(),
            checkers.clone(),
            self.plan.shape.known().map(Replicas::<State>::peer),
            seed_of(seed, StreamOwner::Jitter, number, 0),
        );
        SimClient {
            seed,
            number,
            node,
            network,
            registry,
            line,
            checkers,
            random: draws(seed, StreamOwner::User, number, 0),
            tempo: self.options.scale.tempo,
            reads_stale: self.options.mutant == Some(Mutant::StaleReads),
        }
    }

    fn start_user(
        &self,
        number: u32,
        does: impl Future<Output = ()> + Send + 'static,
    ) -> oneshot::Receiver<()> {
        let (done, finished) = oneshot::channel();
        let own = seed_of(self.options.seed, StreamOwner::User, number, u32::MAX);
        spawn_on(NodeId(CLIENT_NODES + number), own, async move {
            does.await;
            // The world may have given up meanwhile.
            let _unheard = done.send(());
        });
        finished
    }

    /// Checks that a replica stops by itself only because of its disk.
    fn watch_replica_exit(&self, id: u32, handle: Handle<State>) {
        let checkers = self.checkers.clone();
        let machine = self.replicas.nodes[id as usize - 1].clone();
        spawn_on(machine.node, u64::from(id), async move {
            let mut leadership = handle.leadership();
            if leadership.wait_for(|now| now.stopped).await.is_err() {
                return;
            }
            if handle.status().removal.is_some() {
                checkers.with(|seen| seen.coverage.reached(Situation::RemovalNoticed));
            } else if machine.ran_out_of_space() {
                checkers.with(|seen| seen.coverage.reached(Situation::DiskStopped));
            } else if machine.has_failed() {
                checkers.with(|seen| seen.coverage.reached(Situation::DiskFailed));
            } else if !machine.was_damaged() {
                let reason = handle.status().stopped;
                let stopped = format!("({id}) stopped by itself: {reason:?}");
                checkers.violate(Violation::Replica(stopped));
            }
        });
    }

    fn report(self) -> Report {
        let last = self.members_up().into_iter().next();
        let state = last.map(|(_, handle)| handle.fork()).unwrap_or_default();
        let mishaps = self.network.mishaps();
        let in_phase = |phase| state.jobs.values().filter(|job| job.phase == phase).count() as u64;
        self.checkers.with(|seen| {
            let panics = take_panics().into_iter().map(Violation::Panic);
            seen.violations.extend(panics);
            seen.coverage.read_events(&state);
            for (situation, times) in [
                (Situation::MessageLost, mishaps.lost),
                (Situation::MessageHeldUp, mishaps.held_up),
                (Situation::ArrivedTwice, mishaps.repeated),
            ] {
                seen.coverage.reached_times(situation, times);
            }
            let beside = seen.closed.avoided();
            seen.coverage
                .reached_times(Situation::PlacedDuringBlock, beside);
            Report {
                seed: self.options.seed,
                violations: seen.found().collect(),
                acknowledged: seen.acknowledged.len() as u64,
                succeeded: in_phase(JobPhase::Succeeded),
                failed: in_phase(JobPhase::Failed),
                cancelled: in_phase(JobPhase::Cancelled),
                task_starts: seen.gpu_ledger.starts(),
                messages: self.network.messages(),
                trace: self.network.trace(),
                audits: seen.audits,
                compared: seen.agreement.compared(),
                entries: seen.raft.entries() as u64,
                simulated_ms: seen.now_ms(),
                first_violation_ms: seen.first_ms(),
                revision: state.revision.get(),
                state_hash: state.state_hash(),
                coverage: seen.coverage.clone(),
                ..Report::default()
            }
        })
    }
}

/// Draws the location of a host, in racks of three; some agents report none, some put their rack into a
/// different pod than the others.
fn draw_place(random: &mut ChaCha8Rng, number: u32) -> Option<SimPlace> {
    random.random_bool(0.7).then(|| SimPlace {
        pod: random.random_range(0..8) / 7,
        rack: number / 3,
        socket_gpus: random.random_range(1..5),
    })
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests;
