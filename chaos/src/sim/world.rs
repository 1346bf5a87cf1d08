//! A whole simulated cluster: replicas with their leader loops, hosts, users, a nemesis, and the judges.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use muster_core::audit::audit;
use muster_core::ids::{JobId, ReplicaId};
use muster_core::lifecycle::JobPhase;
use muster_core::plan::{Blocker, Budget, explain};
use muster_core::state::State;
use muster_core::timings::Timings;
use muster_raft_store::Handle;
use muster_scheduler::leader::{
    LEADER_INPUTS_MAX, LeaderLoop, LeaderSettings, ShadowStore, SharedShadows, WorkerDirectory,
};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::clients::{SimClient, draws};
use super::clock::SimClock;
use super::gateway::Gateway;
use super::host::{HostSettings, SimHost};
use super::nemesis::Nemesis;
use super::network::SimNetwork;
use super::peers::{ShadowService, ShadowServices, SimPeers};
use super::replicas::{Replicas, StartError};
use super::report::{Report, Violation};
use super::runtime::{NodeId, spawn_on};
use super::stuck::describe_stuck;
use crate::check::{Acknowledged, Exclusivity};

/// Heartbeats of simulated clusters: fast, so that a short run sees many leases end.
const TIMINGS: Timings = Timings {
    beat_ms: 500,
    suspect_ms: 1_500,
    lost_ms: 4_500,
};
/// Leases of simulated jobs.
const PARTITION_GRACE_MS: u64 = 6_000;
/// Pause between two looks of the auditor at one replica.
const AUDIT_EVERY: Duration = Duration::from_millis(250);
/// How long the quiet phase may take until every job has ended: leases, back-offs and run times.
const QUIET_MAX: Duration = Duration::from_secs(600);
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

