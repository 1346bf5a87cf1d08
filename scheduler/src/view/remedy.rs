//! Remedies for waiting units, and their expected start.

use muster_engine::cells::CellsLeft;
use muster_planner::{Basis, Change, Remedy, Start};
use muster_proto::v1;

use crate::view::blocker::limit_to_wire;

/// Remedy for a waiting unit.
pub(crate) fn remedy_to_wire(remedy: &Remedy) -> v1::Remedy {
    use v1::remedy::{FreeGpus, FreeRoom, Kind, Unblock};
    let kind = match remedy {
        Remedy::Wait { until } => Kind::WaitUntilMs(until.0),
        Remedy::PlaceAhead { ahead } => Kind::PlaceAheadJobId(ahead.get()),
        Remedy::RaiseLimit { limit } => Kind::RaiseLimit(limit_to_wire(limit)),
        Remedy::Borrow { queue } => Kind::BorrowQueue(queue.clone()),
        Remedy::Unblock { targets } => Kind::Unblock(Unblock {
            targets: targets.iter().map(Into::into).collect(),
        }),
        Remedy::Change { change } => Kind::Change(change_to_wire(change)),
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
    v1::Remedy { kind: Some(kind) }
}

fn change_to_wire(change: &Change) -> v1::JobChange {
    use v1::job_change::{FewerTasks, Kind, Less, Names, Plain, TasksPerHost, WithinLevel};
    let names = |names: &[String]| Names {
        names: names.to_vec(),
    };
    let kind = match change {
        Change::FewerTasks { group, tasks } => Kind::FewerTasks(FewerTasks {
            group: group.clone(),
            tasks: *tasks,
        }),
        Change::Within {
            group,
            level,
            required,
        } => Kind::Within(WithinLevel {
            group: group.clone(),
            level: level.clone(),
            required: *required,
        }),
        Change::AnyPlace => Kind::AnyPlace(Plain {}),
        Change::Include { hosts } => Kind::IncludeHosts(names(hosts)),
        Change::AcceptModels { models } => Kind::AcceptModels(names(models)),
        Change::TasksPerHost { group, tasks } => Kind::TasksPerHost(TasksPerHost {
            group: group.clone(),
            tasks: *tasks,
        }),
        Change::ShareHosts => Kind::ShareHosts(Plain {}),
        Change::Less {
            cpus_milli,
            memory_mib,
        } => Kind::Less(Less {
            cpus_milli: Some(*cpus_milli).filter(|most| *most < u32::MAX),
            memory_mib: Some(*memory_mib).filter(|most| *most < u64::MAX),
        }),
        Change::RunTime { run_time_ms_max } => Kind::RunTimeMsMax(*run_time_ms_max),
        Change::Opportunistic => Kind::Opportunistic(Plain {}),
    };
    v1::JobChange { kind: Some(kind) }
}

/// Expected start of a waiting unit.
pub(crate) fn start_to_wire(start: &Start) -> v1::ExpectedStart {
    use v1::expected_start::Basis as Wire;
    let basis = match start.basis {
        Basis::Free => Wire::Free,
        Basis::Reserved => Wire::Reserved,
        Basis::Known => Wire::Known,
        Basis::Estimated => Wire::Estimated,
    };
    v1::ExpectedStart {
        at_ms: start.at.0,
        basis: basis.into(),
    }
}

/// Guaranteed cells of a queue and their use.
pub(crate) fn cells_left_to_wire(left: &CellsLeft) -> v1::CellsLeft {
    v1::CellsLeft {
        kind: left.kind.clone(),
        guaranteed: left.guaranteed,
        bound: left.bound,
        free: left.free,
        in_use: left.in_use,
        unhealthy: left.unhealthy,
    }
}
