//! Why a job is not placed: a type for every reason, with the figures that make it so.

use muster_model::ids::{JobId, TaskIndex};
use muster_model::spec::Dependency;
use muster_model::time::TimeMs;
use serde::{Deserialize, Serialize};

use crate::Reason;

/// Why a job (its next waiting unit) is not placed now.
///
/// Where room is missing, one reason is named: the condition of the job without which it would fit now, tried out with
/// the search that places; if there is none, too few GPUs are free.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Blocker {
    /// It waits for the end of a back-off.
    BackOff {
        /// Until when.
        until: TimeMs,
    },
    /// The job is being cancelled.
    Cancelling,
    /// Somebody suspended the job.
    Suspended {
        /// Who.
        author: String,
        /// Why; may be empty.
        reason: String,
    },
    /// It waits for other jobs to end.
    Dependencies {
        /// Those that have not, and how they must end; the first few.
        open: Vec<Dependency>,
        /// How many there are in all.
        total: u64,
    },
    /// Its gang goes on, and the place of one member is vacant: there is no room for that one, or it is to wait.
    Vacancy {
        /// The member.
        task: TaskIndex,
        /// Since when.
        since: TimeMs,
        /// It is not filled before then.
        not_before: TimeMs,
        /// The gang is restarted whole if it is not filled by then.
        until: TimeMs,
        /// How the member ended.
        detail: String,
    },
    /// As many of its units hold resources as may at a time.
    TasksAtOnce {
        /// How many may (`tasks_at_once_max`).
        max: u32,
    },
    /// No host of an acceptable class exists at all, or none is large enough even when empty.
    NoSuchHost {
        /// What is asked for, for people.
        need: String,
    },
    /// The cluster could never hold the gang, even empty and unblocked.
    ExceedsCluster {
        /// GPUs that the gang needs.
        need_gpus: u64,
        /// GPUs that acceptable hosts have in all.
        have_gpus: u64,
    },
    /// Too few GPUs are free now, in all or in pieces that are large enough.
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
    /// There are CPUs or memory for too few tasks where the GPUs are.
    Room(Box<RoomShort>),
    /// There would be room, but not within one cell of the level that the job requires.
    Topology(Box<TopologyShort>),
    /// There would be room if more tasks of the group might share a host.
    TasksPerHost {
        /// The group.
        group: String,
        /// The most that may be on a host.
        limit: u32,
        /// Tasks of the unit that could be placed now.
        fits_tasks: u64,
        /// Tasks that the unit has.
        need_tasks: u64,
    },
    /// There would be room if others might share its hosts: it wants them for itself.
    OwnHosts {
        /// Who is on hosts that would do otherwise; the first few.
        jobs: Vec<JobId>,
        /// Tasks of the unit that could be placed now.
        fits_tasks: u64,
        /// Tasks that the unit has.
        need_tasks: u64,
    },
    /// There would be room elsewhere than on the hosts or GPUs that the job names, or there is, on hosts without the
    /// container engine that it needs.
    Named {
        /// Those that it names, or that lack an engine, and why they do not do; the first few.
        places: Vec<NamedPlace>,
    },
    /// There would be room on hosts that the job excludes.
    Excluded {
        /// Which ones.
        hosts: Vec<String>,
    },
    /// There would be room on GPUs of models that the job does not accept.
    Model {
        /// Models that it accepts.
        asked: Vec<String>,
        /// Models on which it would fit now.
        others: Vec<String>,
        /// GPUs that the unit needs.
        need_gpus: u64,
        /// GPUs of accepted models that are free.
        free_gpus: u64,
    },
    /// Its virtual cluster has no cells for it now, and there is no room outside of them either, or it may not go there.
    Cells(Box<CellsShort>),
    /// Room that is free is reserved for others, and it might not be gone in time.
    ReservedByOthers {
        /// For whom; the first few.
        jobs: Vec<JobId>,
        /// When the last of them should start; none if nobody can tell.
        until: Option<TimeMs>,
    },
    /// Nobody knows: the search for room ended at its bound, and is made again when something changes.
    SearchBound {
        /// GPUs that the unit needs.
        need_gpus: u64,
        /// GPUs free on acceptable hosts.
        free_gpus: u64,
    },
    /// Its queue, or one around it, or its user there, would have more than is allowed.
    Limit(Box<LimitReached>),
    /// Resources are reserved for it, and it starts as soon as they are free.
    Reserved {
        /// Attempts that were stopped for it; 0 if it waits for others to end by themselves.
        victims: u64,
        /// When all should be free; none if nobody can tell.
        expected_at: Option<TimeMs>,
    },
    /// Room is being made for it in one piece: others are moved to where they fit as well.
    Moving {
        /// Units that are moved.
        moves: u64,
        /// GPU-milliseconds that the moves lose.
        cost_gpu_ms: u64,
        /// GPU-milliseconds that it would have waited longer without them.
        gain_gpu_ms: u64,
        /// When all should be free; none if nobody can tell.
        expected_at: Option<TimeMs>,
    },
    /// A job ahead of it in its queue waits for the same hosts, and the queue does not backfill.
    Behind {
        /// The job ahead.
        ahead: JobId,
    },
}

