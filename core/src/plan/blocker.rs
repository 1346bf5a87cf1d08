//! Why a job is not placed: a type for every reason.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::ids::JobId;
use crate::time::TimeMs;

/// Why a job (its next waiting unit) is not placed now.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Blocker {
    /// It waits for the end of a back-off.
    BackOff {
        /// Until when.
        until: TimeMs,
    },
    /// The job is being cancelled.
    Cancelling,
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
    /// Not enough is free now.
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

/// A limit in the way, with its arithmetic.
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

impl fmt::Display for LimitReached {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            queue,
            resource,
            would_be,
            limit,
            ..
        } = self;
        let kind = match self.kind {
            LimitKind::Queue => "limit",
            LimitKind::User => "user_limit",
            LimitKind::Guarantee => "guarantee (it does not borrow)",
        };
        if let Some(user) = &self.user {
            write!(formatter, "user {user} in ")?;
        }
        write!(
            formatter,
            "queue {queue} would have {would_be} {resource}, its {kind} is {limit}"
        )
    }
}

/// A blocker without its figures: what metrics count by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Reason {
    /// [`Blocker::BackOff`].
    BackOff,
    /// [`Blocker::Cancelling`].
    Cancelling,
    /// [`Blocker::NoSuchHost`] and [`Blocker::ExceedsCluster`].
    Impossible,
    /// [`Blocker::Resources`].
    Resources,
    /// [`Blocker::Limit`].
    Limit,
    /// [`Blocker::Reserved`] and [`Blocker::Moving`].
    Reserved,
    /// [`Blocker::Behind`].
    Behind,
}

impl Reason {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::BackOff,
        Self::Cancelling,
        Self::Impossible,
        Self::Resources,
        Self::Limit,
        Self::Reserved,
        Self::Behind,
    ];

    /// Its name in metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::BackOff => "back_off",
            Self::Cancelling => "cancelling",
            Self::Impossible => "impossible",
            Self::Resources => "resources",
            Self::Limit => "limit",
            Self::Reserved => "reserved",
            Self::Behind => "behind",
        }
    }
}

impl Blocker {
    /// The reason that it is one of.
    #[must_use]
    pub const fn reason(&self) -> Reason {
        match self {
            Self::BackOff { .. } => Reason::BackOff,
            Self::Cancelling => Reason::Cancelling,
            Self::NoSuchHost { .. } | Self::ExceedsCluster { .. } => Reason::Impossible,
            Self::Resources { .. } => Reason::Resources,
            Self::Limit(_) => Reason::Limit,
            Self::Reserved { .. } | Self::Moving { .. } => Reason::Reserved,
            Self::Behind { .. } => Reason::Behind,
        }
    }
}

/// Waiting jobs by reason; no entry is 0.
pub type WaitingByReason = BTreeMap<Reason, u64>;
