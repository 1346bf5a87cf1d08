//! Why a unit is not placed, and what would help.

use muster_core::plan::{Blocker, LimitKind, LimitReached, Remedy};

use crate::v1;

impl From<&Blocker> for v1::Blocker {
    fn from(blocker: &Blocker) -> Self {
        use v1::blocker::{
            BackOff, Behind, ExceedsCluster, Kind, Moving, NoSuchHost, Plain, Reserved, Resources,
        };
        let kind = match blocker {
            Blocker::BackOff { until } => Kind::BackOff(BackOff { until_ms: until.0 }),
            Blocker::Cancelling => Kind::Cancelling(Plain {}),
            Blocker::NoSuchHost { need } => Kind::NoSuchHost(NoSuchHost { need: need.clone() }),
            &Blocker::ExceedsCluster {
                need_gpus,
                have_gpus,
            } => Kind::ExceedsCluster(ExceedsCluster {
                need_gpus,
                have_gpus,
            }),
            &Blocker::Resources {
                need_gpus,
                free_gpus,
                fits_tasks,
                need_tasks,
            } => Kind::Resources(Resources {
                need_gpus,
                free_gpus,
                fits_tasks,
                need_tasks,
            }),
            Blocker::Limit(limit) => Kind::Limit(limit.as_ref().into()),
            Blocker::Reserved {
                victims,
                expected_at,
            } => Kind::Reserved(Reserved {
                victims: *victims,
                expected_at_ms: expected_at.map(|at| at.0),
            }),
            Blocker::Moving {
                moves,
                cost_gpu_ms,
                gain_gpu_ms,
                expected_at,
            } => Kind::Moving(Moving {
                moves: *moves,
                cost_gpu_ms: *cost_gpu_ms,
                gain_gpu_ms: *gain_gpu_ms,
                expected_at_ms: expected_at.map(|at| at.0),
            }),
            Blocker::Behind { ahead } => Kind::Behind(Behind {
                ahead_job_id: ahead.get(),
            }),
        };
        Self { kind: Some(kind) }
    }
}

impl From<&Remedy> for v1::Remedy {
    fn from(remedy: &Remedy) -> Self {
        use v1::remedy::{FreeGpus, FreeRoom, Kind, Unblock};
        let kind = match remedy {
            Remedy::Wait { until } => Kind::WaitUntilMs(until.0),
            Remedy::PlaceAhead { ahead } => Kind::PlaceAheadJobId(ahead.get()),
            Remedy::RaiseLimit { limit } => Kind::RaiseLimit(limit.as_ref().into()),
            Remedy::Unblock { targets } => Kind::Unblock(Unblock {
                targets: targets.iter().map(Into::into).collect(),
            }),
            Remedy::FreeGpus { gpus, host } => Kind::FreeGpus(FreeGpus {
                gpus: *gpus,
                host: host.clone(),
            }),
            Remedy::FreeRoom { tasks, each } => Kind::FreeRoom(FreeRoom {
                tasks: *tasks,
                each: each.clone(),
            }),
            Remedy::Grow { need } => Kind::Grow(need.clone()),
        };
        Self { kind: Some(kind) }
    }
}

impl From<&LimitReached> for v1::LimitReached {
    fn from(reached: &LimitReached) -> Self {
        use v1::limit_reached::Kind;
        let kind = match reached.kind {
            LimitKind::Queue => Kind::Queue,
            LimitKind::User => Kind::User,
            LimitKind::Guarantee => Kind::Guarantee,
        };
        Self {
            queue: reached.queue.clone(),
            user: reached.user.clone(),
            kind: kind.into(),
            resource: reached.resource.clone(),
            would_be: reached.would_be,
            limit: reached.limit,
        }
    }
}
