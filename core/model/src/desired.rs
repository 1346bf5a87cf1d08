//! The desired state of a host: everything that the leader wants its worker to run.
//!
//! A state, not a stream of edges: losing or repeating one changes nothing. A task that is absent must not run.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::health::Order;
use crate::ids::{
    AttemptEpoch, GpuUuid, HostId, LeadershipEpoch, Revision, TaskKey, UnitIndex,
};
use crate::lifecycle::TaskPhase;
use crate::spec::{Execution, StopWarning};

/// Lowest port that rank 0 may be told to listen on (`MASTER_PORT`).
pub const MASTER_PORT_MIN: u16 = 20_000;

/// Number of those ports; all lie below 32,768, where Linux begins to hand out ports by itself.
pub const MASTER_PORTS: u16 = 10_000;

/// Everything one host should run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DesiredState {
    /// Fencing token: the worker refuses one older than the newest it has seen.
    pub leader: LeadershipEpoch,
    /// Revision of the state it was read from; within one leadership an older one is ignored.
    pub revision: Revision,
    /// The host it is for.
    pub host: HostId,
    /// Its tasks, ordered by job and task.
    pub tasks: Vec<TaskAssignment>,
    /// What is to be done about its health.
    #[serde(default)]
    pub health: HealthDuties,
}

/// What a worker is told about health.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HealthDuties {
    /// Up to which number its findings were heard: it need not repeat them.
    pub heard: u64,
    /// Which rules are in force, by the revision that set them; 0 for those that ship with Muster.
    pub rules: Revision,
    /// By what their file is known ([`RuleSet::sum_of`](muster_health::rules::RuleSet::sum_of)): a worker that has it fetches
    /// nothing. 0 for those that ship with Muster, and from leaders that do not say.
    #[serde(default)]
    pub rules_sum: u64,
    /// Repairs and checks that it is to carry out.
    pub orders: Vec<Order>,
}

/// One task that a worker should run, with everything needed to run it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskAssignment {
    /// Job and task.
    pub key: TaskKey,
    /// The unit the task belongs to.
    pub unit: UnitIndex,
    /// The attempt: never started twice, never after a newer one.
    pub epoch: AttemptEpoch,
    /// Counts the unit's attempts from 1 (`MUSTER_ATTEMPT`).
    pub attempt: u32,
    /// Why it is run (`MUSTER_RESTART_REASON`).
    pub restart_reason: RestartReason,
    /// The phase that the replicated state has for it; a terminal one acknowledges the worker's report.
    pub acknowledged: TaskPhase,
    /// Program and arguments.
    pub command: Vec<String>,
    /// The user's environment variables.
    pub environment: BTreeMap<String, String>,
    /// Absolute path; the task's own scratch folder if none.
    pub working_directory: Option<String>,
    /// GPUs it may use.
    pub gpus: Vec<GpuUuid>,
    /// Thousandths of CPUs it was given.
    pub cpus_milli: u32,
    /// Memory it was given, in MiB.
    pub memory_mib: u64,
    /// How it is run, beside its command.
    #[serde(default)]
    pub execution: Execution,
    /// Where it stands in its gang.
    pub rank: RankInfo,
    /// Newest committed checkpoint of the unit.
    pub checkpoint: Option<CheckpointRef>,
    /// Milliseconds between being asked to stop and being killed.
    pub stop_grace_ms: u64,
    /// Milliseconds it may go on without contact to any leader.
    pub partition_grace_ms: u64,
    /// Present if it should stop.
    pub stop: Option<StopInstruction>,
    /// Whether it waits, prepared, until its gang is released. Agents that do not know this begin it at once.
    #[serde(default)]
    pub barrier: bool,
    /// Whether its gang is released: all members are prepared, and `rank` is final.
    #[serde(default)]
    pub released: bool,
    /// The gang's hosts in the order of `node_rank`, for a launcher; only rank 0 of a gang is told.
    #[serde(default)]
    pub gang_hosts: Vec<GangHost>,
    /// Whether its processes stand still where they are. One that is told to stop goes on, so that it can.
    #[serde(default)]
    pub suspended: bool,
    /// A signal of the job's choice before it is terminated.
    #[serde(default)]
    pub warning: Option<StopWarning>,
    /// What is to be done about the unit's checkpoints.
    #[serde(default)]
    pub care: CheckpointCare,
    /// Whose job it is, by the name that a user proved or, in an open cluster, said. Empty from leaders that do not tell.
    #[serde(default)]
    pub user: String,
}

