//! Desired state of a host: everything that the leader wants its worker to run.
//!
//! A state, not a stream of changes: losing or repeating one has no effect. A task that is absent must not
//! run.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::health::{Component, Order};
use crate::ids::{AttemptEpoch, GpuUuid, HostId, LeadershipEpoch, Revision, TaskKey, UnitIndex};
use crate::lifecycle::TaskPhase;
use crate::spec::{Execution, StopWarning};

/// Lowest port that rank 0 may be assigned to listen on (`MASTER_PORT`).
pub const MASTER_PORT_MIN: u16 = 20_000;

/// Number of those ports; all are below 32,768, where Linux starts its ephemeral ports.
pub const MASTER_PORTS: u16 = 10_000;

/// Desired state of one host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DesiredState {
    /// Fencing token: the worker rejects one older than the newest it has seen.
    pub leader: LeadershipEpoch,
    /// Revision of the replicated state that it was derived from; within one leadership an older one is
    /// ignored.
    pub revision: Revision,
    /// The host that it addresses.
    pub host: HostId,
    /// Its tasks, ordered by job and task.
    pub tasks: Vec<TaskAssignment>,
    /// Repairs, checks and acknowledged findings.
    #[serde(default)]
    pub health: HealthDuties,
}

/// Health duties sent to a worker.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HealthDuties {
    /// Newest acknowledged finding: the worker need not repeat it or earlier ones.
    pub acknowledged: u64,
    /// Revision that set the rules in force; 0 for the rules shipped with Muster.
    pub rules: Revision,
    /// Fingerprint of the rule file ([`RuleSet::fingerprint`](muster_health::rules::RuleSet::fingerprint)): a worker
    /// that has the file does not fetch it. 0 for the rules shipped with Muster, and from leaders that do not
    /// send it.
    #[serde(default)]
    pub rules_fingerprint: u64,
    /// Repairs and checks that the worker must carry out.
    pub orders: Vec<Order>,
    /// Findings that count against the host, for comparison with the worker's own.
    #[serde(default)]
    pub counted: CountedFindings,
}

/// Findings that the replicated state counts against a host. They differ from those of its worker if the
/// state was recovered from a backup, or if the worker lost its notes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CountedFindings {
    /// First revision after the last recovery of the cluster from a backup; 0 if there was none.
    pub recovered_at: Revision,
    /// The findings that a reading of the worker may end, ascending.
    pub findings: Vec<FindingKey>,
}

/// Identity of a finding: a later one of the same rule and component replaces it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct FindingKey {
    /// Id of the rule.
    pub rule: String,
    /// The component.
    pub component: Component,
}

/// Assignment of one task to a worker, with everything needed to run it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskAssignment {
    /// Job and task.
    pub key: TaskKey,
    /// The unit the task belongs to.
    pub unit: UnitIndex,
    /// Epoch of the attempt: never started twice, never after a newer one.
    pub epoch: AttemptEpoch,
    /// Number of the unit's attempt, counted from 1 (`MUSTER_ATTEMPT`).
    pub attempt: u32,
    /// Reason for this attempt (`MUSTER_RESTART_REASON`).
    pub restart_reason: RestartReason,
    /// Phase in the replicated state; a terminal one acknowledges the worker's report.
    pub acknowledged: TaskPhase,
    /// Program and arguments.
    pub command: Vec<String>,
    /// The user's environment variables.
    pub environment: BTreeMap<String, String>,
    /// Absolute path; the task's own scratch directory if `None`.
    pub working_directory: Option<String>,
    /// GPUs that it may use.
    pub gpus: Vec<GpuUuid>,
    /// Allocated thousandths of a CPU.
    pub cpus_milli: u32,
    /// Allocated memory in MiB.
    pub memory_mib: u64,
    /// Execution settings, besides the command.
    #[serde(default)]
    pub execution: Execution,
    /// Position in its gang.
    pub rank: RankInfo,
    /// Newest committed checkpoint of the unit.
    pub checkpoint: Option<CheckpointRef>,
    /// Milliseconds between the request to stop and the kill.
    pub stop_grace_ms: u64,
    /// Milliseconds that it may run without contact to any leader.
    pub partition_grace_ms: u64,
    /// Set if it must stop.
    pub stop: Option<StopInstruction>,
    /// Whether it waits, prepared, until its gang is released. Agents that do not know this field start it
    /// immediately.
    #[serde(default)]
    pub barrier: bool,
    /// Whether its gang is released: all members are prepared, and `rank` is final.
    #[serde(default)]
    pub released: bool,
    /// The gang's hosts in the order of `node_rank`, for a launcher; sent to rank 0 of a gang only.
    #[serde(default)]
    pub gang_hosts: Vec<GangHost>,
    /// Whether its processes are paused. A task that is asked to stop is resumed, so that it can.
    #[serde(default)]
    pub suspended: bool,
    /// A signal chosen by the job, sent before termination.
    #[serde(default)]
    pub warning: Option<StopWarning>,
    /// Duties about the unit's checkpoints.
    #[serde(default)]
    pub checkpoint_duties: CheckpointDuties,
    /// User who owns the job, as authenticated or, in an open cluster, as claimed. Empty from leaders that do
    /// not send it.
    #[serde(default)]
    pub user: String,
}

