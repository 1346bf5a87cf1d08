//! The health phase of a component and the work that it accepts in it.

use crate::word_enum;

word_enum! {
    /// Where a component stands.
    Phase {
        /// In use.
        Healthy = "healthy",
        /// In use, and watched.
        Suspect = "suspect",
        /// Nothing new is placed; what runs may end.
        Draining = "draining",
        /// The same, by an admin.
        DrainingAdmin = "draining(admin)",
        /// Out of placement by a rule.
        Blocked = "blocked(auto)",
        /// Out of placement by an admin.
        BlockedAdmin = "blocked(admin)",
        /// Being reset, rebooted or worked on.
        Repairing = "repairing",
        /// Waits for an active check to pass.
        Checking = "checking",
        /// Takes only work that can be lost.
        Probation = "probation",
        /// Goes back to its vendor.
        Rma = "rma",
    }
}

impl Phase {
    /// Whether anything may be placed there.
    #[must_use]
    pub const fn accepts_work(self) -> bool {
        matches!(self, Self::Healthy | Self::Suspect | Self::Probation)
    }

    /// Whether an admin put it there: nothing automatic leads out.
    #[must_use]
    pub const fn is_admins(self) -> bool {
        matches!(self, Self::DrainingAdmin | Self::BlockedAdmin)
    }
}

/// What somebody wants to place on a component.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Work {
    /// Whether it is more than one task.
    pub is_gang: bool,
    /// GPUs of one task.
    pub gpus_per_task: u32,
    /// Whether it may be preempted, and saves its work when it is.
    pub is_preemptible: bool,
    /// Whether it has a retry left.
    pub has_retry: bool,
}

impl Phase {
    /// Whether a component takes this work. In probation only what can be lost: preemptible, or one task on one GPU that can be
    /// tried again.
    #[must_use]
    pub const fn takes(self, work: Work) -> bool {
        let is_small = !work.is_gang && work.gpus_per_task <= 1 && work.has_retry;
        match self {
            Self::Healthy | Self::Suspect => true,
            Self::Probation => work.is_preemptible || is_small,
            _ => false,
        }
    }
}