impl TaskAssignment {
    /// Where its gang meets.
    #[must_use]
    pub fn rendezvous(&self) -> Rendezvous {
        Rendezvous {
            master_address: self.rank.master_address.clone(),
            master_port: self.rank.master_port,
            hosts: self.gang_hosts.clone(),
        }
    }

    /// Whether its gang meets there.
    #[must_use]
    pub fn meets_at(&self, place: &Rendezvous) -> bool {
        let Rendezvous {
            master_address,
            master_port,
            hosts,
        } = place;
        self.rank.master_port == *master_port
            && self.rank.master_address == *master_address
            && self.gang_hosts == *hosts
    }
}

/// What is to be done about a unit's checkpoints.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckpointCare {
    /// Those whose folders are to be removed; told to the unit's first task only.
    pub removals: Vec<CheckpointRef>,
    /// Paths of those that stay; nothing where nothing is to be removed.
    pub kept: Vec<String>,
    /// How often it had better save (`MUSTER_CKPT_INTERVAL_ADVICE`), in milliseconds; none while nobody knows how long a
    /// save takes.
    pub interval_ms: Option<u64>,
    /// Milliseconds between two failures of an attempt on as many hosts, by which its supervisor gives such advice from saves
    /// that it has measured itself; none from a leader that does not tell.
    #[serde(default)]
    pub mean_time_ms: Option<u64>,
}

/// A host of a gang, as a launcher wants to know it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GangHost {
    /// Where it is reached.
    pub address: String,
    /// The gang's tasks on it.
    pub slots: u32,
}

/// Where a gang meets and where its members are: what changes for those who go on when another one is swapped.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rendezvous {
    /// Address of rank 0's host (`MASTER_ADDR`).
    pub master_address: String,
    /// Port that rank 0 listens on (`MASTER_PORT`).
    pub master_port: u16,
    /// The gang's hosts in the order of `node_rank`; only rank 0 is told.
    #[serde(default)]
    pub hosts: Vec<GangHost>,
}

/// What distributed frameworks want to know.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RankInfo {
    /// Position among all tasks of the unit (`RANK`).
    pub rank: u32,
    /// Number of tasks of the unit (`WORLD_SIZE`).
    pub world_size: u32,
    /// Position among the unit's tasks on this host (`LOCAL_RANK`).
    pub local_rank: u32,
    /// Position of this host among the unit's hosts (`NODE_RANK`).
    pub node_rank: u32,
    /// Number of the unit's hosts.
    pub nodes: u32,
    /// Address of rank 0's host (`MASTER_ADDR`).
    pub master_address: String,
    /// Port for rank 0 to listen on (`MASTER_PORT`).
    pub master_port: u16,
    /// Whether another rank 0 is to come, or has come and has not said yet which port it keeps free: address and port do not belong
    /// together, and who runs already is told of neither.
    #[serde(default)]
    pub awaits_port: bool,
}

/// A committed checkpoint as a task sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckpointRef {
    /// Training step (`MUSTER_CKPT_STEP`).
    pub step: u64,
    /// Absolute path (`MUSTER_CKPT_LATEST`).
    pub path: String,
}

/// The order to stop a task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StopInstruction {
    /// Why, for the task's flag file: `cancel|preempt|drain|infra|user|run_time|suspend`.
    pub reason: String,
    /// Milliseconds between asking and killing.
    pub grace_ms: u64,
}

/// Why an attempt is run (`MUSTER_RESTART_REASON`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum RestartReason {
    /// It is the first one.
    First,
    /// The one before was preempted.
    Preempt,
    /// Infrastructure failed the one before: never charged to the user.
    Infra,
    /// The one before ended badly by its own doing, or asked to be run again.
    User,
    /// An admin moved it.
    Admin,
}
