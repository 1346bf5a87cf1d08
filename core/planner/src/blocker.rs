//! Pending reasons: why a job is not placed, one variant per reason, with the figures behind it.

use muster_model::ids::{JobId, TaskIndex};
use muster_model::spec::Dependency;
use muster_model::time::TimeMs;
use serde::{Deserialize, Serialize};

use crate::Reason;

/// The reason why a job's next waiting unit is not placed now.
///
/// If room is missing, exactly one reason is given: the placement constraint without which the unit would
/// fit now, verified with the placement search. If no constraint is responsible, too few GPUs are free.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Blocker {
    /// Waits for the end of a back-off.
    BackOff {
        /// End of the back-off.
        until: TimeMs,
    },
    /// The job is being cancelled.
    Cancelling,
    /// A user suspended the job.
    Suspended {
        /// Name of that user.
        author: String,
        /// Stated reason; may be empty.
        reason: String,
    },
    /// Waits for other jobs to end.
    Dependencies {
        /// The first few unfinished dependencies and the outcome each requires.
        open: Vec<Dependency>,
        /// Total number of unfinished dependencies.
        total: u64,
    },
    /// The gang keeps running with one vacant member, which has no room or has to wait.
    Vacancy {
        /// The vacant member.
        task: TaskIndex,
        /// Start of the vacancy.
        since: TimeMs,
        /// Earliest time at which the vacancy is filled.
        not_before: TimeMs,
        /// The whole gang is restarted if the vacancy is not filled by then.
        until: TimeMs,
        /// How the member ended.
        detail: String,
    },
    /// The job already runs as many units as it allows at a time.
    TasksAtOnce {
        /// The allowed number (`tasks_at_once_max`).
        max: u32,
    },
    /// No host of an acceptable class exists, or none is large enough even when empty.
    NoSuchHost {
        /// The request, as text for users.
        need: String,
    },
    /// The cluster could never hold the gang, even empty and unblocked.
    ExceedsCluster {
        /// GPUs that the gang needs.
        need_gpus: u64,
        /// Total GPUs of acceptable hosts.
        have_gpus: u64,
    },
    /// Too few GPUs are free now, in total or in large enough pieces.
    Resources {
        /// GPUs that the unit needs.
        need_gpus: u64,
        /// GPUs free on acceptable hosts.
        free_gpus: u64,
        /// Tasks of the unit that could be placed now.
        fits_tasks: u64,
        /// Tasks that the unit has.
        need_tasks: u64,
    },
    /// The hosts with free GPUs have CPUs or memory for too few tasks.
    Room(Box<RoomShortage>),
    /// There would be room, but not within one cell of the required level.
    Topology(Box<TopologyShortage>),
    /// There would be room if more tasks of the group were allowed on one host.
    TasksPerHost {
        /// The task group.
        group: String,
        /// Maximum number of tasks per host.
        limit: u32,
        /// Tasks of the unit that could be placed now.
        fits_tasks: u64,
        /// Tasks that the unit has.
        need_tasks: u64,
    },
    /// There would be room on shared hosts, but the job requires exclusive hosts.
    ExclusiveHosts {
        /// Jobs on hosts that would otherwise fit; the first few.
        jobs: Vec<JobId>,
        /// Tasks of the unit that could be placed now.
        fits_tasks: u64,
        /// Tasks that the unit has.
        need_tasks: u64,
    },
    /// There would be room on hosts or GPUs other than those that the job names, or on hosts that lack the
    /// container engine that it needs.
    Named {
        /// The named hosts or GPUs, or the hosts without an engine, and why each does not fit; the first
        /// few.
        places: Vec<UnfitTarget>,
    },
    /// There would be room on hosts that the job excludes.
    Excluded {
        /// The excluded hosts with room.
        hosts: Vec<String>,
    },
    /// There would be room on GPU models that the job does not accept.
    Model {
        /// Accepted models.
        asked: Vec<String>,
        /// Models on which it would fit now.
        others: Vec<String>,
        /// GPUs that the unit needs.
        need_gpus: u64,
        /// Free GPUs of accepted models.
        free_gpus: u64,
    },
    /// The virtual cluster has no cells for the unit now, and outside its cells there is no room or the job
    /// may not run there.
    Cells(Box<CellsShortage>),
    /// The free room is reserved for other jobs, and the job might not end in time.
    ReservedByOthers {
        /// Jobs that hold the reservations; the first few.
        jobs: Vec<JobId>,
        /// Expected start of the last of them; `None` if unknown.
        until: Option<TimeMs>,
    },
    /// The search for room reached its bound without a result; it is repeated when something changes.
    SearchBound {
        /// GPUs that the unit needs.
        need_gpus: u64,
        /// GPUs free on acceptable hosts.
        free_gpus: u64,
    },
    /// The queue, an ancestor, or the user within one of them would exceed a limit.
    Limit(Box<LimitReached>),
    /// Resources are reserved for the unit; it starts as soon as they are free.
    Reserved {
        /// Attempts stopped for it; 0 if it waits for others to end on their own.
        victims: u64,
        /// Expected time at which everything is free; `None` if unknown.
        expected_at: Option<TimeMs>,
    },
    /// Running units are being moved to make contiguous room for it.
    Moving {
        /// Number of units moved.
        moves: u64,
        /// GPU-milliseconds lost by the moves.
        cost_gpu_ms: u64,
        /// GPU-milliseconds of waiting saved by the moves.
        gain_gpu_ms: u64,
        /// Expected time at which everything is free; `None` if unknown.
        expected_at: Option<TimeMs>,
    },
    /// A job ahead of it in its queue waits for the same hosts, and the queue does not backfill.
    BehindHead {
        /// The job ahead.
        ahead: JobId,
    },
}

