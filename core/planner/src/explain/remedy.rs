//! Remedies: what would let a waiting job start, to be shown to its user.

use std::fmt;

use muster_model::command::BlockTarget;
use muster_model::ids::JobId;
use muster_model::time::TimeMs;
use serde::{Deserialize, Serialize};

use crate::{Change, LimitReached};

/// A change that would let a job run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Remedy {
    /// Only time helps.
    Wait {
        /// End of the wait.
        until: TimeMs,
    },
    /// The job ahead must be placed, changed or cancelled.
    PlaceAhead {
        /// The job ahead.
        ahead: JobId,
    },
    /// The limit must be raised to the amount that would be used, or others in the queue must end.
    RaiseLimit {
        /// The limit.
        limit: Box<LimitReached>,
    },
    /// The queue must be allowed to borrow idle resources.
    Borrow {
        /// The queue.
        queue: String,
    },
    /// Hosts and GPUs must be unblocked.
    Unblock {
        /// Blocks to remove.
        targets: Vec<BlockTarget>,
    },
    /// The job must change its request.
    Change {
        /// The change.
        change: Box<Change>,
    },
    /// The given number of additional free GPUs on this host suffices.
    FreeGpus {
        /// Number of GPUs.
        gpus: u32,
        /// The host that lacks the fewest GPUs.
        host: String,
    },
    /// Room is missing for the given number of tasks.
    FreeRoom {
        /// Number of tasks.
        tasks: u64,
        /// Requirements of each task.
        each: String,
    },
    /// The cluster must grow, or the job must request less.
    Grow {
        /// Missing resources.
        need: String,
    },
}

impl fmt::Display for Remedy {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Wait { until } => write!(formatter, "wait until {until}"),
            Self::PlaceAhead { ahead } => {
                write!(formatter, "job {ahead} is ahead and must go first")
            }
            Self::RaiseLimit { limit } => {
                let LimitReached {
                    queue,
                    user,
                    resource,
                    would_be,
                    limit,
                    asked,
                    ..
                } = limit.as_ref();
                let more = would_be.saturating_sub(*limit);
                match user {
                    Some(_) => write!(formatter, "let each user of queue {queue} have ")?,
                    None => write!(formatter, "let queue {queue} have ")?,
                }
                write!(formatter, "{would_be} {resource} ({more} more), or ")?;
                formatter.write_str(if asked > limit {
                    "ask for less"
                } else {
                    "wait for others there to end"
                })
            }
            Self::Borrow { queue } => {
                write!(formatter, "let queue {queue} borrow what others leave idle")
            }
            Self::Unblock { targets } => {
                formatter.write_str("unblock ")?;
                for (position, target) in targets.iter().enumerate() {
                    let comma = if position > 0 { ", " } else { "" };
                    match target {
                        BlockTarget::Host(name) => write!(formatter, "{comma}host {name}")?,
                        BlockTarget::Gpu(gpu) => write!(formatter, "{comma}{gpu}")?,
                    }
                }
                Ok(())
            }
            Self::Change { change } => change.fmt(formatter),
            Self::FreeGpus { gpus, host } => {
                write!(
                    formatter,
                    "{gpus} more free GPUs on one host ({host} is nearest)"
                )
            }
            Self::FreeRoom { tasks, each } => {
                write!(formatter, "room for {tasks} more tasks, each with {each}")
            }
            Self::Grow { need } => write!(formatter, "add {need}, or ask for less"),
        }
    }
}
