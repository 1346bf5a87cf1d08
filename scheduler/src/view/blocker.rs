//! Reasons why a unit is not placed.

use muster_model::ids::JobId;
use muster_planner::{
    Blocker, CellsShortage, LimitKind, LimitReached, RoomShortage, TopologyShortage, UnfitTarget,
};
use muster_proto::v1;
use muster_proto::v1::blocker::{
    BackOff, Behind, Cells, Dependencies, ExceedsCluster, Excluded, Kind, Model, Moving, Named,
    NoSuchHost, OwnHosts, Plain, Reserved, ReservedByOthers, Resources, Room, SearchBound,
    Suspended, TasksAtOnce, TasksPerHost, Topology, Vacancy, cells, named,
};

/// Reason why a unit is not placed.
pub(crate) fn blocker_to_wire(blocker: &Blocker) -> v1::Blocker {
    v1::Blocker {
        kind: of_turn(blocker)
            .or_else(|| of_condition(blocker))
            .or_else(|| of_room(blocker)),
    }
}

/// Reasons unrelated to free resources.
fn of_turn(blocker: &Blocker) -> Option<Kind> {
    Some(match blocker {
        Blocker::BackOff { until } => Kind::BackOff(BackOff { until_ms: until.0 }),
        Blocker::Cancelling => Kind::Cancelling(Plain {}),
        Blocker::Suspended { author, reason } => Kind::Suspended(Suspended {
            author: author.clone(),
            reason: reason.clone(),
        }),
        Blocker::Dependencies { open, total } => Kind::Dependencies(Dependencies {
            open: open.iter().map(|other| (*other).into()).collect(),
            total: *total,
        }),
        Blocker::Vacancy {
            task,
            since,
            not_before,
            until,
            detail,
        } => Kind::Vacancy(Vacancy {
            task: task.get(),
            since_ms: since.0,
            not_before_ms: not_before.0,
            until_ms: until.0,
            detail: detail.clone(),
        }),
        Blocker::TasksAtOnce { max } => Kind::TasksAtOnce(TasksAtOnce { max: *max }),
        Blocker::Limit(limit) => Kind::Limit(limit_to_wire(limit)),
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
        Blocker::ReservedByOthers { jobs, until } => Kind::ReservedByOthers(ReservedByOthers {
            job_ids: ids(jobs),
            until_ms: until.map(|at| at.0),
        }),
        Blocker::BehindHead { ahead } => Kind::Behind(Behind {
            ahead_job_id: ahead.get(),
        }),
        Blocker::ExceedsCluster {
            need_gpus,
            have_gpus,
        } => Kind::ExceedsCluster(ExceedsCluster {
            need_gpus: *need_gpus,
            have_gpus: *have_gpus,
        }),
        Blocker::NoSuchHost { need } => Kind::NoSuchHost(NoSuchHost { need: need.clone() }),
        _ => return None,
    })
}

/// Missing free resources.
fn of_room(blocker: &Blocker) -> Option<Kind> {
    Some(match blocker {
        Blocker::Resources {
            need_gpus,
            free_gpus,
            fits_tasks,
            need_tasks,
        } => Kind::Resources(Resources {
            need_gpus: *need_gpus,
            free_gpus: *free_gpus,
            fits_tasks: *fits_tasks,
            need_tasks: *need_tasks,
        }),
        Blocker::Room(short) => Kind::Room(room_to_wire(short)),
        Blocker::Topology(short) => Kind::Topology(topology_to_wire(short)),
        Blocker::Cells(short) => Kind::Cells(cells_to_wire(short)),
        Blocker::SearchBound {
            need_gpus,
            free_gpus,
        } => Kind::SearchBound(SearchBound {
            need_gpus: *need_gpus,
            free_gpus: *free_gpus,
        }),
        Blocker::TasksPerHost { .. }
        | Blocker::ExclusiveHosts { .. }
        | Blocker::Named { .. }
        | Blocker::Excluded { .. }
        | Blocker::Model { .. }
        | Blocker::BackOff { .. }
        | Blocker::Cancelling
        | Blocker::Suspended { .. }
        | Blocker::Dependencies { .. }
        | Blocker::Vacancy { .. }
        | Blocker::TasksAtOnce { .. }
        | Blocker::Limit(_)
        | Blocker::Reserved { .. }
        | Blocker::Moving { .. }
        | Blocker::ReservedByOthers { .. }
        | Blocker::BehindHead { .. }
        | Blocker::ExceedsCluster { .. }
        | Blocker::NoSuchHost { .. } => return None,
    })
}

