//! A whole simulated cluster: replicas with their leader loops, hosts, users, a nemesis, and the judges.

use std::sync::Arc;
use std::time::Duration;

use muster_core::command::{BlockTarget, Command};
use muster_core::health::Component;
use muster_core::ids::{JobId, ReplicaId, RequestId};
use muster_core::lifecycle::JobPhase;
use muster_core::plan::{Blocker, Budget, blocker};
use muster_core::state::{Gpu, Host, Job, State};
use muster_core::timings::{BEATS_PER_SECOND_MAX, Timings};
use muster_raft_store::Handle;
use muster_scheduler::leader::{
    LEADER_INPUTS_MAX, LeaderLoop, LeaderSettings, ShadowStore, SharedShadows, WorkerDirectory,
};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::clients::{SimClient, draws, propose};
use super::clock::SimClock;
use super::coverage::Situation;
use super::gateway::Gateway;
use super::host::{HostSettings, SimHost, SimPlace};
use super::judges::Judges;
use super::mutant::Mutant;
use super::nemesis::Nemesis;
use super::network::SimNetwork;
use super::peers::{ShadowService, ShadowServices, SimPeers};
use super::replicas::{DRIFT_PERMILLE_MAX, Replicas, StartError};
use super::report::{Report, Violation};
use super::runtime::{NodeId, spawn_on, take_panics};
use super::stuck::describe_stuck;

/// Heartbeats of simulated clusters: fast, so that a short run sees many leases end.
const TIMINGS: Timings = Timings {
    beat_ms: 500,
    suspect_ms: 1_500,
    lost_ms: 4_500,
};
/// Leases of simulated jobs.
const PARTITION_GRACE_MS: u64 = 6_000;
/// One world in so many has leaders that bear few beats.
const BURDENED_WORLDS: u64 = 3;
/// Beats in a second that those bear: two hosts send more.
const BEATS_PER_SECOND_BURDENED: u64 = 2;
/// How long the quiet phase may take until every job has ended: leases, back-offs and run times.
const QUIET_MAX: Duration = Duration::from_secs(600);
/// How long replicas may take until they stand at one revision.
const REST_MAX: Duration = Duration::from_secs(30);
/// Ids of the requests by which an operator gives things back; those of users are drawn.
const OPERATORS_REQUESTS: u128 = 1 << 100;
/// How long giving one thing back may take.
const UNBLOCK_TIMEOUT: Duration = Duration::from_secs(2);
/// First node number of users.
const CLIENT_NODES: u32 = 900;

/// What makes a world.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorldOptions {
    /// Everything that is drawn is drawn from it.
    pub seed: u64,
    /// Simulated time with faults.
    pub faults_s: u64,
    /// A known bug, switched on to prove that the judges find it.
    pub mutant: Option<Mutant>,
}

/// A cluster under test.
#[derive(Debug)]
pub struct World {
    /// What it is made from.
    pub options: WorldOptions,
    /// The replicas' machines.
    pub replicas: Replicas<State>,
    /// The hosts.
    pub hosts: Vec<SimHost>,
    /// The links.
    pub network: SimNetwork,
    gateway: Gateway,
    shadows: ShadowServices,
    random: ChaCha8Rng,
    /// Who watches.
    pub judges: Judges,
}

/// Runs one world to its end.
///
/// # Errors
/// If the operating system gives no event loop.
pub fn simulate(options: WorldOptions) -> std::io::Result<Report> {
    super::runtime::run_world(options.seed, async move { World::new(options).run().await })
}

