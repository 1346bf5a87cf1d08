//! Explanations why a job waits, and remedies.

use muster_proto::v1;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::instant::Instant;
use crate::job::JobPhase;
use crate::name::block_target;
use crate::pipeline::Condition;

documents! {
    /// Explanation why a job waits.
    pub struct Explanation from v1::ExplainJobResponse {
        revision: u64,
        phase: JobPhase,
        summary: String,
        blocker: Option<Blocker>,
        /// The smallest change known to help.
        remedy: Option<Remedy>,
        /// Whether the remedy was tested and is sufficient.
        remedy_is_enough: bool,
        search_timed_out: bool = cut_short,
        unit: u32,
        units_waiting: u64,
        /// Jobs of its queue.
        jobs_ahead: u64,
        jobs_ahead_overall: u64,
        /// Whether `jobs_ahead_overall` is a count; a lower bound otherwise.
        jobs_ahead_overall_is_exact: bool,
        expected_start: Option<ExpectedStart>,
        host_classes: Vec<HostClass> = classes,
        cells: Vec<CellsLeft>,
        /// Cells that are guaranteed and missing in the whole cluster.
        cells_missing: Vec<String>,
    }

    /// Expected start of a unit.
    pub struct ExpectedStart from v1::ExpectedStart {
        at: Instant = at_ms,
        basis: StartBasis,
    }

    /// Cells of one kind of a virtual cluster.
    pub struct CellsLeft from v1::CellsLeft {
        kind: String,
        guaranteed: u32,
        bound: u32,
        free: u64,
        in_use: u64,
        unhealthy: u64,
    }

    /// Hosts of one GPU model.
    pub struct HostClass from v1::HostClass {
        /// Empty for hosts without GPUs.
        gpu_model: String,
        /// Whether the job accepts them.
        acceptable: bool,
        hosts: u32,
        hosts_not_accepting: u32,
        hosts_with_room: u32,
        gpus: u32,
        gpus_free: u32,
        gpus_reserved: u32,
        gpus_held: u32,
        gpus_out: u32,
    }
}

string_enum! {
    /// What an expected start is derived from: free resources, a reservation, time limits and usual run times, or the
    /// age of running work.
    pub enum StartBasis from v1::expected_start::Basis {
        Free "free",
        Reserved "reserved",
        Known "run_times",
        Estimated "estimated",
    }
}

/// Why a unit waits.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Blocker {
    BackOff(BackOff),
    Cancelling,
    Suspended(Suspended),
    Dependencies(Dependencies),
    Vacancy(OpenVacancy),
    TasksAtOnce(TasksAtOnce),
    NoSuchHost(NoSuchHost),
    ExceedsCluster(ExceedsCluster),
    Resources(Resources),
    Room(Room),
    Topology(Topology),
    TasksPerHost(TasksPerHost),
    OwnHosts(OwnHosts),
    Named(Named),
    Excluded(Excluded),
    Model(Model),
    Cells(CellsShort),
    ReservedByOthers(ReservedByOthers),
    SearchBound(SearchBound),
    Limit(LimitReached),
    Reserved(Reserved),
    Moving(Moving),
    Behind(Behind),
    #[serde(other)]
    Unknown,
}

