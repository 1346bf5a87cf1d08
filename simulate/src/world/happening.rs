//! Future events of a simulation.

use muster_model::ids::AttemptEpoch;

/// An event at some instant. At the same instant, ends come first and failures before returns, so nothing
/// is placed on a host that fails at that instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Event {
    /// An attempt has completed its job's work; ignored if it is no longer the current one.
    WorkDone {
        /// Index of the job in the scenario.
        job: usize,
        /// The attempt.
        epoch: AttemptEpoch,
    },
    /// An attempt commits a checkpoint; ignored if it is no longer the current one.
    Checkpoint {
        /// Index of the job in the scenario.
        job: usize,
        /// The attempt.
        epoch: AttemptEpoch,
    },
    /// A part becomes faulty.
    FaultBegins {
        /// Index of the fault in the scenario.
        fault: usize,
    },
    /// A part is repaired.
    FaultEnds {
        /// Index of the fault in the scenario.
        fault: usize,
    },
    /// A worker detects a faulty part.
    FaultDetected {
        /// Index of the fault in the scenario.
        fault: usize,
    },
    /// A task dies of a fault; ignored if it no longer runs, or the fault is over.
    TaskDies {
        /// Index of the job in the scenario.
        job: usize,
        /// The attempt.
        epoch: AttemptEpoch,
        /// Index of the fault in the scenario.
        fault: usize,
    },
    /// A worker has completed a repair or a check.
    WorkEnds {
        /// Index among all ordered repairs and checks.
        work: usize,
    },
    /// Health actions of the leader are due.
    HealthTick,
    /// The leader runs lemon detection.
    LemonDetection,
    /// An operator reviews components that require one.
    OperatorReview,
    /// A GPU becomes faulty.
    GpuLost {
        /// Index of the host in the cluster.
        host: usize,
        /// The GPU's index on it.
        gpu: u32,
    },
    /// A host is lost.
    HostLost {
        /// Index of the host in the cluster.
        host: usize,
    },
    /// A host is back.
    HostBack {
        /// Index of the host in the cluster.
        host: usize,
    },
    /// A GPU is healthy again.
    GpuBack {
        /// Index of the host in the cluster.
        host: usize,
        /// The GPU's index on it.
        gpu: u32,
    },
    /// Only triggers planning: a back-off ends.
    Plan,
}

impl Event {
    /// Whether the event makes no room for further placements.
    pub(super) const fn changes_no_room(self) -> bool {
        matches!(
            self,
            Self::Checkpoint { .. }
                | Self::FaultBegins { .. }
                | Self::LemonDetection
                | Self::HealthTick
        )
    }
}