/// CPUs or memory missing on the hosts with free GPUs.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct RoomShortage {
    /// Whether the unit would fit if it requested no CPUs.
    pub lacks_cpus: bool,
    /// Whether the unit would fit if it requested no memory. If neither is set, both are short.
    pub lacks_memory: bool,
    /// CPUs that each task needs, in thousandths.
    pub need_cpus_milli: u32,
    /// Maximum free on a host with GPUs for a task, in thousandths.
    pub free_cpus_milli_max: u32,
    /// Memory that each task needs, in MiB.
    pub need_memory_mib: u64,
    /// Maximum free on such a host, in MiB.
    pub free_memory_mib_max: u64,
    /// Tasks of the unit that could be placed now.
    pub fits_tasks: u64,
    /// Tasks that the unit has.
    pub need_tasks: u64,
}

/// A missing cell with enough room.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct TopologyShortage {
    /// The required level.
    pub level: String,
    /// The group whose tasks must share a cell; `None` if the whole gang must.
    pub group: Option<String>,
    /// GPUs that must be in one cell.
    pub need_gpus: u64,
    /// The cell with the most free GPUs of an acceptable model; `None` if there is no cell.
    pub best: Option<String>,
    /// Free GPUs in that cell.
    pub best_free_gpus: u64,
    /// Free GPUs on acceptable hosts, in any cell.
    pub free_gpus: u64,
    /// Tasks of the unit that could be placed now.
    pub fits_tasks: u64,
    /// Tasks that the unit has.
    pub need_tasks: u64,
}

/// A host or GPU and the reason why it does not fit.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct UnfitTarget {
    /// Name of the host or GPU.
    pub name: String,
    /// Reason why no task can be placed there, as text for users.
    pub reason: String,
}

/// Remaining cells of a virtual cluster.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct CellsShortage {
    /// The queue of the virtual cluster.
    pub queue: String,
    /// GPUs that the unit needs.
    pub need_gpus: u64,
    /// GPUs that the virtual cluster can still count on: free GPUs in its bound cells and all GPUs of cells
    /// that it may still bind.
    pub left_gpus: u64,
    /// Its guarantee by kind of cell, largest first.
    pub kinds: Vec<KindQuota>,
    /// GPUs free outside its cells; `None` if the job may not run there.
    pub outside_free_gpus: Option<u64>,
}

/// Cells of one kind guaranteed to a virtual cluster.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct KindQuota {
    /// The kind, as text for users: `host of 8 H100`.
    pub kind: String,
    /// Number of guaranteed cells.
    pub guaranteed: u32,
    /// Number of bound cells.
    pub bound: u32,
}

/// A limit that blocks the unit, with its arithmetic: `used + asked > limit`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct LimitReached {
    /// The queue that has the limit.
    pub queue: String,
    /// The user, if the limit counts per user.
    pub user: Option<String>,
    /// Kind of the limit.
    pub kind: LimitKind,
    /// The resource: `gpus`, `gpus_by_model.H100`, `cpus_milli`, `memory_mib`.
    pub resource: String,
    /// Usage without the unit.
    pub used: u64,
    /// Amount that the unit requests.
    pub asked: u64,
    /// Usage with the unit.
    pub would_be: u64,
    /// The limit.
    pub limit: u64,
}

/// Kinds of limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum LimitKind {
    /// The queue's limit.
    Queue,
    /// The limit of each user of the queue.
    User,
    /// The guarantee of a queue that does not borrow.
    Guarantee,
}

impl LimitReached {
    /// Whether the limit is no longer reached once enough work of the queue has ended, regardless of its
    /// owner.
    #[must_use]
    pub const fn ends_with_others(&self) -> bool {
        self.user.is_none() && self.asked <= self.limit
    }
}

impl Blocker {
    /// The reported reason that this blocker belongs to.
    #[must_use]
    pub const fn reason(&self) -> Reason {
        match self {
            Self::BackOff { .. } => Reason::BackOff,
            Self::Cancelling => Reason::Cancelling,
            Self::Suspended { .. } => Reason::Suspended,
            Self::Dependencies { .. } => Reason::Dependencies,
            Self::Vacancy { .. } => Reason::Vacancy,
            Self::TasksAtOnce { .. } => Reason::TasksAtOnce,
            Self::NoSuchHost { .. } | Self::ExceedsCluster { .. } => Reason::Impossible,
            Self::Resources { .. } => Reason::Resources,
            Self::Room(_) => Reason::Room,
            Self::Topology(_) => Reason::Topology,
            Self::TasksPerHost { .. } => Reason::TasksPerHost,
            Self::ExclusiveHosts { .. } => Reason::OwnHosts,
            Self::Named { .. } => Reason::Named,
            Self::Excluded { .. } => Reason::Excluded,
            Self::Model { .. } => Reason::Model,
            Self::Cells(_) => Reason::Cells,
            Self::ReservedByOthers { .. } => Reason::ReservedByOthers,
            Self::SearchBound { .. } => Reason::SearchBound,
            Self::Limit(_) => Reason::Limit,
            Self::Reserved { .. } => Reason::Reserved,
            Self::Moving { .. } => Reason::Moving,
            Self::BehindHead { .. } => Reason::Behind,
        }
    }

    /// Whether the unit may start when others end: it waits for room and is entitled to it.
    #[must_use]
    pub const fn waits_for_room(&self) -> bool {
        !matches!(
            self,
            Self::BackOff { .. }
                | Self::Cancelling
                | Self::Suspended { .. }
                | Self::Dependencies { .. }
                | Self::Vacancy { .. }
                | Self::TasksAtOnce { .. }
                | Self::NoSuchHost { .. }
                | Self::ExceedsCluster { .. }
                | Self::Limit(_)
                | Self::BehindHead { .. }
        )
    }
}