documents! {
    /// The unit is retried later.
    pub struct BackOff from v1::blocker::BackOff {
        until: Instant = until_ms,
    }

    /// The job is suspended.
    pub struct Suspended from v1::blocker::Suspended {
        author: String,
        reason: String,
    }

    /// Other jobs have not ended.
    pub struct Dependencies from v1::blocker::Dependencies {
        /// The first of them.
        open: Vec<Dependency>,
        total: u64,
    }

    /// Another job, and the awaited end.
    pub struct Dependency from v1::Dependency {
        job: u64 = job_id,
        when: Condition,
    }

    /// A gang runs with a vacant place.
    pub struct OpenVacancy from v1::blocker::Vacancy {
        task: u32,
        since: Instant = since_ms,
        not_before: Instant = not_before_ms,
        until: Instant = until_ms,
        detail: String,
    }

    /// The job's maximum of tasks that run at a time is reached.
    pub struct TasksAtOnce from v1::blocker::TasksAtOnce {
        max: u32,
    }

    /// No host has what a task needs.
    pub struct NoSuchHost from v1::blocker::NoSuchHost {
        need: String,
    }

    /// The job needs more GPUs than the cluster has.
    pub struct ExceedsCluster from v1::blocker::ExceedsCluster {
        need_gpus: u64,
        have_gpus: u64,
    }

    /// Too few GPUs are free.
    pub struct Resources from v1::blocker::Resources {
        need_gpus: u64,
        free_gpus: u64,
        fits_tasks: u64,
        need_tasks: u64,
    }

    /// CPUs or memory are short on hosts with free GPUs.
    pub struct Room from v1::blocker::Room {
        lacks_cpus: bool,
        lacks_memory: bool,
        need_cpus_milli: u32,
        free_cpus_milli_max: u32,
        need_memory_mib: u64,
        free_memory_mib_max: u64,
        fits_tasks: u64,
        need_tasks: u64,
    }

    /// No cell of a level has enough free GPUs.
    pub struct Topology from v1::blocker::Topology {
        level: String,
        group: Option<String>,
        need_gpus: u64,
        best: Option<String>,
        best_free_gpus: u64,
        free_gpus: u64,
        fits_tasks: u64,
        need_tasks: u64,
    }

    /// The job limits its tasks per host.
    pub struct TasksPerHost from v1::blocker::TasksPerHost {
        group: String,
        limit: u32,
        fits_tasks: u64,
        need_tasks: u64,
    }

    /// The job wants hosts without other jobs.
    pub struct OwnHosts from v1::blocker::OwnHosts {
        jobs: Vec<u64> = job_ids,
        fits_tasks: u64,
        need_tasks: u64,
    }

    /// None of the hosts and GPUs that the job names is usable.
    pub struct Named from v1::blocker::Named {
        places: Vec<NamedPlace>,
    }

    /// A host or GPU, and why it is not usable.
    pub struct NamedPlace from v1::blocker::named::Place {
        name: String,
        why: String,
    }

    /// The job excludes hosts with room.
    pub struct Excluded from v1::blocker::Excluded {
        hosts: Vec<String>,
    }

    /// Only GPUs of other models are free.
    pub struct Model from v1::blocker::Model {
        requested: Vec<String> = asked,
        others: Vec<String>,
        need_gpus: u64,
        free_gpus: u64,
    }

    /// The cells of the queue's virtual cluster do not suffice.
    pub struct CellsShort from v1::blocker::Cells {
        queue: String,
        need_gpus: u64,
        left_gpus: u64,
        kinds: Vec<CellKind>,
        /// Free GPUs outside, if the queue may not borrow them.
        outside_free_gpus: Option<u64>,
    }

    /// Cells of one kind of a virtual cluster.
    pub struct CellKind from v1::blocker::cells::Kind {
        kind: String,
        guaranteed: u32,
        bound: u32,
    }

    /// What is free is reserved for other jobs.
    pub struct ReservedByOthers from v1::blocker::ReservedByOthers {
        jobs: Vec<u64> = job_ids,
        until: Option<Instant> = until_ms,
    }

    /// The search for a placement ended at its bound.
    pub struct SearchBound from v1::blocker::SearchBound {
        need_gpus: u64,
        free_gpus: u64,
    }

    /// A limit or a guarantee of a queue is reached.
    pub struct LimitReached from v1::LimitReached {
        queue: String,
        user: Option<String>,
        of: LimitKind = kind,
        resource: String,
        used: u64,
        requested: u64 = asked,
        /// Usage with the unit.
        would_be: u64,
        limit: u64,
    }

    /// Resources are reserved for it.
    pub struct Reserved from v1::blocker::Reserved {
        victims: u64,
        expected_at: Option<Instant> = expected_at_ms,
    }

    /// Running work is moved to make room for it.
    pub struct Moving from v1::blocker::Moving {
        moves: u64,
        cost_gpu_ms: u64,
        gain_gpu_ms: u64,
        expected_at: Option<Instant> = expected_at_ms,
    }

    /// Another job goes first.
    pub struct Behind from v1::blocker::Behind {
        job: u64 = ahead_job_id,
    }
}

