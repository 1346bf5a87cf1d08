//! Blocks of hosts and GPUs, and their impact.

use muster_proto::v1;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::instant::Instant;

/// Why a host or GPU is out of placement, or will be.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Block {
    pub reason: String,
    pub author: String,
    /// May be empty.
    pub evidence: String,
    pub since: Instant,
    pub expires_at: Option<Instant>,
    /// Time by which running tasks have to leave; null if they may stay.
    pub drain_deadline: Option<Instant>,
    /// Start of a planned block.
    pub planned_at: Option<Instant>,
    /// Time before the start in which only work that ends in time is placed.
    pub notice_ms: Option<u64>,
}

impl From<v1::Block> for Block {
    fn from(block: v1::Block) -> Self {
        let instant = |ms| Instant { ms };
        Self {
            reason: block.reason,
            author: block.author,
            evidence: block.evidence,
            since: instant(block.since_ms),
            expires_at: block.expires_at_ms.map(instant),
            drain_deadline: block.drain_deadline_ms.map(instant),
            planned_at: block.planned.map(|planned| instant(planned.at_ms)),
            notice_ms: block.planned.map(|planned| planned.notice_ms),
        }
    }
}

from_wire!(Block, v1::Block);

/// Impact of the block of one host or GPU, done, planned, or tried in a dry run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct BlockImpact {
    pub target: String,
    pub revision: u64,
    pub dry_run: bool,
    pub begins_at: Option<Instant>,
    pub gpus: u32,
    pub gpus_free: u32,
    pub jobs_total: u32,
    /// The first of the affected jobs.
    pub jobs: Vec<BlockedJob>,
    pub pool: String,
    /// Hosts of the pool that still accept work; a dry run or a plan also excludes the targets before this one.
    pub pool_hosts_left: u32,
    pub pool_gpus_left: u32,
    /// Whether no other of the pool accepts work.
    pub takes_last: bool,
    /// The block, or plan, that this one replaces.
    pub replaces: Option<Block>,
}

impl BlockImpact {
    /// The impact of a block of `target`, from the answer to it; `begins_at_ms` is its start if it is planned.
    #[must_use]
    pub fn new(
        target: String,
        dry_run: bool,
        begins_at_ms: Option<u64>,
        answer: v1::BlockResponse,
    ) -> Self {
        let impact = answer.impact.unwrap_or_default();
        Self {
            target,
            revision: answer.revision,
            dry_run,
            begins_at: begins_at_ms.map(|ms| Instant { ms }),
            gpus: impact.gpus,
            gpus_free: impact.gpus_free,
            jobs_total: impact.jobs_total,
            jobs: impact.jobs.into_iter().map(BlockedJob::from).collect(),
            pool: impact.pool,
            pool_hosts_left: impact.pool_hosts_left,
            pool_gpus_left: impact.pool_gpus_left,
            takes_last: impact.takes_last,
            replaces: impact.replaces.map(Block::from),
        }
    }
}

documents! {
    /// A job on a host or GPU that is blocked.
    pub struct BlockedJob from v1::ImpactedJob {
        id: u64 = job_id,
        name: String,
        user: String,
        queue: String,
        units: u32,
        gpus: u32,
    }
}

/// The answer to an unblock.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct UnblockedTarget {
    pub target: String,
    pub revision: u64,
}
