//! Effects of a change of queues.

use muster_engine::effects::{NamedJobs, QueueEffect, QueueEffectKind, UserOverLimit};
use muster_model::ids::JobId;
use muster_model::quota::Amounts;
use muster_proto::v1;
use muster_proto::v1::queue_change::Kind;

/// Effect on one queue.
#[must_use]
pub fn effect_to_wire(effect: QueueEffect) -> v1::QueueChange {
    let kind = match effect.change {
        QueueEffectKind::Added => Kind::Added,
        QueueEffectKind::Changed => Kind::Changed,
        QueueEffectKind::Retired => Kind::Retired,
    };
    v1::QueueChange {
        kind: kind.into(),
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
            .map(over_limit_to_wire)
            .collect(),
        jobs_over_limit: named(&effect.jobs_over_limit),
        jobs_too_large: named(&effect.jobs_too_large),
        downgraded: named(&effect.downgraded),
        name: effect.name,
    }
}

fn over_limit_to_wire(user: UserOverLimit) -> v1::UserOverLimit {
    v1::UserOverLimit {
        over: Some((&user.over).into()),
        user: user.user,
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
