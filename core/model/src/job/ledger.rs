//! GPU-time accounting of a job: kept work, pauses, and losses by cause.
//!
//! All amounts are milliseconds times GPUs; a unit without GPUs counts as one.

use serde::{Deserialize, Serialize};

use crate::desired::RestartReason;

/// Cost of one cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Loss {
    /// Waiting for placement.
    pub queue_gpu_ms: u64,
    /// From the placement until all tasks ran.
    pub restart_gpu_ms: u64,
    /// Work since the newest checkpoint, or since the start.
    pub work_gpu_ms: u64,
}

/// GPU time by use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ledger {
    /// Work that ended well or is in a checkpoint.
    pub kept_gpu_ms: u64,
    /// Paused in place while the job was suspended: neither work nor a loss.
    pub paused_gpu_ms: u64,
    /// Cost of the first start, which is no loss.
    pub first: Loss,
    /// Cost of preemptions.
    pub preempt: Loss,
    /// Cost of infrastructure failures.
    pub infra: Loss,
    /// Cost of failures charged to the job.
    pub user: Loss,
    /// Cost of admin orders.
    pub admin: Loss,
}

impl Loss {
    /// Returns the sum of all parts.
    #[must_use]
    pub const fn total_gpu_ms(&self) -> u64 {
        self.queue_gpu_ms
            .saturating_add(self.restart_gpu_ms)
            .saturating_add(self.work_gpu_ms)
    }
}

impl Ledger {
    /// Returns the causes with their names.
    #[must_use]
    pub const fn causes(&self) -> [(RestartReason, &'static str, Loss); 5] {
        [
            (RestartReason::First, "first", self.first),
            (RestartReason::Preempt, "preempt", self.preempt),
            (RestartReason::Infra, "infra", self.infra),
            (RestartReason::User, "user", self.user),
            (RestartReason::Admin, "admin", self.admin),
        ]
    }

    /// Returns the cost of a cause for update.
    pub const fn of_mut(&mut self, cause: RestartReason) -> &mut Loss {
        match cause {
            RestartReason::First => &mut self.first,
            RestartReason::Preempt => &mut self.preempt,
            RestartReason::Infra => &mut self.infra,
            RestartReason::User => &mut self.user,
            RestartReason::Admin => &mut self.admin,
        }
    }

    /// Adds an entry.
    pub fn add(&mut self, entry: Entry) {
        let Entry { cause, gpu_ms, .. } = entry;
        let field = match entry.kind {
            TimeUse::Kept => &mut self.kept_gpu_ms,
            TimeUse::Pause => &mut self.paused_gpu_ms,
            TimeUse::Queue => &mut self.of_mut(cause).queue_gpu_ms,
            TimeUse::Restart => &mut self.of_mut(cause).restart_gpu_ms,
            TimeUse::Work => &mut self.of_mut(cause).work_gpu_ms,
        };
        *field = field.saturating_add(gpu_ms);
    }

    /// Returns the thousandths of the time since the first placement that went into kept work (ETTR); `None`
    /// before anything ran.
    #[must_use]
    pub fn kept_permille(&self) -> Option<u64> {
        let waited = self.first.queue_gpu_ms;
        let causes = self.causes().into_iter();
        let lost = causes.fold(0u64, |sum, (_, _, loss)| {
            sum.saturating_add(loss.total_gpu_ms())
        });
        let spent = u128::from(self.kept_gpu_ms)
            + u128::from(self.paused_gpu_ms)
            + u128::from(lost - waited);
        let permille = (u128::from(self.kept_gpu_ms) * 1_000).checked_div(spent)?;
        u64::try_from(permille).ok()
    }
}

/// Use of an amount of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum TimeUse {
    /// Work that is kept.
    Kept,
    /// Paused in place.
    Pause,
    /// Waiting for placement.
    Queue,
    /// Starting.
    Restart,
    /// Work that is lost.
    Work,
}

/// An amount of GPU time with its use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Use of the time.
    pub kind: TimeUse,
    /// Cause charged; ignored for kept work and pauses.
    pub cause: RestartReason,
    /// Milliseconds times GPUs.
    pub gpu_ms: u64,
}
