//! What a supervisor is told by the agent that starts it.

use std::io;
use std::path::PathBuf;

use muster_model::desired::TaskAssignment;
use muster_model::spec::Execution;
use serde::{Deserialize, Serialize};

use crate::account::Account;
use crate::cgroup::DeviceNumber;
use crate::container::whose;

/// Newest version of [`TaskSpec`] and of the messages between agent and supervisor: after an upgrade, a new agent
/// meets the supervisors of the old one, and perhaps their program.
pub const SPEC_FORMAT: u32 = 3;
/// The version before tasks could be run as another account than their agent's, or be refused: supervisors of that one must
/// not take such a task.
const EXECUTION_FORMAT: u32 = 2;
/// The version before tasks could be run otherwise than as plain processes.
const PLAIN_FORMAT: u32 = 1;

/// The oldest version whose supervisors run a task as it and its host say.
#[must_use]
pub fn format_of(assignment: &TaskAssignment, identity: &TaskIdentity) -> u32 {
    if *identity != TaskIdentity::default() {
        SPEC_FORMAT
    } else if assignment.execution == Execution::default() {
        PLAIN_FORMAT
    } else {
        EXECUTION_FORMAT
    }
}

/// Everything a supervisor needs to run one task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskSpec {
    /// Its version, see [`format_of`].
    pub format: u32,
    /// What the leader wants to run.
    pub assignment: TaskAssignment,
    /// When the lease ends, in milliseconds of `CLOCK_BOOTTIME`.
    pub deadline_boottime_ms: u64,
    /// Where its output goes.
    pub log_directory: PathBuf,
    /// How much of its output is kept.
    pub log_limits: LogLimits,
    /// `MUSTER_CKPT_DIR`.
    pub checkpoint_directory: PathBuf,
    /// Whether the agent has made that directory for this task, and sees to it when the task is gone.
    #[serde(default)]
    pub checkpoint_directory_is_new: bool,
    /// Milliseconds between two looks at that directory.
    pub checkpoint_scan_ms: u64,
    /// The task's only cgroup, where an agent wrote this that knew no more of them.
    #[serde(default)]
    pub cgroup: Option<PathBuf>,
    /// What holds the task to what it was given.
    #[serde(default)]
    pub confinement: Confinement,
    /// Where its secrets come from and go to.
    #[serde(default)]
    pub secrets: SecretFolders,
    /// Milliseconds before its lease's end at which the task is asked to stop; 0: it is not asked.
    #[serde(default)]
    pub lease_warning_ms: u64,
    /// What makes its container, if the host has an engine.
    #[serde(default)]
    pub engine: Option<EngineAccess>,
    /// Who it is to the host.
    #[serde(default)]
    pub identity: TaskIdentity,
}

/// Who a task is to its host.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TaskIdentity {
    /// The account that it runs as; its agent's if none.
    pub account: Option<Account>,
    /// Why it may not run here, in words for the user: nothing of it is started then.
    pub refusal: Option<String>,
    /// Whether its container may have another user, who may be the host's root.
    pub any_container_user: bool,
}

impl TaskIdentity {
    /// Does something with the rights over files that the task will have.
    ///
    /// # Errors
    /// That these cannot be had, and what `act` says.
    pub(crate) fn acting<T>(&self, act: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        match &self.account {
            Some(account) => account.acting(act),
            None => act(),
        }
    }
}

/// A container engine, and what a supervisor must know to use it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EngineAccess {
    /// Its socket.
    pub socket: PathBuf,
    /// The worker's id, by which its containers are known.
    pub worker: String,
    /// Whether the GPUs of the host are real: simulated ones are no devices.
    pub has_real_gpus: bool,
    /// The file with logins at registries, if the host has one: what it holds is read when it is needed, and goes to the
    /// engine alone.
    #[serde(default)]
    pub registry_auth_file: Option<PathBuf>,
}

impl TaskSpec {
    /// The directories of the task's cgroups; none if the host has none for us.
    #[must_use]
    pub fn cgroups(&self) -> Vec<PathBuf> {
        let only = self.cgroup.iter();
        only.chain(&self.confinement.cgroups).cloned().collect()
    }

    /// The account that its checkpoint folder belongs to; none if that is its agent, or who the job says that its container's
    /// user is.
    pub(crate) fn owner(&self) -> Option<&Account> {
        match &self.assignment.execution.container {
            Some(asked) => whose(asked, &self.identity).map(|(account, _)| account),
            None => self.identity.account.as_ref(),
        }
    }
}

/// What holds a task to what it was given, as its agent found out what the host can do.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Confinement {
    /// The directories of its cgroups, one a hierarchy.
    pub cgroups: Vec<PathBuf>,
    /// True: it is held to its CPUs also while others leave theirs idle.
    pub cpu_quota: bool,
    /// Devices that it may not open: the GPUs that are not its own.
    pub devices_denied: Vec<DeviceNumber>,
    /// The CPUs that it is bound to; any if none.
    pub cpus: Option<CpuPlace>,
    /// Where its attempt has shared memory of its own on this host; it uses the host's if none.
    pub shared_memory: Option<SharedMemoryPlace>,
}

/// Where an attempt has shared memory of its own on a host.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SharedMemoryPlace {
    /// The folder in memory that its tasks see as `/dev/shm`.
    pub folder: PathBuf,
    /// A folder directly in `/dev/shm` that they see all the same, at its path: their own directories lie below it.
    pub visible: Option<PathBuf>,
}

/// CPUs and the memory beside them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CpuPlace {
    /// The CPUs' numbers.
    pub cpus: Vec<u32>,
    /// Numbers of the memory nodes that are asked first; any if there are none.
    pub nodes: Vec<u32>,
}

/// Where a task's secrets come from and go to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SecretFolders {
    /// The host's folder of secrets, if it has one.
    pub source: Option<PathBuf>,
    /// The task's own folder, in memory; it exists while the task does.
    pub target: Option<PathBuf>,
}

/// How much of one log is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogLimits {
    /// Bytes of one segment.
    pub segment_bytes: u64,
    /// Segments kept, the newest ones.
    pub segments_max: usize,
    /// Present if output is shipped: segments beyond `segments_max` wait until they were ([`crate::Shipped`]), up to so many.
    #[serde(default)]
    pub unshipped_segments_max: Option<usize>,
}

impl Default for LogLimits {
    fn default() -> Self {
        Self {
            segment_bytes: crate::limits::LOG_SEGMENT_BYTES,
            segments_max: crate::limits::LOG_SEGMENTS_MAX,
            unshipped_segments_max: None,
        }
    }
}
