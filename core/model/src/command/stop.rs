//! Why something is asked to stop.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::ids::{GpuUuid, HostId};

/// Why an attempt is ended early.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum StopReason {
    /// The job was cancelled.
    Cancelled,
    /// A task of the gang ended badly; the rest cannot go on.
    MemberFailed,
    /// A task of the gang was lost with its host.
    MemberLost,
    /// A host of the attempt cannot work. Since command format 4.
    HostFault {
        /// Which one.
        host: HostId,
    },
    /// A GPU of the attempt is unfit.
    GpuFault {
        /// Which one.
        gpu: GpuUuid,
    },
    /// Its host is drained.
    Drain {
        /// Which one.
        host: HostId,
    },
    /// A higher priority needs the resources.
    Preempted,
    /// It ran as long as its job allows.
    RunTime,
    /// Its members did not all start in time.
    Assembly,
    /// It is moved to make room for a gang that needs its resources in one piece.
    Moved,
    /// Its job is suspended and gives its resources back meanwhile. Since command format 4.
    Suspended,
    /// A member's place was not filled in time, or its successor did not start in time. Since command format 4.
    NotSwapped,
}

impl StopReason {
    /// What stands between the reason and what speaks for it: a person or a rule did the one thing, the other is explained.
    #[must_use]
    pub const fn joint(&self) -> &'static str {
        match self {
            Self::Cancelled | Self::Drain { .. } | Self::Suspended => " ",
            Self::MemberFailed
            | Self::MemberLost
            | Self::HostFault { .. }
            | Self::GpuFault { .. }
            | Self::Preempted
            | Self::RunTime
            | Self::Assembly
            | Self::Moved
            | Self::NotSwapped => ": ",
        }
    }
}

impl fmt::Display for StopReason {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cancelled => formatter.write_str("the job was cancelled"),
            Self::MemberFailed => formatter.write_str("a task of the gang failed"),
            Self::MemberLost => formatter.write_str("a task of the gang was lost"),
            Self::HostFault { host } => write!(formatter, "host {host} cannot work"),
            Self::GpuFault { gpu } => write!(formatter, "{gpu} is unfit"),
            Self::Drain { host } => write!(formatter, "host {host} is drained"),
            Self::Preempted => formatter.write_str("a higher priority needs the resources"),
            Self::RunTime => formatter.write_str("it ran as long as its job allows"),
            Self::Assembly => formatter.write_str("its members did not all start in time"),
            Self::Moved => formatter.write_str("it is moved to make room in one piece"),
            Self::Suspended => formatter.write_str("the job was suspended"),
            Self::NotSwapped => formatter.write_str("a member's place was not filled in time"),
        }
    }
}

/// Why something is asked to stop, and what speaks for it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StopCause {
    /// Why.
    pub reason: StopReason,
    /// Who wanted it, for whom, or what was seen: one line for people, at most `STOP_DETAIL_BYTES_MAX`. Empty if nothing speaks for
    /// it, and before all replicas are of command format 4.
    pub detail: String,
}

impl StopCause {
    /// A reason with what speaks for it.
    #[must_use]
    pub const fn new(reason: StopReason, detail: String) -> Self {
        Self { reason, detail }
    }
}

impl fmt::Display for StopCause {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { reason, detail } = self;
        if detail.is_empty() {
            return reason.fmt(formatter);
        }
        write!(formatter, "{reason}{}{detail}", reason.joint())
    }
}
