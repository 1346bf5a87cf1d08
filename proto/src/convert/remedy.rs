//! Remedies for waiting units, and their expected start.

use muster_engine::cells::CellsLeft;
use muster_planner::{Basis, Change, Remedy, Start};

use crate::v1;

impl From<&Remedy> for v1::Remedy {
    fn from(remedy: &Remedy) -> Self {
        use v1::remedy::{FreeGpus, FreeRoom, Kind, Unblock};
        let kind = match remedy {
            Remedy::Wait { until } => Kind::WaitUntilMs(until.0),
            Remedy::PlaceAhead { ahead } => Kind::PlaceAheadJobId(ahead.get()),
            Remedy::RaiseLimit { limit } => Kind::RaiseLimit(limit.as_ref().into()),
            Remedy::Borrow { queue } => Kind::BorrowQueue(queue.clone()),
            Remedy::Unblock { targets } => Kind::Unblock(Unblock {
                targets: targets.iter().map(Into::into).collect(),
            }),
            Remedy::Change { change } => Kind::Change(change.as_ref().into()),
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

impl From<&Change> for v1::JobChange {
    fn from(change: &Change) -> Self {
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
        Self { kind: Some(kind) }
    }
}

impl From<&Start> for v1::ExpectedStart {
    fn from(start: &Start) -> Self {
        use v1::expected_start::Basis as Wire;
        let basis = match start.basis {
            Basis::Free => Wire::Free,
            Basis::Reserved => Wire::Reserved,
            Basis::Told => Wire::Told,
            Basis::Guessed => Wire::Guessed,
        };
        Self {
            at_ms: start.at.0,
            basis: basis.into(),
        }
    }
}

impl From<&CellsLeft> for v1::CellsLeft {
    fn from(left: &CellsLeft) -> Self {
        Self {
            kind: left.kind.clone(),
            guaranteed: left.guaranteed,
            bound: left.bound,
            free: left.free,
            in_use: left.in_use,
            unhealthy: left.unhealthy,
        }
    }
}
