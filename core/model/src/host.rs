//! Hosts and their GPUs.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::command::{Block, GpuHealth, HostHealth};
use crate::ids::{AttemptEpoch, GpuUuid, HostId, JobId, RequestId, Revision, TaskIndex, UnitIndex};
use crate::time::TimeMs;
use crate::topology::LearntTree;

/// The label by which a worker says that its host runs containers; its value is the engine's name and version.
pub const ENGINE_LABEL: &str = "muster.engine";
/// The label by which a worker says which release of the GPU driver its host runs.
pub const DRIVER_LABEL: &str = "muster.driver";

/// A machine that runs a worker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Host {
    /// Its id.
    pub id: HostId,
    /// Its name, unique.
    pub name: Arc<str>,
    /// Where tasks of other hosts reach it.
    pub address: String,
    /// Identity of the worker that holds the name.
    pub worker_id: RequestId,
    /// Newest incarnation of its agent.
    pub incarnation: u64,
    /// Kernel boot id at the last registration.
    pub boot_id: String,
    /// How the leader sees it.
    pub health: HostHealth,
    /// When the leader last changed its mind about it.
    pub health_since: TimeMs,
    /// Whether it is suspect or lost although its beats arrive: acknowledgements do not reach it.
    pub one_way: bool,
    /// Present while it is out of placement.
    pub block: Option<Block>,
    /// The block that is planned for it.
    pub planned: Option<Block>,
    /// Whether it, or a GPU of it, has to prove itself: it takes only work that can be lost. Derived from the health.
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
    /// CPUs given out.
    pub cpus_milli_used: u32,
    /// Memory given out.
    pub memory_mib_used: u64,
    /// Units with a claim here, ascending, and what their tasks need beside GPUs.
    pub claims: Vec<HostClaim>,
    /// Free labels.
    pub labels: BTreeMap<String, String>,
    /// Where it and its GPUs lie by its worker's word.
    pub learnt: Arc<LearntTree>,
    /// When it was first registered.
    pub registered_at: TimeMs,
    /// Revision of the last change to what its worker should run.
    pub desired_revision: Revision,
}

/// A GPU of a host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gpu {
    /// Its identity.
    pub uuid: GpuUuid,
    /// Index on the host, for people.
    pub index: u32,
    /// Model.
    pub model: Arc<str>,
    /// Memory in MiB.
    pub memory_mib: u64,
    /// How its worker sees it.
    pub health: GpuHealth,
    /// When that last changed.
    pub health_since: TimeMs,
    /// Present while it is out of placement.
    pub block: Option<Block>,
    /// Who has it.
    pub holder: Option<Holder>,
    /// The unit that it is reserved for.
    pub claim: Option<(JobId, UnitIndex)>,
}

/// CPUs and memory of a host that are reserved for a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct HostClaim {
    /// Whose.
    pub job: JobId,
    /// Which unit.
    pub unit: UnitIndex,
    /// Thousandths of CPUs.
    pub cpus_milli: u32,
    /// Memory in MiB.
    pub memory_mib: u64,
}

/// The task of an attempt that holds a GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Holder {
    /// Whose.
    pub job: JobId,
    /// Which unit.
    pub unit: UnitIndex,
    /// Which attempt.
    pub epoch: AttemptEpoch,
    /// Which task.
    pub task: TaskIndex,
}

impl Host {
    /// Whether anything new may be placed here.
    #[must_use]
    pub fn accepts_work(&self) -> bool {
        self.health == HostHealth::Up && self.block.is_none()
    }

    /// Whether tasks can run in containers here.
    #[must_use]
    pub fn has_container_engine(&self) -> bool {
        self.labels.contains_key(ENGINE_LABEL)
    }

    /// Thousandths of CPUs not given out.
    #[must_use]
    pub const fn cpus_milli_free(&self) -> u32 {
        self.cpus_milli.saturating_sub(self.cpus_milli_used)
    }

    /// Memory not given out, in MiB.
    #[must_use]
    pub const fn memory_mib_free(&self) -> u64 {
        self.memory_mib.saturating_sub(self.memory_mib_used)
    }
}

impl Gpu {
    /// Whether it could be given out if nobody held it.
    #[must_use]
    pub fn usable(&self) -> bool {
        self.health == GpuHealth::Healthy && self.block.is_none()
    }

    /// Whether it can be given out now, to anybody.
    #[must_use]
    pub fn is_free(&self) -> bool {
        self.holder.is_none() && self.claim.is_none() && self.usable()
    }
}
