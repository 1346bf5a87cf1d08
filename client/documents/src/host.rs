//! Hosts, and their location in the cell tree.

use std::collections::BTreeMap;

use muster_proto::v1;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::block::Block;
use crate::health::HealthState;
use crate::instant::Instant;
use crate::wire::FromWire as _;

string_enum! {
    /// Health of a host as known to the leader.
    pub enum HostHealth from v1::HostHealth {
        Up "up",
        Suspect "suspect",
        Lost "lost",
    }
}

string_enum! {
    /// State of a host, in the terms of Slurm.
    pub enum HostState {
        Idle "idle",
        Mixed "mixed",
        Allocated "allocated",
        Blocked "blocked",
        Draining "draining",
        Drained "drained",
        Suspect "suspect",
        Lost "lost",
    }
}

string_enum! {
    /// Why a host is not up: its heartbeats are missing, or they arrive and acknowledgements do not reach it.
    pub enum SilenceCause {
        Silence "silence",
        OneWay "one_way",
    }
}

string_enum! {
    /// Source of a host's location.
    pub enum CellSource from v1::CellSource {
        Configuration "configuration",
        Worker "worker",
    }
}

/// A host.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Host {
    pub name: String,
    pub id: u32,
    pub address: String,
    pub state: HostState,
    pub health: HostHealth,
    pub health_since: Instant,
    /// Null for a host that is up.
    pub silence_cause: Option<SilenceCause>,
    #[serde(flatten)]
    pub health_state: HealthState,
    pub block: Option<Block>,
    /// The planned block.
    pub planned: Option<Block>,
    pub gpus: HostGpuCounts,
    pub gpu_models: Vec<String>,
    pub tasks: u32,
    pub cpus: f64,
    pub cpus_used: f64,
    pub memory_mib: u64,
    pub memory_mib_used: u64,
    pub labels: BTreeMap<String, String>,
    pub registered_at: Instant,
    pub worker_id: String,
    pub incarnation: u64,
    pub boot_id: String,
    pub cells: HostCells,
}

/// GPUs of a host by use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct HostGpuCounts {
    pub total: u32,
    pub free: u32,
    pub held: u32,
    pub blocked: u32,
    pub faulted: u32,
    pub unreachable: u32,
}

documents! {
    /// The cells around and inside a host.
    pub struct HostCells from v1::HostCells {
        path: String,
        path_by: Option<CellSource>,
        inside: Vec<CellGroup>,
        inside_by: Option<CellSource>,
        /// Rejected parts of its worker's report, with the reason.
        flaws: Vec<String>,
    }

    /// A cell between a host and its GPUs.
    pub struct CellGroup from v1::CellGroup {
        level: String,
        /// Positions of its GPUs on the host.
        gpus: Vec<u32>,
    }
}

/// Location of a host.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HostLocation {
    pub name: String,
    #[serde(flatten)]
    pub cells: HostCells,
}

impl From<v1::Host> for HostLocation {
    fn from(host: v1::Host) -> Self {
        Self {
            name: host.name,
            cells: HostCells::from_wire(host.cells),
        }
    }
}

impl From<v1::Host> for Host {
    fn from(host: v1::Host) -> Self {
        let gpus = HostGpuCounts::new(&host);
        let mut gpu_models: Vec<String> = host.gpus.iter().map(|gpu| gpu.model.clone()).collect();
        gpu_models.dedup();
        let cpus = |milli: u32| f64::from(milli) / 1_000.0;
        let instant = |ms| Instant { ms };
        Self {
            state: HostState::new(&host, gpus),
            silence_cause: SilenceCause::new(host.health(), host.one_way),
            health: HostHealth::from_wire(host.health),
            name: host.name,
            id: host.id,
            address: host.address,
            health_since: instant(host.health_since_ms),
            health_state: HealthState::new(host.health_phase, host.health_rule, host.restrictions),
            block: host.block.map(Block::from),
            planned: host.planned.map(Block::from),
            gpus,
            gpu_models,
            tasks: host.tasks,
            cpus: cpus(host.cpus_milli),
            cpus_used: cpus(host.cpus_milli_used),
            memory_mib: host.memory_mib,
            memory_mib_used: host.memory_mib_used,
            labels: host.labels,
            registered_at: instant(host.registered_at_ms),
            worker_id: host.worker_id,
            incarnation: host.incarnation,
            boot_id: host.boot_id,
            cells: HostCells::from_wire(host.cells),
        }
    }
}

impl SilenceCause {
    /// Description of a link that works in one direction only.
    pub const ONE_WAY: &str = "its heartbeats arrive, but acknowledgements do not reach it";

    /// `None` if the host is not silent.
    pub(crate) const fn new(health: v1::HostHealth, one_way: bool) -> Option<Self> {
        match (health, one_way) {
            (v1::HostHealth::Up | v1::HostHealth::Unspecified, _) => None,
            (_, true) => Some(Self::OneWay),
            (_, false) => Some(Self::Silence),
        }
    }
}

impl HostGpuCounts {
    /// GPUs that cannot be allocated are not free, even if only their host is the cause.
    fn new(host: &v1::Host) -> Self {
        let is_silent = matches!(
            host.health(),
            v1::HostHealth::Suspect | v1::HostHealth::Lost
        );
        let mut counts = Self::default();
        for gpu in &host.gpus {
            counts.total += 1;
            let faulted = gpu
                .health
                .as_ref()
                .is_some_and(|health| health.fault.is_some());
            let blocked = gpu.block.is_some() || host.block.is_some();
            let counter = match (gpu.holder.is_some(), faulted, blocked) {
                (true, _, _) => &mut counts.held,
                (_, true, _) => &mut counts.faulted,
                (_, _, true) => &mut counts.blocked,
                _ if is_silent => &mut counts.unreachable,
                _ => &mut counts.free,
            };
            *counter += 1;
        }
        counts
    }
}

impl HostState {
    fn new(host: &v1::Host, gpus: HostGpuCounts) -> Self {
        match host.health() {
            v1::HostHealth::Lost => return Self::Lost,
            v1::HostHealth::Suspect => return Self::Suspect,
            v1::HostHealth::Up | v1::HostHealth::Unspecified => {}
        }
        if let Some(block) = &host.block {
            return match (block.drain_deadline_ms.is_some(), host.tasks > 0) {
                (true, true) => Self::Draining,
                (true, false) => Self::Drained,
                (false, _) => Self::Blocked,
            };
        }
        if host.tasks == 0 {
            Self::Idle
        } else if gpus.free > 0 || gpus.total == 0 {
            Self::Mixed
        } else {
            Self::Allocated
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Counts of two free GPUs of such a host.
    fn counted(health: v1::HostHealth, block: Option<v1::Block>) -> HostGpuCounts {
        let host = v1::Host {
            health: health.into(),
            block,
            gpus: vec![v1::Gpu::default(), v1::Gpu::default()],
            ..v1::Host::default()
        };
        Host::from(host).gpus
    }

    #[test]
    fn gpus_of_a_host_that_takes_no_work_are_not_free() {
        let free = counted(v1::HostHealth::Up, None);
        assert_eq!((free.free, free.blocked, free.unreachable), (2, 0, 0));
        let blocked = counted(v1::HostHealth::Up, Some(v1::Block::default()));
        assert_eq!((blocked.free, blocked.blocked), (0, 2));
        let lost = counted(v1::HostHealth::Lost, None);
        assert_eq!((lost.free, lost.unreachable), (0, 2));
    }
}
