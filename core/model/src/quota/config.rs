//! Configuration of queues.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::limits;
use crate::quota::{Amounts, Defragment, Limits};

/// The queue tree; a queue's position is its name: `research/vision` is a child of `research`.
///
/// Jobs are submitted to queues without children. The queue `default` exists even if it is not listed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct QueueTree {
    /// Queues by full name.
    pub queues: BTreeMap<String, QueueConfig>,
    /// Half-life in milliseconds of past usage in fair shares; `None`: only current usage counts.
    pub history_half_life_ms: Option<u64>,
    /// Bounds for defragmentation moves of running work; `None`: no moves.
    pub defragment: Option<Defragment>,
}

/// One queue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct QueueConfig {
    /// Weight among its siblings in the distribution of idle resources; at least 1.
    pub weight: u32,
    /// Order in which its jobs are considered.
    pub order: QueueOrder,
    /// Resources it gets whenever it asks. A queue's guarantee covers those of its children.
    pub guarantee: Guarantee,
    /// Maximum, its children included.
    pub limit: Limits,
    /// Maximum for each of its users.
    pub user_limit: Limits,
    /// Whether it may borrow idle resources beyond its guarantee.
    pub borrow: bool,
    /// Whether a job may preempt one of lower priority in the same queue.
    pub preempt_by_priority: bool,
    /// Whether jobs may be placed ahead of one that waits for resources.
    pub backfill: bool,
    /// Milliseconds that the job at the head waits before resources are reserved for it: it then starts when
    /// the work running there has ended.
    pub reserve_after_ms: u64,
    /// Milliseconds that an attempt runs before it may be preempted.
    pub protected_ms: u64,
    /// Whether its running work may be moved for defragmentation, if the tree allows it (`defragment`).
    pub movable: bool,
    /// Maximum number of unfinished jobs.
    pub live_jobs_max: u64,
}

/// Order in which the jobs of one queue are considered.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
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

/// Guarantee of a queue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Guarantee {
    /// Amounts of resources, at any location.
    Amounts(Amounts),
    /// Cells: the queue is a virtual cluster.
    Cells(Vec<CellQuota>),
}

/// Guaranteed cells of one kind in a virtual cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CellQuota {
    /// The level of the cells: `rack`, `host`, `socket`, `gpu`, ...
    pub level: String,
    /// GPU model of the cells.
    pub gpu_model: String,
    /// GPUs per cell.
    pub gpus: u32,
    /// Number of cells.
    #[serde(default)]
    pub count: u32,
    /// Cells bound to it permanently, besides `count`: paths above hosts (`pod-1/rack-07`), or host names,
    /// for cells inside hosts followed by `:` and the position of their first GPU (`node07:4`).
    #[serde(default)]
    pub pinned: Vec<PinnedCell>,
}

/// A cell bound to a virtual cluster permanently.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PinnedCell {
    /// The name by which jobs request it; unique.
    pub name: String,
    /// The cell, written as in [`CellQuota::pinned`].
    pub cell: String,
}

impl Default for Guarantee {
    fn default() -> Self {
        Self::Amounts(Amounts::default())
    }
}

impl Default for QueueConfig {
    /// No guarantee and no limit, weight 1, by priority without preemption, backfill, a reservation after ten
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

/// Name of the parent queue; `None` for a top-level queue.
#[must_use]
pub fn parent_of(name: &str) -> Option<&str> {
    name.rsplit_once('/').map(|(parent, _)| parent)
}

/// A queue and its ancestors, itself first.
pub fn within(name: &str) -> impl Iterator<Item = &str> {
    std::iter::successors(Some(name), |name| parent_of(name))
}
