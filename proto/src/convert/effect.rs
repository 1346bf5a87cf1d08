//! Effects of a change of queues, as returned to clients.

use muster_engine::effects::{NamedJobs, QueueEffect, QueueEffectKind, UserOverLimit};
use muster_model::ids::JobId;
use muster_model::quota::Amounts;

use crate::v1;
use crate::v1::queue_change::Kind;

impl From<QueueEffect> for v1::QueueChange {
    fn from(effect: QueueEffect) -> Self {
        Self {
            kind: Kind::from(effect.change).into(),
            live_jobs: effect.live_jobs,
            usage: Some((&effect.held).into()),
            guarantee: effect.guarantee.as_ref().map(Into::into),
            reclaimable: effect.reclaimable.as_ref().map(Into::into),
            guarantee_before: effect.guarantee_before.as_ref().map(Into::into),
            guarantee_lost: some(&effect.guarantee_lost),
            cells_lost: effect.cells_lost,
            over_limit: some(&effect.over_limit),
            users_over_limit: effect
                .users_over_limit
                .into_iter()
                .map(Into::into)
                .collect(),
            jobs_over_limit: named(&effect.jobs_over_limit),
            jobs_too_large: named(&effect.jobs_too_large),
            downgraded: named(&effect.downgraded),
            name: effect.name,
        }
    }
}

impl From<QueueEffectKind> for Kind {
    fn from(kind: QueueEffectKind) -> Self {
        match kind {
            QueueEffectKind::Added => Self::Added,
            QueueEffectKind::Changed => Self::Changed,
            QueueEffectKind::Retired => Self::Retired,
        }
    }
}

impl From<UserOverLimit> for v1::UserOverLimit {
    fn from(user: UserOverLimit) -> Self {
        Self {
            over: Some((&user.over).into()),
            user: user.user,
        }
    }
}

/// Amounts; absent if all are zero.
fn some(amounts: &Amounts) -> Option<v1::Amounts> {
    (!amounts.is_zero()).then(|| amounts.into())
}

/// Jobs; absent if there are none.
fn named(jobs: &NamedJobs) -> Option<v1::NamedJobs> {
    (jobs.total > 0).then(|| v1::NamedJobs {
        total: jobs.total,
        job_ids: jobs.first.iter().map(|job| JobId::get(*job)).collect(),
    })
}