impl World {
    fn new(options: WorldOptions) -> Self {
        let mut random = ChaCha8Rng::seed_from_u64(options.seed);
        let network = SimNetwork::new(random.random());
        let count = if random.random_range(0..4) == 0 { 5 } else { 3 };
        let deceit = Mutant::deceit(options.mutant);
        let replicas = Replicas::new(count, random.random(), network.clone(), deceit);
        let mut world = Self {
            options,
            replicas,
            hosts: Vec::new(),
            network,
            gateway: Gateway::default(),
            shadows: ShadowServices::default(),
            random,
            judges: Judges::default(),
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
        for number in 0..self.random.random_range(2..8) {
            let settings = HostSettings {
                number,
                gpus: self.random.random_range(2..9),
                place: self.draw_place(number),
                timings: TIMINGS,
                mutant: self.options.mutant,
            };
            let drift = -DRIFT_PERMILLE_MAX..=DRIFT_PERMILLE_MAX;
            let clock = SimClock::new(began, self.random.random_range(drift));
            let links = (self.network.clone(), self.gateway.clone());
            let host = SimHost::new(settings, clock, links, nodes.clone(), self.judges.clone());
            self.hosts.push(host);
        }
    }

    /// Racks of three hosts; some agents know nothing, some put their rack into another pod than the others do.
    fn draw_place(&mut self, number: u32) -> Option<SimPlace> {
        self.random.random_bool(0.7).then(|| SimPlace {
            pod: self.random.random_range(0..8) / 7,
            rack: number / 3,
            socket_gpus: self.random.random_range(1..5),
        })
    }

    async fn run(mut self) -> Report {
        if let Err(error) = self.found().await {
            let refusal = format!("did not start: {error}");
            self.judges.violate(Violation::Replica(refusal));
            return self.report();
        }
        for host in &self.hosts {
            host.boot(self.random.random());
        }
        let users = self.start_users();
        let faults = Duration::from_secs(self.options.faults_s);
        let mut nemesis = Nemesis::new(self.random.random());
        let end = Instant::now() + faults;
        while Instant::now() < end && self.goes_on() {
            let pause_ms = self.random.random_range(200..4_000);
            tokio::time::sleep(Duration::from_millis(pause_ms)).await;
            nemesis.act(&mut self).await;
        }
        nemesis.repair(&mut self).await;
        self.quiet(users).await;
        self.judge();
        let mut report = self.report();
        nemesis.tell(&mut report);
        report
    }

    fn goes_on(&self) -> bool {
        self.judges.content() || Mutant::goes_on(self.options.mutant)
    }

    /// Starts all replicas and forms the group.
    async fn found(&mut self) -> Result<(), StartError> {
        for id in 1..=self.replicas_count() {
            self.start_replica(id).await?;
        }
        if let Some((_, first)) = self.replicas.registry.up().into_iter().next()
            && let Err(error) = first.initialize(self.replicas.members()).await
        {
            let refusal = format!("did not form the group: {error}");
            self.judges.violate(Violation::Replica(refusal));
        }
        Ok(())
    }

    /// Number of replicas, up or not.
    #[must_use]
    pub fn replicas_count(&self) -> u32 {
        u32::try_from(self.replicas.nodes.len()).unwrap_or(u32::MAX)
    }

    /// Starts a replica with its leader loop and its auditor.
    ///
    /// # Errors
    /// If it refuses what its disk holds.
    pub async fn start_replica(&mut self, id: u32) -> Result<(), StartError> {
        let handle = self.replicas.start(id).await?;
        let machine = self.replicas.nodes[id as usize - 1].clone();
        let shadows = Arc::new(SharedShadows::new(ShadowStore::new(
            machine.clock.monotonic(),
        )));
        let (inputs, received) = mpsc::channel(LEADER_INPUTS_MAX);
        self.gateway.listen(machine.node, inputs);
        let service = ShadowService {
            shadows: Arc::clone(&shadows),
            clock: machine.clock.clone(),
            handle: handle.clone(),
        };
        self.shadows.listen(machine.node, service);
        let leader_loop = LeaderLoop {
            handle: handle.clone(),
            peers: SimPeers {
                from: machine.node,
                network: self.network.clone(),
                services: self.shadows.clone(),
            },
            clock: machine.clock.clone(),
            shadows,
            directory: Arc::new(WorkerDirectory::default()),
            inputs: received,
            settings: LeaderSettings {
                replica: ReplicaId(u64::from(id)),
                timings: TIMINGS,
                budget: Budget::default(),
                beats_per_second_max: self.beats_per_second_max(),
            },
        };
        let seed = self.random.random();
        spawn_on(
            machine.node,
            seed,
            leader_loop.run(CancellationToken::new()),
        );
        self.start_auditor(machine.node, handle.clone());
        self.start_warden(id, handle);
        Ok(())
    }

    /// Leaders of every third world bear so few beats that they ask for less, as real ones of huge clusters do.
    const fn beats_per_second_max(&self) -> u64 {
        if self.options.seed.is_multiple_of(BURDENED_WORLDS) {
            BEATS_PER_SECOND_BURDENED
        } else {
            BEATS_PER_SECOND_MAX
        }
    }

    /// Kills a replica and everything that runs in it.
    pub fn kill_replica(&mut self, id: u32) {
        let node = NodeId(id);
        self.gateway.close(node);
        self.shadows.close(node);
        if self.replicas.kill(id) > 0 {
            self.judges
                .with(|seen| seen.coverage.reached(Situation::WritesLost));
        }
    }

    /// A draw from the world's seed.
    pub fn draw(&mut self, range: std::ops::Range<u32>) -> u32 {
        self.random.random_range(range)
    }

    /// A seed for something new.
    pub fn seed(&mut self) -> u64 {
        self.random.random()
    }

    fn start_users(&mut self) -> Vec<tokio::sync::oneshot::Receiver<()>> {
        let jobs = usize::try_from(self.options.faults_s / 4).unwrap_or(usize::MAX);
        (0..self.random.random_range(1..4))
            .map(|user| {
                let client = SimClient {
                    node: NodeId(CLIENT_NODES + user),
                    network: self.network.clone(),
                    registry: self.replicas.registry.clone(),
                    judges: self.judges.clone(),
                    random: draws(self.options.seed, user),
                    partition_grace_ms: PARTITION_GRACE_MS,
                    reads_stale: self.options.mutant == Some(Mutant::StaleReads),
                };
                let (done, finished) = tokio::sync::oneshot::channel();
                spawn_on(client.node, self.random.random(), async move {
                    client.run(jobs, user == 0).await;
                    // The world may have given up meanwhile.
                    let _unheard = done.send(());
                });
                finished
            })
            .collect()
    }

    /// A replica may stop by itself only because its disk is full.
    fn start_warden(&self, id: u32, handle: Handle<State>) {
        let judges = self.judges.clone();
        let machine = self.replicas.nodes[id as usize - 1].clone();
        spawn_on(machine.node, u64::from(id), async move {
            let mut leadership = handle.leadership();
            if leadership.wait_for(|now| now.stopped).await.is_err() {
                return;
            }
            if machine.ran_out_of_space() {
                judges.with(|seen| seen.coverage.reached(Situation::DiskStopped));
            } else {
                let reason = handle.status().stopped;
                let stopped = format!("({id}) stopped by itself: {reason:?}");
                judges.violate(Violation::Replica(stopped));
            }
        });
    }

    /// Looks at every state that a replica shows.
    fn start_auditor(&self, node: NodeId, handle: Handle<State>) {
        let judges = self.judges.clone();
        spawn_on(node, u64::from(node.0), async move {
            let mut applied = handle.applied();
            while applied.changed().await.is_ok() {
                judges.audit(node.0, &handle.fork());
            }
        });
    }

    /// Waits until every acknowledged job has ended and no process is left.
    async fn quiet(&self, users: Vec<tokio::sync::oneshot::Receiver<()>>) {
        if !self.goes_on() {
            return;
        }
        let deadline = Instant::now() + QUIET_MAX;
        for finished in users {
            if tokio::time::timeout_at(deadline, finished).await.is_err() {
                self.judges.violate(Violation::Stuck(
                    "a user's request is never answered".to_owned(),
                ));
                return;
            }
        }
        let mut unblocked = 0;
        while !self.settled() && self.goes_on() {
            self.give_back(&mut unblocked).await;
            if Instant::now() > deadline {
                self.judges.violate(Violation::Stuck(describe_stuck(self)));
                return;
            }
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
        // Followers apply what they have once they hear the next heartbeat. Checks, probations and their ticks go on although
        // no job is left: what is committed meanwhile is waited for as well.
        let rest = Instant::now() + REST_MAX;
        loop {
            tokio::time::sleep(Duration::from_secs(2)).await;
            if self.is_at_one_revision() || Instant::now() > rest {
                return;
            }
        }
    }

    fn is_at_one_revision(&self) -> bool {
        let up = self.replicas.registry.up();
        let mut revisions = { up.iter() }.map(|(_, handle)| handle.with_state(|it| it.revision));
        let first = revisions.next();
        revisions.all(|revision| Some(revision) == first)
    }

    /// All is repaired: an operator gives back what rules still keep out of placement.
    async fn give_back(&self, unblocked: &mut u128) {
        for (_, handle) in self.replicas.registry.up() {
            let targets = handle.with_state(blocked);
            for target in targets {
                *unblocked += 1;
                let unblock = Command::Unblock {
                    request: RequestId(OPERATORS_REQUESTS + *unblocked),
                    target,
                    author: "operator".to_owned(),
                    planned: false,
                };
                // Who does not lead says so, and the next one is asked; what was given back before is refused.
                drop(tokio::time::timeout(UNBLOCK_TIMEOUT, propose(handle.clone(), unblock)).await);
            }
        }
    }

    fn settled(&self) -> bool {
        let (running, jobs) = self.judges.with(|seen| {
            let jobs: Vec<JobId> = seen.acknowledged.jobs().collect();
            (seen.book.running(), jobs)
        });
        let ended = |handle: &Handle<State>| {
            handle.with_state(|state| jobs.iter().all(|job| has_ended_or_never_can(state, *job)))
        };
        let up = self.replicas.registry.up();
        running == 0 && up.iter().all(|(_, handle)| ended(handle))
    }

    /// Judges the final states.
    fn judge(&self) {
        let up = self.replicas.registry.up();
        let mut revisions = Vec::new();
        for (node, handle) in &up {
            let state = handle.fork();
            revisions.push(state.revision.get());
            self.judges.judge_final(node.0, &state);
        }
        if revisions.windows(2).any(|pair| pair[0] != pair[1]) {
            self.judges.violate(Violation::Apart(revisions));
        }
    }

    fn report(self) -> Report {
        let last = self.replicas.registry.up().into_iter().next();
        let state = last.map(|(_, handle)| handle.fork()).unwrap_or_default();
        let snapshots = self.replicas.snapshots_installed();
        let in_phase = |phase| state.jobs.values().filter(|job| job.phase == phase).count() as u64;
        self.judges.with(|seen| {
            let panics = take_panics().into_iter().map(Violation::Panic);
            seen.violations.extend(panics);
            seen.coverage.read_events(&state);
            seen.coverage
                .reached_times(Situation::SnapshotInstalled, snapshots);
            Report {
                seed: self.options.seed,
                violations: seen.found().collect(),
                acknowledged: seen.acknowledged.len() as u64,
                succeeded: in_phase(JobPhase::Succeeded),
                failed: in_phase(JobPhase::Failed),
                cancelled: in_phase(JobPhase::Cancelled),
                task_starts: seen.book.starts(),
                messages: self.network.messages(),
                trace: self.network.trace(),
                audits: seen.audits,
                compared: seen.agreement.compared(),
                revision: state.revision.get(),
                state_hash: state.state_hash(),
                coverage: seen.coverage.clone(),
                ..Report::default()
            }
        })
    }
}

/// What is out of placement, or what rules keep something off.
fn blocked(state: &State) -> Vec<BlockTarget> {
    let is_held = |component: &Component| {
        let condition = state.health.condition(component);
        condition.is_some_and(|condition| !condition.holds.is_empty())
    };
    let of_host = |host: &Host| {
        let is_kept = |gpu: &&Gpu| gpu.block.is_some() || is_held(&Component::Gpu(gpu.uuid));
        let gpus = host.gpus.iter().filter(is_kept);
        let gpus = gpus.map(|gpu| BlockTarget::Gpu(gpu.uuid));
        let is_kept = host.block.is_some() || is_held(&Component::Host(host.id));
        let itself = is_kept.then(|| BlockTarget::Host(host.name.to_string()));
        gpus.chain(itself).collect::<Vec<_>>()
    };
    state
        .hosts
        .values()
        .flat_map(|host| of_host(host))
        .collect()
}

fn has_ended_or_never_can(state: &State, job: JobId) -> bool {
    state.job(job).is_some_and(|job| job.phase.is_terminal()) || never_can(state, job)
}

/// Users ask for more than the cluster could ever give, too; such a job waits, says so, and holds up nobody but
/// those that depend on it.
fn never_can(state: &State, job: JobId) -> bool {
    let never = |blocker| match blocker {
        Blocker::NoSuchHost { .. } | Blocker::ExceedsCluster { .. } => true,
        // One that is reached by the job alone.
        Blocker::Limit(limit) => !state.index.usage.contains_key(limit.queue.as_str()),
        // Of older jobs only, so that this comes to an end.
        Blocker::Dependencies { open, .. } => open.iter().all(|on| never_can(state, on.job)),
        _ => false,
    };
    let is_queued = |known: &Job| known.phase == JobPhase::Queued;
    state.job(job).is_some_and(is_queued) && blocker(state, job, state.time).is_some_and(never)
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests;
