//! Trials: one fault each, with its permitted effects on a training.

use crate::cluster::Direction;

/// One fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Trial {
    /// The agent of a host is killed and restarted.
    AgentKilled,
    /// The agent of a host stops gracefully, and another program replaces it.
    AgentUpgraded,
    /// The supervisor of a task is killed.
    SupervisorKilled,
    /// A GPU of the training has an uncorrectable memory error.
    GpuFaulted,
    /// A host is cut off for less than its lease.
    ShortCut(Direction),
    /// A host is cut off until the training runs elsewhere.
    LongCut(Direction),
    /// Everything on a host is paused until the training runs elsewhere.
    HostFrozen,
    /// The leader is killed while the training is being preempted.
    LeaderKilledInPreemption,
    /// The training's newest checkpoint is damaged, and then a supervisor is killed.
    CheckpointDamaged,
    /// The disk of the checkpoints fills up.
    CheckpointDiskFull,
    /// The disk of a host's agent and supervisors fills up.
    HostDiskFull,
    /// The training is preempted and ignores the stop request.
    StopIgnored,
}

impl Trial {
    /// All trials.
    pub const ALL: [Self; 16] = [
        Self::AgentKilled,
        Self::AgentUpgraded,
        Self::SupervisorKilled,
        Self::GpuFaulted,
        Self::ShortCut(Direction::Both),
        Self::ShortCut(Direction::Out),
        Self::ShortCut(Direction::In),
        Self::LongCut(Direction::Both),
        Self::LongCut(Direction::Out),
        Self::LongCut(Direction::In),
        Self::HostFrozen,
        Self::LeaderKilledInPreemption,
        Self::CheckpointDamaged,
        Self::CheckpointDiskFull,
        Self::HostDiskFull,
        Self::StopIgnored,
    ];

    /// Name on the command line and in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::AgentKilled => "agent-killed",
            Self::AgentUpgraded => "agent-upgraded",
            Self::SupervisorKilled => "supervisor-killed",
            Self::GpuFaulted => "gpu-faulted",
            Self::ShortCut(Direction::Both) => "short-cut",
            Self::ShortCut(Direction::Out) => "short-cut-out",
            Self::ShortCut(Direction::In) => "short-cut-in",
            Self::LongCut(Direction::Both) => "long-cut",
            Self::LongCut(Direction::Out) => "long-cut-out",
            Self::LongCut(Direction::In) => "long-cut-in",
            Self::HostFrozen => "host-frozen",
            Self::LeaderKilledInPreemption => "preemption-leader-killed",
            Self::CheckpointDamaged => "checkpoint-damaged",
            Self::CheckpointDiskFull => "checkpoint-disk-full",
            Self::HostDiskFull => "host-disk-full",
            Self::StopIgnored => "stop-ignored",
        }
    }

    /// Parses a name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|trial| trial.name() == name)
    }

    /// Description of the fault.
    #[must_use]
    pub const fn fault(self) -> &'static str {
        match self {
            Self::AgentKilled => "agent killed",
            Self::AgentUpgraded => "agent replaced by another program",
            Self::SupervisorKilled => "supervisor killed",
            Self::GpuFaulted => "XID 48 of a GPU",
            Self::ShortCut(Direction::Both) => "host cut off for 2.5 s, both ways",
            Self::ShortCut(Direction::Out) => "host cut off for 2.5 s, what it sends",
            Self::ShortCut(Direction::In) => "host cut off for 2.5 s, what is sent to it",
            Self::LongCut(Direction::Both) => "host cut off beyond its grace, both ways",
            Self::LongCut(Direction::Out) => "host cut off beyond its grace, what it sends",
            Self::LongCut(Direction::In) => "host cut off beyond its grace, what is sent to it",
            Self::HostFrozen => "host frozen beyond its grace",
            Self::LeaderKilledInPreemption => "leader killed during preemption",
            Self::CheckpointDamaged => "newest checkpoint damaged, then a supervisor killed",
            Self::CheckpointDiskFull => "disk of the checkpoints full for 4 s",
            Self::HostDiskFull => "host's disk full for 4 s",
            Self::StopIgnored => "preempted, and the task ignores SIGTERM",
        }
    }

    /// Permitted range of the number of attempts.
    #[must_use]
    pub(super) const fn attempts(self) -> std::ops::RangeInclusive<usize> {
        match self {
            Self::AgentKilled | Self::AgentUpgraded | Self::ShortCut(_) | Self::HostDiskFull => {
                1..=1
            }
            Self::SupervisorKilled
            | Self::GpuFaulted
            | Self::LeaderKilledInPreemption
            | Self::CheckpointDamaged
            | Self::StopIgnored => 2..=2,
            // Members on other hosts detect it first, and may be restarted before the host counts as lost.
            Self::LongCut(_) | Self::HostFrozen => 2..=3,
            // Every attempt ends when it cannot save.
            Self::CheckpointDiskFull => 2..=6,
        }
    }

    /// Whether the training ignores stop requests.
    #[must_use]
    pub(super) const fn is_stubborn(self) -> bool {
        matches!(self, Self::StopIgnored)
    }

    /// Whether a job of a higher priority may preempt the training.
    #[must_use]
    pub(super) const fn preempts(self) -> bool {
        matches!(self, Self::StopIgnored | Self::LeaderKilledInPreemption)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_lead_back() {
        for trial in Trial::ALL {
            assert_eq!(Trial::named(trial.name()), Some(trial));
        }
        assert_eq!(Trial::named("nothing"), None);
    }
}
