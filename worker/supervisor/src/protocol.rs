//! What an agent and a supervisor say to each other: one JSON value a line.
//!
//! Like everything in Muster it is level-triggered: after every connection the supervisor says all it
//! knows, and hearing a thing twice changes nothing.

use std::path::PathBuf;

use muster_model::beat::{CheckpointReport, SpoilReport};
use muster_model::command::Exit;
use muster_model::desired::Rendezvous;
use serde::{Deserialize, Serialize};

/// From the agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AgentRequest {
    /// Pushes the lease's end out; an earlier one than the present is ignored.
    Extend {
        /// The new end, in milliseconds of `CLOCK_BOOTTIME`.
        deadline_boottime_ms: u64,
    },
    /// Asks the task to stop and kills it when the grace is over. A second one can only shorten the grace.
    Stop {
        /// Why, for the flag file.
        reason: String,
        /// Milliseconds between asking and killing; 0 kills at once.
        grace_ms: u64,
    },
    /// The gang of a prepared task is released: the task begins. Nothing new if it has begun.
    Begin {
        /// The port that the gang meets on (`MASTER_PORT`).
        master_port: u16,
    },
    /// The task's gang meets elsewhere, because a member of it was swapped: its host file is replaced, and the connections
    /// that asked for it hear of it. Nothing new if that is known.
    Renew(Rendezvous),
    /// Lets the task's processes stand still where they are. An order to stop lets them go on.
    Suspend,
    /// Lets them go on.
    Resume,
    /// Asks for [`SupervisorMessage::Status`].
    Status,
    /// Announces requests for commands beside the task: the supervisor opens its socket for them.
    OpenExec,
    /// Gives another task to a supervisor that said [`SupervisorMessage::Idle`] on this connection.
    Next {
        /// The task's directory.
        directory: PathBuf,
    },
}

/// From the supervisor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SupervisorMessage {
    /// The task has all that it needs, and waits for [`AgentRequest::Begin`].
    Prepared {
        /// The port that is kept free for the gang to meet on, if the task is rank 0.
        master_port: Option<u16>,
    },
    /// The task's process runs.
    Started {
        /// Its number.
        pid: i32,
    },
    /// The task committed a checkpoint.
    Checkpoint(CheckpointReport),
    /// The task could not read a checkpoint of an earlier attempt.
    Spoiled(SpoilReport),
    /// The task got somewhere; not every step is told.
    Progress {
        /// Training step.
        step: u64,
    },
    /// The task was killed long ago, and something of it lives: it hangs in the kernel. It will never run a line of its program
    /// again; what it holds stays held until [`Self::Exited`].
    Stuck(Stuck),
    /// The task ended, and nothing of it lives; the same lies on disk.
    Exited(Exit),
    /// Follows [`Self::Exited`] in the same write: the supervisor waits on this connection for [`AgentRequest::Next`], and
    /// ends when the agent hangs up. Those of earlier builds end by themselves.
    Idle {
        /// Whether it keeps the task's cgroups, and sees to their removal.
        keeps_cgroups: bool,
    },
    /// Answers [`AgentRequest::Status`].
    Status {
        /// When the lease ends, in milliseconds of `CLOCK_BOOTTIME`.
        deadline_boottime_ms: u64,
        /// True once it was asked to stop.
        stopping: bool,
        /// True while it stands still.
        #[serde(default)]
        suspended: bool,
    },
}

/// A task that cannot be killed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stuck {
    /// Who lives and where it hangs, for people.
    pub detail: String,
    /// How its main process ended, if that did.
    pub exit: Option<Exit>,
}

/// From a task, on its control socket.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "op", deny_unknown_fields)]
pub enum ControlRequest {
    /// A checkpoint is about to be written.
    Begin {
        /// Training step.
        step: u64,
        /// Where it will lie.
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
        /// Bytes, if known.
        #[serde(default)]
        size_bytes: u64,
        /// `algorithm:hex`, if known.
        #[serde(default)]
        digest: String,
        /// `MUSTER_EPOCH`, if the task wants it checked.
        #[serde(default)]
        epoch: Option<u64>,
        /// Whether it is the last one before the task stops. True also ends the wait of an order to stop that is yet to
        /// come; false says that more follow. Absent: it ends the wait if the task was asked to stop.
        #[serde(default)]
        last: Option<bool>,
    },
    /// The task got somewhere.
    Progress {
        /// Training step.
        step: u64,
        /// `MUSTER_EPOCH`, if the task wants it checked.
        #[serde(default)]
        epoch: Option<u64>,
    },
    /// A checkpoint of an earlier attempt cannot be read: no later attempt is to be told of it.
    Spoil {
        /// Its training step.
        step: u64,
        /// What is wrong with it, for people.
        reason: String,
        /// `MUSTER_EPOCH`, if the task wants it checked.
        #[serde(default)]
        epoch: Option<u64>,
    },
    /// The connection wants a [`ControlNotice`] when the task is asked to stop.
    Watch {
        /// Whether it also wants one when its gang meets elsewhere than the task's environment says.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        gang: bool,
    },
}

/// What a connection that watches hears; at once if it happened before.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ControlNotice {
    /// The task is asked to stop: the same as in the flag file.
    Stop(PreemptFlag),
    /// The task's gang meets elsewhere, because a member of it was swapped. The last one counts.
    Gang(GangNotice),
}

/// Where a gang meets. Its hosts are in the host file, which was replaced before.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GangNotice {
    /// What `MASTER_ADDR` would say.
    pub master_addr: String,
    /// What `MASTER_PORT` would say.
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
    /// Whether it was done.
    pub ok: bool,
    /// Why not.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub error: Option<String>,
    /// Of a commit: seconds after which the task had better save again; none while nobody knows how long a save takes.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub interval_s: Option<u64>,
}

impl ControlAnswer {
    /// Done.
    #[must_use]
    pub const fn done() -> Self {
        Self {
            ok: true,
            error: None,
            interval_s: None,
        }
    }

    /// Not done.
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
    /// Why: `cancel|preempt|drain|infra|user|run_time`, or `lease` if the host lost contact and the task's lease ends.
    pub reason: String,
    /// When the task is killed, in milliseconds since the Unix epoch by the host's wall clock.
    pub deadline_unix_ms: u64,
    /// Milliseconds between being asked and being killed.
    pub grace_ms: u64,
}
