//! Hosts and their GPUs.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::command::{Block, GpuHealth, HostHealth};
use crate::ids::{
    AttemptEpoch, GpuUuid, HostId, JobId, RequestId, Revision, TaskIndex, UnitId, UnitIndex,
};
use crate::time::TimeMs;
use crate::topology::ReportedTopology;

/// Label by which a worker reports that its host runs containers; the value is the engine's name and version.
pub const ENGINE_LABEL: &str = "muster.engine";
/// Label by which a worker reports the GPU driver release of its host.
pub const DRIVER_LABEL: &str = "muster.driver";

/// A machine that runs a worker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Host {
    /// Id of the host.
    pub id: HostId,
    /// Name of the host, unique.
    pub name: Arc<str>,
    /// Address at which tasks of other hosts reach it.
    pub address: String,
    /// Identity of the worker that holds the name.
    pub worker_id: RequestId,
    /// Newest incarnation of its agent.
    pub incarnation: u64,
    /// Kernel boot id at the last registration.
    pub boot_id: String,
    /// Health, as the leader sees it.
    pub health: HostHealth,
    /// Time of the last change of `health`.
    pub health_since: TimeMs,
    /// Whether it is suspect or lost although its heartbeats arrive: acknowledgements do not reach it.
    pub one_way: bool,
    /// Set while it is out of placement.
    pub block: Option<Block>,
    /// Its planned block.
    pub planned: Option<Block>,
    /// Whether it or one of its GPUs is in probation: it accepts only work that can be lost. Derived from the
    /// health.
    #[serde(skip)]
    pub on_probation: bool,
    /// Whether a rule keeps gangs off it. Derived from the health.
    #[serde(skip)]
    pub no_gangs: bool,
    /// Its GPUs in index order.
    pub gpus: Vec<Gpu>,
    /// Thousandths of CPUs that tasks may use.
    pub cpus_milli: u32,
    /// Memory that tasks may use, in MiB.
    pub memory_mib: u64,
    /// Allocated thousandths of CPUs.
    pub cpus_milli_used: u32,
    /// Allocated memory in MiB.
    pub memory_mib_used: u64,
    /// Units with a claim on the host, ascending, with the CPUs and memory of their tasks.
    pub claims: Vec<HostClaim>,
    /// User-defined labels.
    pub labels: BTreeMap<String, String>,
    /// Location of it and its GPUs, as reported by its worker.
    pub reported_topology: Arc<ReportedTopology>,
    /// Time of the first registration.
    pub registered_at: TimeMs,
    /// Revision of the last change to its desired state.
    pub desired_revision: Revision,
}

/// A GPU of a host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gpu {
    /// UUID of the GPU.
    pub uuid: GpuUuid,
    /// Index on the host, for operators.
    pub index: u32,
    /// Model name.
    pub model: Arc<str>,
    /// Memory in MiB.
    pub memory_mib: u64,
    /// Health, as reported by its worker.
    pub health: GpuHealth,
    /// Time of the last change of `health`.
    pub health_since: TimeMs,
    /// Set while it is out of placement.
    pub block: Option<Block>,
    /// Its holder, if it is allocated.
    pub holder: Option<Holder>,
    /// The unit that it is reserved for.
    pub claim: Option<UnitId>,
}

/// CPUs and memory of a host reserved for a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct HostClaim {
    /// The job.
    pub job: JobId,
    /// Index of the unit within its job.
    pub unit: UnitIndex,
    /// Thousandths of CPUs.
    pub cpus_milli: u32,
    /// Memory in MiB.
    pub memory_mib: u64,
}

/// The task of an attempt that holds a GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Holder {
    /// The job.
    pub job: JobId,
    /// Index of the unit within its job.
    pub unit: UnitIndex,
    /// Epoch of the attempt.
    pub epoch: AttemptEpoch,
    /// Index of the task within its job.
    pub task: TaskIndex,
}

impl Holder {
    /// The unit whose attempt it is.
    #[must_use]
    pub const fn unit_id(&self) -> UnitId {
        UnitId::new(self.job, self.unit)
    }
}

impl HostClaim {
    /// The unit that it is reserved for.
    #[must_use]
    pub const fn unit_id(&self) -> UnitId {
        UnitId::new(self.job, self.unit)
    }
}

impl Host {
    /// Whether new work may be placed here.
    #[must_use]
    pub fn accepts_work(&self) -> bool {
        self.health == HostHealth::Up && self.block.is_none()
    }

    /// Whether tasks can run in containers here.
    #[must_use]
    pub fn has_container_engine(&self) -> bool {
        self.labels.contains_key(ENGINE_LABEL)
    }

    /// Unallocated thousandths of CPUs.
    #[must_use]
    pub const fn cpus_milli_free(&self) -> u32 {
        self.cpus_milli.saturating_sub(self.cpus_milli_used)
    }

    /// Unallocated memory in MiB.
    #[must_use]
    pub const fn memory_mib_free(&self) -> u64 {
        self.memory_mib.saturating_sub(self.memory_mib_used)
    }
}

impl Gpu {
    /// Whether it could be allocated if it had no holder.
    #[must_use]
    pub fn usable(&self) -> bool {
        self.health == GpuHealth::Healthy && self.block.is_none()
    }

    /// Whether it is usable and no attempt holds it; it may be claimed.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.holder.is_none() && self.usable()
    }

    /// Whether it can be allocated now, to any unit.
    #[must_use]
    pub fn is_free(&self) -> bool {
        self.is_idle() && self.claim.is_none()
    }
}