string_enum! {
    /// What a limit belongs to.
    pub enum LimitKind from v1::limit_reached::Kind {
        Queue "queue",
        User "user",
        Guarantee "guarantee",
    }
}

impl From<v1::Blocker> for Blocker {
    fn from(blocker: v1::Blocker) -> Self {
        use v1::blocker::Kind;
        match blocker.kind {
            Some(Kind::BackOff(it)) => Self::BackOff(it.into()),
            Some(Kind::Cancelling(_)) => Self::Cancelling,
            Some(Kind::Suspended(it)) => Self::Suspended(it.into()),
            Some(Kind::Dependencies(it)) => Self::Dependencies(it.into()),
            Some(Kind::Vacancy(it)) => Self::Vacancy(it.into()),
            Some(Kind::TasksAtOnce(it)) => Self::TasksAtOnce(it.into()),
            Some(Kind::NoSuchHost(it)) => Self::NoSuchHost(it.into()),
            Some(Kind::ExceedsCluster(it)) => Self::ExceedsCluster(it.into()),
            Some(Kind::Resources(it)) => Self::Resources(it.into()),
            Some(Kind::Room(it)) => Self::Room(it.into()),
            Some(Kind::Topology(it)) => Self::Topology(it.into()),
            Some(Kind::TasksPerHost(it)) => Self::TasksPerHost(it.into()),
            Some(Kind::OwnHosts(it)) => Self::OwnHosts(it.into()),
            Some(Kind::Named(it)) => Self::Named(it.into()),
            Some(Kind::Excluded(it)) => Self::Excluded(it.into()),
            Some(Kind::Model(it)) => Self::Model(it.into()),
            Some(Kind::Cells(it)) => Self::Cells(it.into()),
            Some(Kind::ReservedByOthers(it)) => Self::ReservedByOthers(it.into()),
            Some(Kind::SearchBound(it)) => Self::SearchBound(it.into()),
            Some(Kind::Limit(it)) => Self::Limit(it.into()),
            Some(Kind::Reserved(it)) => Self::Reserved(it.into()),
            Some(Kind::Moving(it)) => Self::Moving(it.into()),
            Some(Kind::Behind(it)) => Self::Behind(it.into()),
            None => Self::Unknown,
        }
    }
}

from_wire!(Blocker, v1::Blocker);

/// The smallest change known to help.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Remedy {
    Wait {
        until: Instant,
    },
    /// A job goes first: it has to be placed, changed or cancelled.
    PlaceAhead {
        job: u64,
    },
    RaiseLimit(LimitReached),
    /// Let the queue borrow idle resources.
    Borrow {
        queue: String,
    },
    Unblock {
        targets: Vec<String>,
    },
    /// More free GPUs on one host; `host` is nearest to it.
    FreeGpus {
        gpus: u32,
        host: String,
    },
    /// Room for more tasks, with the needs of each.
    FreeRoom {
        tasks: u64,
        each: String,
    },
    /// Add to the cluster, or request less.
    Grow {
        need: String,
    },
    FewerTasks {
        group: String,
        tasks: u32,
    },
    /// Require the level, or only prefer it.
    Within {
        group: Option<String>,
        level: String,
        required: bool,
    },
    /// Do not restrict hosts and GPUs.
    AnyPlace,
    IncludeHosts {
        hosts: Vec<String>,
    },
    AcceptModels {
        models: Vec<String>,
    },
    /// Let this many tasks of a group share a host; all if null.
    TasksPerHost {
        group: String,
        tasks: Option<u32>,
    },
    /// Let other jobs share its hosts.
    ShareHosts,
    /// Request at most this for each task.
    Less {
        cpus_milli: Option<u32>,
        memory_mib: Option<u64>,
    },
    /// Limit the run time, so that the job ends before a reserved start.
    RunTime {
        run_time_ms_max: u64,
    },
    Opportunistic,
    #[serde(other)]
    Unknown,
}