/// CPUs or memory that are missing where the GPUs are.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct RoomShort {
    /// Whether it would fit if it asked for no CPUs.
    pub lacks_cpus: bool,
    /// Whether it would fit if it asked for no memory. If neither, it lacks both.
    pub lacks_memory: bool,
    /// Thousandths of CPUs that each task needs.
    pub need_cpus_milli: u32,
    /// The most that are free on a host with GPUs for a task.
    pub free_cpus_milli_max: u32,
    /// Memory that each task needs, in MiB.
    pub need_memory_mib: u64,
    /// The most that is free on such a host, in MiB.
    pub free_memory_mib_max: u64,
    /// Tasks of the unit that could be placed now.
    pub fits_tasks: u64,
    /// Tasks that the unit has.
    pub need_tasks: u64,
}

/// A cell with enough room is missing.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct TopologyShort {
    /// The level that is required.
    pub level: String,
    /// The group whose tasks have to share a cell; none if the whole gang has to.
    pub group: Option<String>,
    /// GPUs that have to lie in one cell.
    pub need_gpus: u64,
    /// The cell with the most free GPUs of an acceptable model; none if there is no cell.
    pub best: Option<String>,
    /// GPUs free there.
    pub best_free_gpus: u64,
    /// GPUs free on acceptable hosts, wherever they lie.
    pub free_gpus: u64,
    /// Tasks of the unit that could be placed now.
    pub fits_tasks: u64,
    /// Tasks that the unit has.
    pub need_tasks: u64,
}

/// A host or GPU, and why it does not do.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct NamedPlace {
    /// Its name.
    pub name: String,
    /// Why no task can go there, for people.
    pub why: String,
}

/// What a virtual cluster may still have.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct CellsShort {
    /// The virtual cluster: its queue.
    pub queue: String,
    /// GPUs that the unit needs.
    pub need_gpus: u64,
    /// GPUs that the cluster can still count on: free ones in its bound cells, and all of the cells that it may still bind.
    pub left_gpus: u64,
    /// Its guarantee by kind of cell, largest first.
    pub kinds: Vec<KindQuota>,
    /// GPUs free outside of its cells, if it may go there.
    pub outside_free_gpus: Option<u64>,
}

/// Cells of one kind that a virtual cluster is guaranteed.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct KindQuota {
    /// The kind, for people: `host of 8 H100`.
    pub kind: String,
    /// Cells guaranteed.
    pub guaranteed: u32,
    /// Cells bound.
    pub bound: u32,
}

/// A limit in the way, with its arithmetic: `used + asked > limit`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct LimitReached {
    /// The queue that has the limit.
    pub queue: String,
    /// The user, if it counts by user.
    pub user: Option<String>,
    /// Which kind.
    pub kind: LimitKind,
    /// The resource: `gpus`, `gpus_by_model.H100`, `cpus_milli`, `memory_mib`.
    pub resource: String,
    /// How much of it there is without the unit.
    pub used: u64,
    /// How much the unit asks for.
    pub asked: u64,
    /// How much of it there would be with the unit.
    pub would_be: u64,
    /// How much there may be.
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
    /// Whether it is reached no more once enough work of the queue has ended, whoever's that is.
    #[must_use]
    pub const fn ends_with_others(&self) -> bool {
        self.user.is_none() && self.asked <= self.limit
    }
}

impl Blocker {
    /// The reason that it is one of.
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
            Self::OwnHosts { .. } => Reason::OwnHosts,
            Self::Named { .. } => Reason::Named,
            Self::Excluded { .. } => Reason::Excluded,
            Self::Model { .. } => Reason::Model,
            Self::Cells(_) => Reason::Cells,
            Self::ReservedByOthers { .. } => Reason::ReservedByOthers,
            Self::SearchBound { .. } => Reason::SearchBound,
            Self::Limit(_) => Reason::Limit,
            Self::Reserved { .. } => Reason::Reserved,
            Self::Moving { .. } => Reason::Moving,
            Self::Behind { .. } => Reason::Behind,
        }
    }

    /// Whether it may go when others end: it waits for room, and could have it.
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
                | Self::Behind { .. }
        )
    }
}
