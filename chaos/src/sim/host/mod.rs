//! Simulated host: the real `core::agent` driven over a simulated stream, with simulated supervisors.
//!
//! Two nodes: the agent's, which is killed alone when only the agent dies, and the host's own, with the
//! supervisors.

mod driver;
mod heartbeats;
mod power;
mod sensors;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use muster_control::agent::{Agent, JournalRecord};
use muster_model::command::{GpuDescription, GpuHealth, HostRegistration};
use muster_model::host::ENGINE_LABEL;
use muster_model::ids::{GpuUuid, RequestId};
use muster_model::time::MonotonicMs;
use muster_model::timings::Timings;
use muster_model::topology::{NamedCell, ReportedGpu, ReportedTopology};
use power::Power;
use sensors::{Notes, Sensors};

use crate::sim::checkers::Checkers;
use crate::sim::clock::SimClock;
use crate::sim::faults::coverage::Situation;
use crate::sim::links::gateway::Gateway;
use crate::sim::links::network::SimNetwork;
use crate::sim::mutant::Mutant;
use crate::sim::random_streams::{StreamOwner, seed_of};
use crate::sim::runtime::NodeId;
use crate::sim::supervisors::Supervisors;

/// Model of the simulated GPUs.
const GPU_MODEL: &str = "H100";

/// Settings of a host.
#[derive(Clone, Debug)]
pub struct HostSettings {
    /// The world's seed.
    pub seed: u64,
    /// Number of the host, from 0.
    pub number: u32,
    /// Number of GPUs.
    pub gpus: u32,
    /// Location reported by its agent: the rack, and the sockets of its GPUs; `None` if unknown.
    pub place: Option<SimPlace>,
    /// Heartbeat and lease timings.
    pub timings: Timings,
    /// A known bug, switched on.
    pub mutant: Option<Mutant>,
}

/// Location of a host as reported by its agent.
#[derive(Clone, Copy, Debug)]
pub struct SimPlace {
    /// Number of the pod around the rack; reports for one rack may contradict each other.
    pub pod: u32,
    /// Number of the rack.
    pub rack: u32,
    /// GPUs per socket.
    pub socket_gpus: u32,
}

impl SimPlace {
    fn tree(self, gpus: &[GpuUuid]) -> ReportedTopology {
        let named = |level: &str, number: u32| NamedCell {
            level: level.to_owned(),
            name: format!("{level}-{number}"),
        };
        let gpus = gpus.iter().zip(0u32..).map(|(uuid, index)| ReportedGpu {
            uuid: *uuid,
            pci_address: String::new(),
            cells: vec![(index / self.socket_gpus).to_string()],
        });
        ReportedTopology {
            above: vec![named("pod", self.pod), named("rack", self.rack)],
            inside: vec!["socket".to_owned()],
            gpus: gpus.collect(),
        }
    }
}

/// A host with everything that survives its agent.
#[derive(Clone, Debug)]
pub struct SimHost {
    settings: HostSettings,
    clock: SimClock,
    network: SimNetwork,
    gateway: Gateway,
    replicas: Vec<NodeId>,
    supervisors: Supervisors,
    checkers: Checkers,
    disk: Arc<Mutex<HostDisk>>,
    gpus: Arc<Mutex<BTreeMap<GpuUuid, GpuHealth>>>,
    sensors: Arc<Mutex<Sensors>>,
    power: Arc<Mutex<Power>>,
    /// Memory of the current or last agent process, and its stream; shared for reports.
    agent: Arc<Mutex<Agent>>,
    link: Arc<Mutex<AgentLink>>,
    /// Whether an old order is to be delivered again.
    repeats_order: Arc<Mutex<bool>>,
    /// Whether the submitting users have no accounts on it.
    lacks_accounts: Arc<Mutex<bool>>,
}

/// State of an agent's stream, for reports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AgentLink {
    /// The connected replica.
    pub replica: Option<NodeId>,
    /// Sequence number of the last heartbeat on this stream.
    pub sequence: u64,
    /// Newest acknowledged sequence number on this stream.
    pub acknowledged: u64,
}

/// State that survives a kill of everything.
#[derive(Debug, Default)]
struct HostDisk {
    journal: Vec<JournalRecord>,
    incarnation: u64,
    boots: u64,
    notes: Notes,
}