/// Job constraints that prevent placement.
fn of_condition(blocker: &Blocker) -> Option<Kind> {
    Some(match blocker {
        Blocker::TasksPerHost {
            group,
            limit,
            fits_tasks,
            need_tasks,
        } => Kind::TasksPerHost(TasksPerHost {
            group: group.clone(),
            limit: *limit,
            fits_tasks: *fits_tasks,
            need_tasks: *need_tasks,
        }),
        Blocker::ExclusiveHosts {
            jobs,
            fits_tasks,
            need_tasks,
        } => Kind::OwnHosts(OwnHosts {
            job_ids: ids(jobs),
            fits_tasks: *fits_tasks,
            need_tasks: *need_tasks,
        }),
        Blocker::Named { places } => Kind::Named(Named {
            places: places.iter().map(place_to_wire).collect(),
        }),
        Blocker::Excluded { hosts } => Kind::Excluded(Excluded {
            hosts: hosts.clone(),
        }),
        Blocker::Model {
            asked,
            others,
            need_gpus,
            free_gpus,
        } => Kind::Model(Model {
            asked: asked.clone(),
            others: others.clone(),
            need_gpus: *need_gpus,
            free_gpus: *free_gpus,
        }),
        _ => return None,
    })
}

fn ids(jobs: &[JobId]) -> Vec<u64> {
    jobs.iter().map(|job| job.get()).collect()
}

fn room_to_wire(short: &RoomShortage) -> Room {
    Room {
        lacks_cpus: short.lacks_cpus,
        lacks_memory: short.lacks_memory,
        need_cpus_milli: short.need_cpus_milli,
        free_cpus_milli_max: short.free_cpus_milli_max,
        need_memory_mib: short.need_memory_mib,
        free_memory_mib_max: short.free_memory_mib_max,
        fits_tasks: short.fits_tasks,
        need_tasks: short.need_tasks,
    }
}

fn topology_to_wire(short: &TopologyShortage) -> Topology {
    Topology {
        level: short.level.clone(),
        group: short.group.clone(),
        need_gpus: short.need_gpus,
        best: short.best.clone(),
        best_free_gpus: short.best_free_gpus,
        free_gpus: short.free_gpus,
        fits_tasks: short.fits_tasks,
        need_tasks: short.need_tasks,
    }
}

fn place_to_wire(place: &UnfitTarget) -> named::Place {
    named::Place {
        name: place.name.clone(),
        why: place.reason.clone(),
    }
}

fn cells_to_wire(short: &CellsShortage) -> Cells {
    let kinds = short.kinds.iter().map(|kind| cells::Kind {
        kind: kind.kind.clone(),
        guaranteed: kind.guaranteed,
        bound: kind.bound,
    });
    Cells {
        queue: short.queue.clone(),
        need_gpus: short.need_gpus,
        left_gpus: short.left_gpus,
        kinds: kinds.collect(),
        outside_free_gpus: short.outside_free_gpus,
    }
}

/// A limit that a unit would exceed.
pub(crate) fn limit_to_wire(reached: &LimitReached) -> v1::LimitReached {
    use v1::limit_reached::Kind;
    let kind = match reached.kind {
        LimitKind::Queue => Kind::Queue,
        LimitKind::User => Kind::User,
        LimitKind::Guarantee => Kind::Guarantee,
    };
    v1::LimitReached {
        queue: reached.queue.clone(),
        user: reached.user.clone(),
        kind: kind.into(),
        resource: reached.resource.clone(),
        would_be: reached.would_be,
        limit: reached.limit,
        used: reached.used,
        asked: reached.asked,
    }
}
