//! What the leader wants a host to run: a state, not a stream of edges.
//!
//! Losing or repeating one changes nothing; the worker compares it with what it has and acts on the
//! difference. A task that is absent must not run.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::ids::{
    AttemptEpoch, GpuUuid, HostId, JobId, LeadershipEpoch, Revision, TaskIndex, UnitIndex,
};
use crate::lifecycle::TaskPhase;
use crate::state::RestartReason;

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
}

/// A task on one host, whatever its attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct TaskKey {
    /// Whose.
    pub job: JobId,
    /// Which task.
    pub task: TaskIndex,
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
    /// Why, for the task's flag file: `cancel|preempt|drain|infra|user`.
    pub reason: String,
    /// Milliseconds between asking and killing.
    pub grace_ms: u64,
}