impl TaskAssignment {
    /// Rendezvous of its gang.
    #[must_use]
    pub fn rendezvous(&self) -> Rendezvous {
        Rendezvous {
            master_address: self.rank.master_address.clone(),
            master_port: self.rank.master_port,
            hosts: self.gang_hosts.clone(),
        }
    }

    /// Whether its gang has this rendezvous.
    #[must_use]
    pub fn has_rendezvous(&self, place: &Rendezvous) -> bool {
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

/// Duties about a unit's checkpoints.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckpointDuties {
    /// Checkpoints whose directories must be removed; sent to the unit's first task only.
    pub removals: Vec<CheckpointRef>,
    /// Paths of checkpoints that are kept; empty if nothing is to be removed.
    pub kept: Vec<String>,
    /// Recommended interval between saves in milliseconds (`MUSTER_CKPT_INTERVAL_ADVICE`); `None` while the
    /// duration of a save is unknown.
    pub interval_ms: Option<u64>,
    /// Mean time in milliseconds between failures of an attempt on this number of hosts, from which its
    /// supervisor derives the recommendation with its own measurements of saves; `None` from a leader that
    /// does not send it.
    #[serde(default)]
    pub mean_time_ms: Option<u64>,
}

/// A host of a gang, in the form that launchers need.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GangHost {
    /// Address of the host.
    pub address: String,
    /// Number of the gang's tasks on it.
    pub slots: u32,
}

/// Rendezvous of a gang and locations of its members: what changes for running members when another one is
/// swapped.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rendezvous {
    /// Address of rank 0's host (`MASTER_ADDR`).
    pub master_address: String,
    /// Port that rank 0 listens on (`MASTER_PORT`).
    pub master_port: u16,
    /// The gang's hosts in the order of `node_rank`; sent to rank 0 only.
    #[serde(default)]
    pub hosts: Vec<GangHost>,
}

/// Rank information for distributed frameworks.
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
    /// Whether a new rank 0 has not yet reported its port: address and port do not match then, and neither is
    /// sent to running members.
    #[serde(default)]
    pub awaits_port: bool,
}

/// A committed checkpoint, in the form passed to a task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckpointRef {
    /// Training step (`MUSTER_CKPT_STEP`).
    pub step: u64,
    /// Absolute path (`MUSTER_CKPT_LATEST`).
    pub path: String,
}

/// A request to stop a task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StopInstruction {
    /// Reason for the task's flag file: `cancel|preempt|drain|infra|user|run_time|suspend`.
    pub reason: String,
    /// Milliseconds between the request and the kill.
    pub grace_ms: u64,
}

/// Reason for an attempt (`MUSTER_RESTART_REASON`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum RestartReason {
    /// The first attempt.
    First,
    /// The previous attempt was preempted.
    Preempt,
    /// The previous attempt failed because of the infrastructure: never charged to the user.
    Infra,
    /// The previous attempt failed on its own, or requested a restart.
    User,
    /// An admin moved it.
    Admin,
}
