//! The configuration of queues.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::limits;
use crate::quota::{Amounts, Defragment, Limits};

/// All queues; a queue's place in the tree is its name: `research/vision` lies in `research`.
///
/// Jobs are submitted to queues without children. The queue `default` exists also where it is not named.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct QueueTree {
    /// Queues by full name.
    pub queues: BTreeMap<String, QueueConfig>,
    /// Milliseconds in which past usage comes to count half in fair shares; none: only present usage counts.
    pub history_half_life_ms: Option<u64>,
    /// How running work may be moved to make room in one piece; none: it is not.
    pub defragment: Option<Defragment>,
}

/// One queue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct QueueConfig {
    /// Its share of what is left over, against its siblings' weights; at least 1.
    pub weight: u32,
    /// In which order its jobs are considered.
    pub order: QueueOrder,
    /// What it gets whenever it asks. A queue's guarantee covers those of its children.
    pub guarantee: Guarantee,
    /// What it never exceeds, its children included.
    pub limit: Limits,
    /// What none of its users exceeds in it.
    pub user_limit: Limits,
    /// Whether it may use what others leave idle, beyond its guarantee.
    pub borrow: bool,
    /// Whether a job here may preempt one of lower priority of the same queue.
    pub preempt_by_priority: bool,
    /// Whether jobs may be placed before one ahead of them that waits for room.
    pub backfill: bool,
    /// Milliseconds that a job at the head waits for room before room is reserved for it: it then starts when the
    /// work now running there has ended.
    pub reserve_after_ms: u64,
    /// Milliseconds that an attempt here runs before it may be preempted.
    pub protected_ms: u64,
    /// Whether running work of it may be moved to make room in one piece, where the tree says how (`defragment`).
    pub movable: bool,
    /// Unfinished jobs at a time.
    pub live_jobs_max: u64,
}

/// In which order the jobs of one queue are considered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum QueueOrder {
    /// By priority, then by age.
    #[default]
    Priority,
    /// By age.
    Fifo,
    /// By the users' dominant shares, the smallest first; then by priority and age.
    Fair,
}

/// What a queue gets whenever it asks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Guarantee {
    /// So much of each resource, wherever it is.
    Amounts(Amounts),
    /// Cells: the queue is a virtual cluster.
    Cells(Vec<CellQuota>),
}

/// Cells of one kind that a virtual cluster is guaranteed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CellQuota {
    /// The level of the cells: `rack`, `host`, `socket`, `gpu`, ...
    pub level: String,
    /// Their GPU model.
    pub gpu_model: String,
    /// GPUs of each.
    pub gpus: u32,
    /// How many.
    #[serde(default)]
    pub count: u32,
    /// Cells bound to it for good, beside `count`: paths above hosts (`pod-1/rack-07`), or host names, for cells inside
    /// hosts followed by `:` and their first GPU's position (`node07:4`).
    #[serde(default)]
    pub pinned: Vec<PinnedCell>,
}

/// A cell bound to a virtual cluster for good.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PinnedCell {
    /// The name by which jobs ask for it; unique.
    pub name: String,
    /// Which cell, as in [`CellQuota::pinned`].
    pub cell: String,
}

impl Default for Guarantee {
    fn default() -> Self {
        Self::Amounts(Amounts::default())
    }
}

impl Default for QueueConfig {
    /// No guarantee and no limit, weight 1, by priority without preemption, backfill, room reserved after ten
    /// minutes at the head.
    fn default() -> Self {
        Self {
            weight: 1,
            order: QueueOrder::default(),
            guarantee: Guarantee::default(),
            limit: Limits::default(),
            user_limit: Limits::default(),
            borrow: true,
            preempt_by_priority: false,
            backfill: true,
            reserve_after_ms: 600_000,
            protected_ms: 0,
            movable: false,
            live_jobs_max: limits::LIVE_JOBS_PER_QUEUE_MAX,
        }
    }
}

impl QueueConfig {
    /// Whether its guarantee is given in cells.
    #[must_use]
    pub const fn is_virtual_cluster(&self) -> bool {
        matches!(self.guarantee, Guarantee::Cells(_))
    }
}

/// The queue around one; none for a queue of the top level.
#[must_use]
pub fn parent_of(name: &str) -> Option<&str> {
    name.rsplit_once('/').map(|(parent, _)| parent)
}

/// A queue and all those around it, itself first.
pub fn within(name: &str) -> impl Iterator<Item = &str> {
    std::iter::successors(Some(name), |name| parent_of(name))
}
