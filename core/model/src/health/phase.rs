//! Health phase of a component, and the work accepted in each phase.

use crate::named_enum;

named_enum! {
    /// Health phase of a component.
    Phase {
        /// In use.
        Healthy = "healthy",
        /// In use, under observation.
        Suspect = "suspect",
        /// Nothing new is placed; running work may finish.
        Draining = "draining",
        /// Draining, by an admin.
        DrainingAdmin = "draining(admin)",
        /// Out of placement by a rule.
        Blocked = "blocked(auto)",
        /// Out of placement by an admin.
        BlockedAdmin = "blocked(admin)",
        /// Being reset, rebooted or repaired.
        Repairing = "repairing",
        /// Waits for an active check to pass.
        Checking = "checking",
        /// Accepts only work that can be lost.
        Probation = "probation",
        /// Being returned to its vendor.
        Rma = "rma",
    }
}

impl Phase {
    /// Whether new work may be placed on it.
    #[must_use]
    pub const fn accepts_work(self) -> bool {
        matches!(self, Self::Healthy | Self::Suspect | Self::Probation)
    }

    /// Whether an admin set it: it is never left automatically.
    #[must_use]
    pub const fn is_admins(self) -> bool {
        matches!(self, Self::DrainingAdmin | Self::BlockedAdmin)
    }
}

/// Work that is to be placed on a component.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlacementRequest {
    /// Whether it has more than one task.
    pub is_gang: bool,
    /// GPUs per task.
    pub gpus_per_task: u32,
    /// Whether it may be preempted, and saves its work then.
    pub is_preemptible: bool,
    /// Whether it has a retry left.
    pub has_retry: bool,
}

impl Phase {
    /// Whether a component in this phase accepts the work. In probation only work that can be lost:
    /// preemptible, or one task on one GPU that can be retried.
    #[must_use]
    pub const fn takes(self, work: PlacementRequest) -> bool {
        let is_small = !work.is_gang && work.gpus_per_task <= 1 && work.has_retry;
        match self {
            Self::Healthy | Self::Suspect => true,
            Self::Probation => work.is_preemptible || is_small,
            _ => false,
        }
    }
}
