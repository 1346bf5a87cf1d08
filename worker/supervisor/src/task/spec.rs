//! Task specification that an agent passes to a supervisor.

use std::io;
use std::path::PathBuf;

use muster_model::desired::TaskAssignment;
use muster_model::spec::Execution;
use serde::{Deserialize, Serialize};

use crate::container::whose;
use crate::isolation::account::Account;
use crate::isolation::cgroup::DeviceNumber;

/// Newest version of [`TaskSpec`] and of the messages between agent and supervisor: after an upgrade, a new
/// agent meets the supervisors of the old one, and perhaps their program.
pub const SPEC_FORMAT: u32 = 3;
/// The version before tasks could run as another account than their agent's, or be refused: supervisors of
/// this version must not get such a task.
const EXECUTION_FORMAT: u32 = 2;
/// The version before tasks could run as anything but plain processes.
const PLAIN_FORMAT: u32 = 1;

/// The oldest version whose supervisors honor everything in a specification.
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
    /// Format version, see [`format_of`].
    pub format: u32,
    /// Assignment from the leader.
    pub assignment: TaskAssignment,
    /// Lease deadline, in milliseconds of `CLOCK_BOOTTIME`.
    pub deadline_boottime_ms: u64,
    /// Directory of its output.
    pub log_directory: PathBuf,
    /// How much of its output is kept.
    pub log_limits: LogLimits,
    /// `MUSTER_CKPT_DIR`.
    pub checkpoint_directory: PathBuf,
    /// Whether the agent created that directory for this task, and handles it when the task is gone.
    #[serde(default)]
    pub checkpoint_directory_is_new: bool,
    /// Milliseconds between two scans of that directory.
    pub checkpoint_scan_ms: u64,
    /// The task's only cgroup, from an agent that supported only one.
    #[serde(default)]
    pub cgroup: Option<PathBuf>,
    /// Resource confinement.
    #[serde(default)]
    pub confinement: Confinement,
    /// Source and target of its secrets.
    #[serde(default)]
    pub secrets: SecretFolders,
    /// Milliseconds before its lease's end at which the task is asked to stop; 0 if it is not asked.
    #[serde(default)]
    pub lease_warning_ms: u64,
    /// Access to the container engine, if the host has one.
    #[serde(default)]
    pub engine: Option<EngineAccess>,
    /// User identity on the host.
    #[serde(default)]
    pub identity: TaskIdentity,
}

/// Identity of a task on its host.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TaskIdentity {
    /// The account that it runs as; the agent's user if `None`.
    pub account: Option<Account>,
    /// Reason, as a message for the user, if it may not run here: nothing of it is started then.
    pub refusal: Option<String>,
    /// Whether its container may have any user, including the host's root.
    pub any_container_user: bool,
}

impl TaskIdentity {
    /// Runs `act` with the file access rights that the task will have.
    ///
    /// # Errors
    /// The rights cannot be borrowed, or the error of `act`.
    pub(crate) fn acting<T>(&self, act: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        match &self.account {
            Some(account) => account.acting(act),
            None => act(),
        }
    }
}

/// A container engine and the settings for its use.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EngineAccess {
    /// Path of its socket.
    pub socket: PathBuf,
    /// The worker's id, which labels its containers.
    pub worker: String,
    /// Whether the GPUs of the host are real: simulated ones are not devices.
    pub has_real_gpus: bool,
    /// File with registry logins, if the host has one: it is read on demand, and its contents go to the
    /// engine alone.
    #[serde(default)]
    pub registry_auth_file: Option<PathBuf>,
}

impl TaskSpec {
    /// Directories of the task's cgroups; empty if the host has no usable ones.
    #[must_use]
    pub fn cgroups(&self) -> Vec<PathBuf> {
        let only = self.cgroup.iter();
        only.chain(&self.confinement.cgroups).cloned().collect()
    }

    /// The account that owns its checkpoint folder; `None` if that is the agent's user, or the user that the
    /// job specifies for its container.
    pub(crate) fn owner(&self) -> Option<&Account> {
        match &self.assignment.execution.container {
            Some(asked) => whose(asked, &self.identity).map(|(account, _)| account),
            None => self.identity.account.as_ref(),
        }
    }
}

/// Confinement of a task, according to what the agent found the host to support.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Confinement {
    /// Directories of its cgroups, one per hierarchy.
    pub cgroups: Vec<PathBuf>,
    /// Whether its CPUs are also an upper bound while others leave theirs idle.
    pub cpu_quota: bool,
    /// Devices that it may not open: GPUs that are not its own.
    pub devices_denied: Vec<DeviceNumber>,
    /// CPUs that it is bound to; any if `None`.
    pub cpus: Option<AssignedCpus>,
    /// Its attempt's private shared memory on this host; it uses the host's if `None`.
    pub shared_memory: Option<SharedMemoryLocation>,
}

/// Location of an attempt's private shared memory on a host.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SharedMemoryLocation {
    /// The folder in memory that its tasks see as `/dev/shm`.
    pub folder: PathBuf,
    /// A folder directly in `/dev/shm` that stays visible at its path: the tasks' own directories are below
    /// it.
    pub visible: Option<PathBuf>,
}

/// CPUs and the memory nodes next to them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AssignedCpus {
    /// CPU numbers.
    pub cpus: Vec<u32>,
    /// Preferred memory nodes; no preference if empty.
    pub nodes: Vec<u32>,
}

/// Source and target of a task's secrets.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SecretFolders {
    /// The host's folder of secrets, if it has one.
    pub source: Option<PathBuf>,
    /// The task's own folder, in memory; it exists while the task does.
    pub target: Option<PathBuf>,
}

/// Limits of one log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogLimits {
    /// Bytes of one segment.
    pub segment_bytes: u64,
    /// Number of newest segments that are kept.
    pub segments_max: usize,
    /// Present if output is shipped: up to this number, segments beyond `segments_max` are kept until they
    /// were shipped ([`crate::Shipped`]).
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
