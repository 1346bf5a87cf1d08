//! Exits of tasks.

use serde::{Deserialize, Serialize};

/// The signal by which the kernel kills a process for lack of memory.
const SIGKILL: i32 = 9;
/// Exit code by which a task requests a restart after it saved a checkpoint (not charged).
pub const EXIT_RUN_AGAIN: i32 = 75;
/// Exit code by which a task requests not to be restarted.
pub const EXIT_DO_NOT_RESTART: i32 = 93;

/// Prefix of the start error of a task whose user has no account on its host that tasks may run as.
pub const NO_ACCOUNT: &str = "NO_ACCOUNT";

/// Prefix of the start error of a task that names a missing program, working directory or secret. The job is
/// at fault unless other jobs see the same error on that host.
pub const MISSING_FILE: &str = "MISSING_FILE";

/// Exit of a process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exit {
    /// Exit code, if the process exited.
    pub code: Option<i32>,
    /// Signal number, if a signal killed it.
    pub signal: Option<i32>,
    /// True if it was killed at its memory limit.
    pub out_of_memory: bool,
    /// True if the supervisor killed it because its lease expired.
    pub lease_expired: bool,
    /// Error that prevented its start, if any.
    pub start_error: Option<String>,
    /// Memory use, where a limit was set.
    #[serde(default)]
    pub memory: Option<MemoryUsage>,
    /// Sender of the signal that killed it, or, where it failed on its own, of the signal that killed one of
    /// its processes before; as far as its supervisor knows.
    #[serde(default)]
    pub sender: Option<SignalSender>,
    /// Output line that explains the end, for users; empty if there is none.
    #[serde(default)]
    pub evidence: String,
    /// Last measurements of its worker; `None` if there are none.
    #[serde(default)]
    pub last_measurements: Option<Box<LastMeasurements>>,
}

impl Exit {
    /// Whether it failed because the kernel killed it or one of its children while the host, not the task
    /// itself, was out of memory.
    #[must_use]
    pub fn was_host_out_of_memory(&self) -> bool {
        let is_bad = self.signal == Some(SIGKILL) || self.code.is_some_and(|code| code != 0);
        is_bad && self.sender == Some(SignalSender::Kernel) && !self.out_of_memory
    }

    /// Whether it could not start because its user has no account on the host that tasks may run as.
    #[must_use]
    pub fn is_missing_account(&self) -> bool {
        let error = self.start_error.as_deref();
        error.is_some_and(|error| error.starts_with(NO_ACCOUNT))
    }

    /// Whether it could not start because a program, a working directory or a secret named by its job is
    /// missing.
    #[must_use]
    pub fn is_missing_file(&self) -> bool {
        let error = self.start_error.as_deref();
        error.is_some_and(|error| error.starts_with(MISSING_FILE))
    }
}

/// Memory use of an ended task.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryUsage {
    /// Its limit in bytes.
    pub limit_bytes: u64,
    /// Peak use in bytes; 0 if unknown.
    pub peak_bytes: u64,
}

/// Last measurements of a task before its end: they identify the outlier of a hanging gang, and the process
/// that used the memory a task lacked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LastMeasurements {
    /// Mean utilization of its GPUs over its last minute, per mille; `None` if not measured.
    pub busy_permille: Option<u16>,
    /// MiB in use on its GPUs before its start, the maximum over the GPUs; `None` if not measured.
    pub leftover_mib: Option<u64>,
    /// Last training step it reported; `None` if it reported none.
    pub step: Option<u64>,
}

/// Sender of a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum SignalSender {
    /// The task's supervisor: it was asked to stop, or its lease expired.
    Supervisor,
    /// The kernel, for lack of memory.
    Kernel,
    /// Any other process, itself included.
    Other,
}