impl SimHost {
    /// Creates a host that is switched off.
    #[must_use]
    pub fn new(
        settings: HostSettings,
        clock: SimClock,
        network: SimNetwork,
        gateway: Gateway,
        replicas: Vec<NodeId>,
        checkers: Checkers,
    ) -> Self {
        let by_wall = settings.mutant == Some(Mutant::WallClockLeases);
        let supervisors = Supervisors::new(clock.clone(), by_wall, checkers.clone());
        let first = u128::from(settings.number) << 32;
        let gpus = (0..u128::from(settings.gpus))
            .map(|index| (GpuUuid(first + index), GpuHealth::Healthy))
            .collect();
        Self {
            settings,
            clock,
            network,
            gateway,
            replicas,
            supervisors,
            checkers,
            disk: Arc::default(),
            gpus: Arc::new(Mutex::new(gpus)),
            sensors: Arc::default(),
            power: Arc::default(),
            agent: Arc::default(),
            link: Arc::default(),
            repeats_order: Arc::default(),
            lacks_accounts: Arc::default(),
        }
    }

    /// Name in the cluster.
    #[must_use]
    pub fn name(&self) -> String {
        format!("node{:02}", self.settings.number)
    }

    /// Memory of its agent.
    #[must_use]
    pub fn agent(&self) -> Agent {
        lock(&self.agent).clone()
    }

    /// Stream of its agent.
    #[must_use]
    pub fn link(&self) -> AgentLink {
        *lock(&self.link)
    }

    /// Reads its monotonic clock.
    #[must_use]
    pub fn now(&self) -> MonotonicMs {
        self.clock.monotonic()
    }

    /// Sets its wall clock forward or back.
    pub fn step_clock(&self, by_ms: i64) {
        self.clock.step_wall(by_ms);
    }

    /// Its supervisors.
    #[must_use]
    pub const fn supervisors(&self) -> &Supervisors {
        &self.supervisors
    }

    /// Node of its agent.
    #[must_use]
    pub const fn agent_node(&self) -> NodeId {
        Self::agent_node_of(self.settings.number)
    }

    /// Node of the agent of the host with this number.
    #[must_use]
    pub const fn agent_node_of(number: u32) -> NodeId {
        NodeId(1_000 + 2 * number)
    }

    /// Node of its supervisors.
    #[must_use]
    pub const fn host_node(&self) -> NodeId {
        NodeId(1_001 + 2 * self.settings.number)
    }

    /// Its GPUs.
    #[must_use]
    pub fn gpus(&self) -> Vec<GpuUuid> {
        lock(&self.gpus).keys().copied().collect()
    }

    fn seed(&self, domain: StreamOwner, life: u32) -> u64 {
        seed_of(self.settings.seed, domain, self.settings.number, life)
    }

    /// Makes a GPU fail, or repairs it.
    pub fn set_gpu(&self, gpu: GpuUuid, health: GpuHealth) {
        lock(&self.gpus).insert(gpu, health);
    }

    /// Delivers one of its agent's past orders again.
    pub fn repeat_order(&self) {
        *lock(&self.repeats_order) = true;
    }

    /// Removes the accounts of the submitting users until the host is repaired. Returns whether there were
    /// any.
    #[must_use]
    pub fn forget_accounts(&self) -> bool {
        !std::mem::replace(&mut *lock(&self.lacks_accounts), true)
    }

    /// Whether its agent holds prepared tasks until their gang is released; one host in four has an older
    /// agent.
    fn can_hold(&self) -> bool {
        self.settings.number % 4 != 3
    }

    fn reached(&self, situation: Situation) {
        self.checkers.with(|seen| seen.coverage.reached(situation));
    }

    fn registration(&self) -> Arc<HostRegistration> {
        let disk = lock(&self.disk);
        let number = self.settings.number;
        let gpus: Vec<GpuUuid> = self.gpus().into_iter().collect();
        let place = self.settings.place;
        let reported = place.map_or_else(ReportedTopology::default, |place| place.tree(&gpus));
        let gpus = gpus.into_iter().zip(0..);
        Arc::new(HostRegistration {
            name: self.name(),
            address: format!("10.0.0.{number}"),
            worker_id: RequestId(u128::from(number) + 1),
            incarnation: disk.incarnation,
            boot_id: disk.boots.to_string(),
            gpus: gpus
                .map(|(uuid, index)| GpuDescription {
                    uuid,
                    index,
                    model: GPU_MODEL.to_owned(),
                    memory_mib: 81_920,
                })
                .collect(),
            cpus_milli: 64_000,
            memory_mib: 1 << 20,
            labels: [(ENGINE_LABEL.to_owned(), "simulated".to_owned())].into(),
            reported,
        })
    }
}

/// Counts one more life.
fn count(lives: &mut u64) -> u32 {
    *lives += 1;
    u32::try_from(*lives).unwrap_or(u32::MAX)
}

// A panic while a lock is held ends the world anyway, and the data has no invariants.
fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}