/// Known bugs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutant {
    /// Replicas acknowledge before anything is synced.
    AckBeforeSync,
    /// Supervisors let tasks run three times as long as their lease.
    LongLease,
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
    book: Arc<Mutex<Exclusivity>>,
    acknowledged: Arc<Mutex<Acknowledged>>,
    violations: Arc<Mutex<Vec<Violation>>>,
    leaderships: Arc<Mutex<u64>>,
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
        let lying = options.mutant == Some(Mutant::AckBeforeSync);
        let replicas = Replicas::new(count, random.random(), network.clone(), lying);
        let mut world = Self {
            options,
            replicas,
            hosts: Vec::new(),
            network,
            gateway: Gateway::default(),
            shadows: ShadowServices::default(),
            random,
            book: Arc::default(),
            acknowledged: Arc::default(),
            violations: Arc::default(),
            leaderships: Arc::default(),
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
                timings: TIMINGS,
                lease_stretch: if self.options.mutant == Some(Mutant::LongLease) {
                    3
                } else {
                    1
                },
            };
            let clock = SimClock::new(began, self.random.random_range(-9..10));
            let links = (self.network.clone(), self.gateway.clone());
            let host = SimHost::new(
                settings,
                clock,
                links,
                nodes.clone(),
                Arc::clone(&self.book),
            );
            self.hosts.push(host);
        }
    }

    async fn run(mut self) -> Report {
        if let Err(error) = self.found().await {
            self.violate(Violation::Start(error.to_string()));
            return self.report();
        }
        for host in &self.hosts {
            host.boot(self.random.random());
        }
        let users = self.start_users();
        let faults = Duration::from_secs(self.options.faults_s);
        let mut nemesis = Nemesis::new(self.random.random());
        let end = Instant::now() + faults;
        while Instant::now() < end && self.healthy() {
            let pause_ms = self.random.random_range(200..4_000);
            tokio::time::sleep(Duration::from_millis(pause_ms)).await;
            nemesis.act(&mut self).await;
        }
        nemesis.repair(&mut self).await;
        self.quiet(users).await;
        self.judge();
        let mut report = self.report();
        report.faults = nemesis.counts().clone();
        report
    }

    /// Starts all replicas and forms the group.
    async fn found(&mut self) -> Result<(), StartError> {
        for id in 1..=self.replicas_count() {
            self.start_replica(id).await?;
        }
        if let Some((_, first)) = self.replicas.registry.up().into_iter().next()
            && let Err(error) = first.initialize(self.replicas.members()).await
        {
            self.violate(Violation::Start(error.to_string()));
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
            clock: machine.clock,
            shadows,
            directory: Arc::new(WorkerDirectory::default()),
            inputs: received,
            settings: LeaderSettings {
                replica: ReplicaId(u64::from(id)),
                timings: TIMINGS,
                budget: Budget::default(),
            },
        };
        let seed = self.random.random();
        spawn_on(
            machine.node,
            seed,
            leader_loop.run(CancellationToken::new()),
        );
        self.start_auditor(machine.node, handle);
        Ok(())
    }

    /// Kills a replica and everything that runs in it.
    pub fn kill_replica(&mut self, id: u32) {
        let node = NodeId(id);
        self.gateway.close(node);
        self.shadows.close(node);
        self.replicas.kill(id);
    }

    /// A draw from the world's seed.
    pub fn draw(&mut self, range: std::ops::Range<u32>) -> u32 {
        self.random.random_range(range)
    }

    /// A seed for something new.
    pub fn seed(&mut self) -> u64 {
        self.random.random()
    }

    /// Processes that run on any host.
    #[must_use]
    pub fn running(&self) -> usize {
        lock(&self.book).running()
    }

    /// Records that something must not have happened.
    pub fn violate(&self, violation: Violation) {
        lock(&self.violations).push(violation);
    }

    fn healthy(&self) -> bool {
        lock(&self.violations).is_empty() && lock(&self.book).overlaps().is_empty()
    }

    fn start_users(&mut self) -> Vec<tokio::sync::oneshot::Receiver<()>> {
        let jobs = usize::try_from(self.options.faults_s / 4).unwrap_or(usize::MAX);
        (0..self.random.random_range(1..4))
            .map(|user| {
                let client = SimClient {
                    node: NodeId(CLIENT_NODES + user),
                    network: self.network.clone(),
                    registry: self.replicas.registry.clone(),
                    acknowledged: Arc::clone(&self.acknowledged),
                    random: draws(self.options.seed, user),
                    partition_grace_ms: PARTITION_GRACE_MS,
                };
                let (done, finished) = tokio::sync::oneshot::channel();
                spawn_on(client.node, self.random.random(), async move {
                    client.run(jobs).await;
                    // The world may have given up meanwhile.
                    let _unheard = done.send(());
                });
                finished
            })
            .collect()
    }

    fn start_auditor(&self, node: NodeId, handle: Handle<State>) {
        let violations = Arc::clone(&self.violations);
        let leaderships = Arc::clone(&self.leaderships);
        spawn_on(node, u64::from(node.0), async move {
            let mut applied = handle.applied();
            while applied.changed().await.is_ok() {
                let findings = handle.with_state(|state| {
                    let mut epoch = lock(&leaderships);
                    *epoch = state.leadership.epoch.get().max(*epoch);
                    audit(state)
                });
                let found = findings
                    .into_iter()
                    .map(|finding| Violation::Audit(finding.to_string()));
                lock(&violations).extend(found);
                tokio::time::sleep(AUDIT_EVERY).await;
            }
        });
    }

    /// Waits until every acknowledged job has ended and no process is left.
    async fn quiet(&self, users: Vec<tokio::sync::oneshot::Receiver<()>>) {
        let deadline = Instant::now() + QUIET_MAX;
        for finished in users {
            if tokio::time::timeout_at(deadline, finished).await.is_err() {
                self.violate(Violation::Stuck(
                    "a user's request is never answered".to_owned(),
                ));
                return;
            }
        }
        while !self.settled() {
            if Instant::now() > deadline {
                self.violate(Violation::Stuck(describe_stuck(self)));
                return;
            }
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
        // Followers apply what they have once they hear the next heartbeat.
        tokio::time::sleep(Duration::from_secs(2)).await;
    }

    fn settled(&self) -> bool {
        let ended = |handle: &Handle<State>| {
            handle.with_state(|state| {
                lock(&self.acknowledged)
                    .jobs()
                    .all(|job| has_ended_or_never_can(state, job))
            })
        };
        lock(&self.book).running() == 0
            && self
                .replicas
                .registry
                .up()
                .iter()
                .all(|(_, handle)| ended(handle))
    }

    /// Judges the final states.
    fn judge(&self) {
        let up = self.replicas.registry.up();
        let mut hashes = std::collections::BTreeMap::new();
        for (node, handle) in &up {
            handle.with_state(|state| {
                hashes
                    .entry((state.revision, state.state_hash()))
                    .or_insert_with(Vec::new)
                    .push(node.0);
                let lost = lock(&self.acknowledged).judge(state);
                lock(&self.violations).extend(lost.into_iter().map(Violation::Lost));
            });
        }
        if hashes.len() != 1 {
            self.violate(Violation::Divergence(format!("{hashes:?}")));
        }
    }

    fn report(self) -> Report {
        let mut violations = std::mem::take(&mut *lock(&self.violations));
        violations.extend(
            lock(&self.book)
                .overlaps()
                .iter()
                .cloned()
                .map(Violation::Overlap),
        );
        let last = self.replicas.registry.up().into_iter().next();
        let state = last.map(|(_, handle)| handle.fork()).unwrap_or_default();
        let in_phase = |phase| state.jobs.values().filter(|job| job.phase == phase).count() as u64;
        Report {
            seed: self.options.seed,
            violations,
            acknowledged: lock(&self.acknowledged).len() as u64,
            succeeded: in_phase(JobPhase::Succeeded),
            failed: in_phase(JobPhase::Failed),
            cancelled: in_phase(JobPhase::Cancelled),
            task_starts: lock(&self.book).starts(),
            messages: self.network.messages(),
            revision: state.revision.get(),
            state_hash: state.state_hash(),
            faults: std::collections::BTreeMap::new(),
        }
    }
}

/// Users ask for more than the cluster could ever give, too; such a job waits, says so, and holds up nobody.
fn has_ended_or_never_can(state: &State, job: JobId) -> bool {
    let never = |blocker| {
        matches!(
            blocker,
            Blocker::NoSuchHost { .. } | Blocker::ExceedsCluster { .. }
        )
    };
    state.job(job).is_some_and(|known| {
        known.phase.is_terminal()
            || known.phase == JobPhase::Queued
                && explain(state, job, state.time)
                    .and_then(|told| told.blocker)
                    .is_some_and(never)
    })
}

// A panic while a lock is held ends the world anyway; what is behind it is plain data.
fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests;
