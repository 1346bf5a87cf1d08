//! Protocol between agent and supervisor: one JSON value per line.
//! Like everything in Muster it is level-triggered: after every connection the supervisor sends its complete
//! state, and receiving a message twice changes nothing.

use std::path::PathBuf;

use muster_model::command::Exit;
use muster_model::desired::Rendezvous;
use muster_model::heartbeat::{CheckpointReport, DamageReport};
use serde::{Deserialize, Serialize};

/// Message from the agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AgentRequest {
    /// Extends the lease; a deadline earlier than the current one is ignored.
    Extend {
        /// New deadline, in milliseconds of `CLOCK_BOOTTIME`.
        deadline_boottime_ms: u64,
    },
    /// Asks the task to stop and kills it when the grace is over. A second request can only shorten the
    /// grace.
    Stop {
        /// Reason, for the flag file.
        reason: String,
        /// Milliseconds between request and kill; 0 kills at once.
        grace_ms: u64,
    },
    /// Releases the gang of a prepared task: the task begins. No effect if it has begun.
    Begin {
        /// Rendezvous port of the gang (`MASTER_PORT`).
        master_port: u16,
    },
    /// Moves the gang's rendezvous because a member was replaced: the host file is rewritten, and subscribed
    /// connections are notified. No effect if it is known.
    Renew(Rendezvous),
    /// Pauses the task's processes. A stop request resumes them.
    Suspend,
    /// Resumes them.
    Resume,
    /// Requests [`SupervisorMessage::Status`].
    Status,
    /// Announces exec sessions: the supervisor opens its socket for them.
    OpenExec,
    /// Assigns another task to a supervisor that sent [`SupervisorMessage::Idle`] on this connection.
    Next {
        /// The task's directory.
        directory: PathBuf,
    },
}

/// Message from the supervisor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SupervisorMessage {
    /// The task has everything that it needs, and waits for [`AgentRequest::Begin`].
    Prepared {
        /// Reserved rendezvous port of the gang, if the task is rank 0.
        master_port: Option<u16>,
    },
    /// The task's process runs.
    Started {
        /// Process id.
        pid: i32,
    },
    /// The task committed a checkpoint.
    Checkpoint(CheckpointReport),
    /// The task could not read a checkpoint of an earlier attempt.
    Damaged(DamageReport),
    /// The task made progress; not every step is reported.
    Progress {
        /// Training step.
        step: u64,
    },
    /// The task was killed long ago, and a process of it is still alive, stuck in the kernel. It will never
    /// execute another instruction of its program; its resources stay occupied until [`Self::Exited`].
    Stuck(UnkillableTask),
    /// The task ended, and no process of it is alive; the same record is on disk.
    Exited(Exit),
    /// Follows [`Self::Exited`] in the same write: the supervisor waits on this connection for
    /// [`AgentRequest::Next`], and exits when the agent hangs up. Supervisors of earlier builds exit by
    /// themselves.
    Idle {
        /// Whether it keeps the task's cgroups and removes them later.
        keeps_cgroups: bool,
    },
    /// Answers [`AgentRequest::Status`].
    Status {
        /// Lease deadline, in milliseconds of `CLOCK_BOOTTIME`.
        deadline_boottime_ms: u64,
        /// True once the task was asked to stop.
        stopping: bool,
        /// True while the task is paused.
        #[serde(default)]
        suspended: bool,
    },
}

/// A task that cannot be killed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnkillableTask {
    /// The live processes and where they are stuck, for display.
    pub detail: String,
    /// Exit of its main process, if that ended.
    pub exit: Option<Exit>,
}

/// Message from a task on its control socket.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "op", deny_unknown_fields)]
pub enum ControlRequest {
    /// A checkpoint is about to be written.
    Begin {
        /// Training step.
        step: u64,
        /// Its future path.
        #[serde(default)]
        path: String,
        /// `MUSTER_EPOCH`, if the task wants it checked.
        #[serde(default)]
        epoch: Option<u64>,
    },
    /// A checkpoint is complete and durable.
    Commit {
        /// Training step, greater than that of the last commit.
        step: u64,
        /// Absolute path.
        path: String,
        /// Size in bytes, if known.
        #[serde(default)]
        size_bytes: u64,
        /// `algorithm:hex`, if known.
        #[serde(default)]
        digest: String,
        /// `MUSTER_EPOCH`, if the task wants it checked.
        #[serde(default)]
        epoch: Option<u64>,
        /// Whether it is the last one before the task stops. True also ends the grace of a stop request that
        /// is yet to come; false means that more follow. Absent: it ends the grace if the task was asked to
        /// stop.
        #[serde(default)]
        last: Option<bool>,
    },
    /// The task made progress.
    Progress {
        /// Training step.
        step: u64,
        /// `MUSTER_EPOCH`, if the task wants it checked.
        #[serde(default)]
        epoch: Option<u64>,
    },
    /// A checkpoint of an earlier attempt cannot be read: no later attempt is to be given it.
    Invalidate {
        /// Its training step.
        step: u64,
        /// What is wrong with it, for display.
        reason: String,
        /// `MUSTER_EPOCH`, if the task wants it checked.
        #[serde(default)]
        epoch: Option<u64>,
    },
    /// Subscribes the connection to a [`ControlNotice`] when the task is asked to stop.
    Watch {
        /// Whether it also subscribes to changes of its gang's rendezvous.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        gang: bool,
    },
}

/// Notification to a subscribed connection; sent at once if the event happened before.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ControlNotice {
    /// The task is asked to stop: the same as in the flag file.
    Stop(PreemptFlag),
    /// The gang's rendezvous moved because a member was replaced. The last notification counts.
    Gang(GangNotice),
}

/// Rendezvous of a gang. Its hosts are in the host file, which was rewritten before.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GangNotice {
    /// New value of `MASTER_ADDR`.
    pub master_addr: String,
    /// New value of `MASTER_PORT`.
    pub master_port: u16,
}

impl From<&Rendezvous> for GangNotice {
    fn from(place: &Rendezvous) -> Self {
        Self {
            master_addr: place.master_address.clone(),
            master_port: place.master_port,
        }
    }
}

/// The answer to every line on a control socket.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ControlAnswer {
    /// Whether the request succeeded.
    pub ok: bool,
    /// Reason of a failure.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub error: Option<String>,
    /// For a commit: advised seconds until the next save; `None` while the time of a save is unknown.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub interval_s: Option<u64>,
}

impl ControlAnswer {
    /// A successful answer.
    #[must_use]
    pub const fn done() -> Self {
        Self {
            ok: true,
            error: None,
            interval_s: None,
        }
    }

    /// A failed answer.
    #[must_use]
    pub fn refused(error: impl Into<String>) -> Self {
        Self {
            ok: false,
            error: Some(error.into()),
            interval_s: None,
        }
    }
}

/// The flag file `$MUSTER_CTL_DIR/preempt`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PreemptFlag {
    /// Reason: `cancel|preempt|drain|infra|user|run_time`, or `lease` if the host lost contact and the task's
    /// lease ends.
    pub reason: String,
    /// Time of the kill, in milliseconds since the Unix epoch by the host's wall clock.
    pub deadline_unix_ms: u64,
    /// Milliseconds between the stop request and the kill.
    pub grace_ms: u64,
}
