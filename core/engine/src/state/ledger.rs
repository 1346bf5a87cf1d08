//! Where the time of a job's GPUs went: into work that is kept, into standing still, or lost, and why.
//!
//! All amounts are milliseconds times GPUs; a unit without GPUs counts as one.

use muster_model::desired::RestartReason;
use serde::{Deserialize, Serialize};

/// What one cause cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Loss {
    /// Waiting for a place.
    pub queue_gpu_ms: u64,
    /// From the placement until all tasks ran.
    pub restart_gpu_ms: u64,
    /// Work since the newest checkpoint, or since the start.
    pub work_gpu_ms: u64,
}

/// Where the time went.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ledger {
    /// Work that ended well or is in a checkpoint.
    pub kept_gpu_ms: u64,
    /// Standing still in place while the job was suspended: neither work nor anybody's fault.
    pub halted_gpu_ms: u64,
    /// What the first start took: nothing is lost by it.
    pub first: Loss,
    /// What preemptions cost.
    pub preempt: Loss,
    /// What the infrastructure's failures cost.
    pub infra: Loss,
    /// What failures of the job's own cost.
    pub user: Loss,
    /// What admins' orders cost.
    pub admin: Loss,
}

impl Loss {
    /// All of it.
    #[must_use]
    pub const fn total_gpu_ms(&self) -> u64 {
        self.queue_gpu_ms
            .saturating_add(self.restart_gpu_ms)
            .saturating_add(self.work_gpu_ms)
    }
}

impl Ledger {
    /// The causes with their names.
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

    /// What a cause cost, to be changed.
    pub const fn of_mut(&mut self, cause: RestartReason) -> &mut Loss {
        match cause {
            RestartReason::First => &mut self.first,
            RestartReason::Preempt => &mut self.preempt,
            RestartReason::Infra => &mut self.infra,
            RestartReason::User => &mut self.user,
            RestartReason::Admin => &mut self.admin,
        }
    }

    /// Adds what an entry says.
    pub fn add(&mut self, entry: Entry) {
        let Entry { cause, gpu_ms, .. } = entry;
        let field = match entry.kind {
            Kind::Kept => &mut self.kept_gpu_ms,
            Kind::Halt => &mut self.halted_gpu_ms,
            Kind::Queue => &mut self.of_mut(cause).queue_gpu_ms,
            Kind::Restart => &mut self.of_mut(cause).restart_gpu_ms,
            Kind::Work => &mut self.of_mut(cause).work_gpu_ms,
        };
        *field = field.saturating_add(gpu_ms);
    }

    /// Thousandths of the time since the first placement that went into work which is kept (ETTR); none before anything
    /// ran.
    #[must_use]
    pub fn kept_permille(&self) -> Option<u64> {
        let waited = self.first.queue_gpu_ms;
        let causes = self.causes().into_iter();
        let lost = causes.fold(0u64, |sum, (_, _, loss)| {
            sum.saturating_add(loss.total_gpu_ms())
        });
        let spent = u128::from(self.kept_gpu_ms)
            + u128::from(self.halted_gpu_ms)
            + u128::from(lost - waited);
        let permille = (u128::from(self.kept_gpu_ms) * 1_000).checked_div(spent)?;
        u64::try_from(permille).ok()
    }
}

/// What time went into.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Work that is kept.
    Kept,
    /// Standing still in place.
    Halt,
    /// Waiting for a place.
    Queue,
    /// Starting.
    Restart,
    /// Work that is lost.
    Work,
}

/// Some time, and what it went into.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Into what.
    pub kind: Kind,
    /// Whose fault it was; of no account for work that is kept and for standing still.
    pub cause: RestartReason,
    /// Milliseconds times GPUs.
    pub gpu_ms: u64,
}
