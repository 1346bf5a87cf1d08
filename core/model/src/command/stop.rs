//! Reasons for stopping attempts.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::ids::{GpuUuid, HostId};

/// Reason for stopping an attempt early.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum StopReason {
    /// The job was cancelled.
    Cancelled,
    /// A task of the gang failed; the rest cannot continue.
    MemberFailed,
    /// A task of the gang was lost with its host.
    MemberLost,
    /// A host of the attempt cannot work.
    HostFault {
        /// The host.
        host: HostId,
    },
    /// A GPU of the attempt is unusable.
    GpuFault {
        /// The GPU.
        gpu: GpuUuid,
    },
    /// Its host is being drained.
    Drain {
        /// The host.
        host: HostId,
    },
    /// Work of higher priority needs the resources.
    Preempted,
    /// Its time limit is reached.
    TimeLimit,
    /// Its members did not all start in time.
    AssemblyTimeout,
    /// It is moved to make contiguous room for a gang.
    Defragmented,
    /// Its job is suspended and releases its resources meanwhile.
    Suspended,
    /// A vacancy was not filled in time, or the replacement did not start in time.
    NotSwapped,
}

impl StopReason {
    /// Separator between the reason and its detail: a space after the act of a user or a rule, a colon before
    /// an explanation.
    #[must_use]
    pub const fn separator(&self) -> &'static str {
        match self {
            Self::Cancelled | Self::Drain { .. } | Self::Suspended => " ",
            Self::MemberFailed
            | Self::MemberLost
            | Self::HostFault { .. }
            | Self::GpuFault { .. }
            | Self::Preempted
            | Self::TimeLimit
            | Self::AssemblyTimeout
            | Self::Defragmented
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
            Self::TimeLimit => formatter.write_str("time limit reached"),
            Self::AssemblyTimeout => formatter.write_str("its members did not all start in time"),
            Self::Defragmented => formatter.write_str("moved to make contiguous room"),
            Self::Suspended => formatter.write_str("the job was suspended"),
            Self::NotSwapped => formatter.write_str("a vacancy was not filled in time"),
        }
    }
}

/// Reason for a stop, with details.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StopCause {
    /// The reason.
    pub reason: StopReason,
    /// Who requested it, for whom, or what was observed: one line for users, at most `STOP_DETAIL_BYTES_MAX`.
    /// Empty without details.
    pub detail: String,
}

impl StopCause {
    /// Combines a reason with its details.
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
        write!(formatter, "{reason}{}{detail}", reason.separator())
    }
}
