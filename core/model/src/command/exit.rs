//! How tasks end.

use serde::{Deserialize, Serialize};

/// The signal by which the kernel ends a process for want of memory.
const SIGKILL: i32 = 9;
/// Exit code by which a task says: checkpointed, run me again (not charged).
pub const EXIT_RUN_AGAIN: i32 = 75;
/// Exit code by which a task says: do not restart me.
pub const EXIT_DO_NOT_RESTART: i32 = 93;

/// How the start error of a task begins that may run as nobody on its host: the site gave its user no account there.
pub const NO_ACCOUNT: &str = "NO_ACCOUNT";

/// How the start error of a task begins that names what is not there: a program, a working directory or a secret. It is the
/// job's own fault as long as no others find the same on that host.
pub const NOT_THERE: &str = "NOT_THERE";

/// How a process ended.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exit {
    /// Exit code, if it ended by itself.
    pub code: Option<i32>,
    /// Signal number, if one ended it.
    pub signal: Option<i32>,
    /// True if the memory limit ended it.
    pub out_of_memory: bool,
    /// True if the supervisor killed it because its lease ran out.
    pub lease_expired: bool,
    /// Why it could not be started, if it could not.
    pub start_error: Option<String>,
    /// What its memory came to, where a limit was set. Since command format 4, as what follows.
    #[serde(default)]
    pub memory: Option<MemoryEnd>,
    /// Who sent the signal that ended it, or, where it ended badly by itself, one of its processes before; as far as its supervisor
    /// knows.
    #[serde(default)]
    pub sender: Option<SignalSender>,
    /// What it said about its end, for people: the telling line of its output; empty if nothing tells.
    #[serde(default)]
    pub evidence: String,
    /// What its worker knew of it last; none if that is nothing.
    #[serde(default)]
    pub last_seen: Option<Box<LastSeen>>,
}

impl Exit {
    /// Whether it says something that readers before command format 4 would overlook.
    #[must_use]
    pub fn has_details(&self) -> bool {
        let has_more = self.sender.is_some() || self.last_seen.is_some();
        self.memory.is_some() || has_more || !self.evidence.is_empty()
    }

    /// Whether it ended badly because the kernel killed it, or what it had started, when its host, and not it itself, was out
    /// of memory.
    #[must_use]
    pub fn was_for_hosts_memory(&self) -> bool {
        let is_bad = self.signal == Some(SIGKILL) || self.code.is_some_and(|code| code != 0);
        is_bad && self.sender == Some(SignalSender::Kernel) && !self.out_of_memory
    }

    /// Whether it could not be started because its user has no account on its host that tasks may run as.
    #[must_use]
    pub fn lacked_an_account(&self) -> bool {
        let error = self.start_error.as_deref();
        error.is_some_and(|error| error.starts_with(NO_ACCOUNT))
    }

    /// Whether it could not be started because a program, a working directory or a secret that its job names is not there.
    #[must_use]
    pub fn names_what_is_not_there(&self) -> bool {
        let error = self.start_error.as_deref();
        error.is_some_and(|error| error.starts_with(NOT_THERE))
    }

    /// The same end, as readers before command format 4 know it.
    #[must_use]
    pub fn without_details(self) -> Self {
        Self {
            memory: None,
            sender: None,
            evidence: String::new(),
            last_seen: None,
            ..self
        }
    }
}

/// What a task's memory came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryEnd {
    /// Its limit in bytes.
    pub limit_bytes: u64,
    /// The most it had, in bytes; 0 if nobody knows.
    pub peak_bytes: u64,
}

/// What a worker knew of a task when it ended: who stands out of a gang that hangs, and whose memory it lacked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LastSeen {
    /// How busy its GPUs were over the last minute that it ran, on average, per mille; none if that was not read.
    pub busy_permille: Option<u16>,
    /// MiB that were in use on its GPUs before it began, the most of any of them; none if nobody could say.
    pub held_before_mib: Option<u64>,
    /// The training step that it last said it was at; none if it never said.
    pub step: Option<u64>,
}

/// Who sent a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum SignalSender {
    /// The task's supervisor: it was asked to stop, or its lease ran out.
    Supervisor,
    /// The kernel, for want of memory.
    Kernel,
    /// Somebody else, itself included.
    Other,
}