impl From<v1::Remedy> for Remedy {
    fn from(remedy: v1::Remedy) -> Self {
        use v1::remedy::Kind;
        match remedy.kind {
            Some(Kind::WaitUntilMs(ms)) => Self::Wait {
                until: Instant { ms },
            },
            Some(Kind::PlaceAheadJobId(job)) => Self::PlaceAhead { job },
            Some(Kind::Unblock(blocked)) => {
                let targets = blocked.targets.iter();
                Self::Unblock {
                    targets: targets.map(|it| block_target(Some(it))).collect(),
                }
            }
            Some(Kind::FreeGpus(lacking)) => Self::FreeGpus {
                gpus: lacking.gpus,
                host: lacking.host,
            },
            Some(Kind::FreeRoom(lacking)) => Self::FreeRoom {
                tasks: lacking.tasks,
                each: lacking.each,
            },
            Some(Kind::Grow(need)) => Self::Grow { need },
            Some(Kind::RaiseLimit(reached)) => Self::RaiseLimit(reached.into()),
            Some(Kind::BorrowQueue(queue)) => Self::Borrow { queue },
            Some(Kind::Change(change)) => Self::from(change),
            None => Self::Unknown,
        }
    }
}

from_wire!(Remedy, v1::Remedy);

impl From<v1::JobChange> for Remedy {
    fn from(change: v1::JobChange) -> Self {
        use v1::job_change::Kind;
        match change.kind {
            Some(Kind::FewerTasks(fewer)) => Self::FewerTasks {
                group: fewer.group,
                tasks: fewer.tasks,
            },
            Some(Kind::Within(within)) => Self::Within {
                group: within.group,
                level: within.level,
                required: within.required,
            },
            Some(Kind::AnyPlace(_)) => Self::AnyPlace,
            Some(Kind::IncludeHosts(hosts)) => Self::IncludeHosts { hosts: hosts.names },
            Some(Kind::AcceptModels(models)) => Self::AcceptModels {
                models: models.names,
            },
            Some(Kind::TasksPerHost(most)) => Self::TasksPerHost {
                group: most.group,
                tasks: most.tasks,
            },
            Some(Kind::ShareHosts(_)) => Self::ShareHosts,
            Some(Kind::Less(less)) => Self::Less {
                cpus_milli: less.cpus_milli,
                memory_mib: less.memory_mib,
            },
            Some(Kind::RunTimeMsMax(run_time_ms_max)) => Self::RunTime { run_time_ms_max },
            Some(Kind::Opportunistic(_)) => Self::Opportunistic,
            None => Self::Unknown,
        }
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn blockers_and_remedies_are_kinds_with_their_figures() {
        let topology = v1::blocker::Topology {
            level: "rack".to_owned(),
            best_free_gpus: 7,
            ..Default::default()
        };
        let answer = v1::ExplainJobResponse {
            blocker: Some(v1::Blocker {
                kind: Some(v1::blocker::Kind::Topology(topology)),
            }),
            remedy: Some(v1::Remedy {
                kind: Some(v1::remedy::Kind::WaitUntilMs(1_000)),
            }),
            expected_start: Some(v1::ExpectedStart {
                at_ms: 1_000,
                basis: v1::expected_start::Basis::Known.into(),
            }),
            ..Default::default()
        };
        let document = serde_json::to_value(Explanation::from(answer)).unwrap();
        assert_eq!(document["blocker"]["kind"], "topology");
        assert_eq!(document["blocker"]["best_free_gpus"], 7);
        assert_eq!(document["remedy"]["kind"], "wait");
        assert_eq!(document["remedy"]["until"], "1970-01-01T00:00:01.000Z");
        assert_eq!(document["expected_start"]["basis"], "run_times");
    }
}
