//! What would let a job run.

use std::fmt;

use muster_model::command::BlockTarget;
use muster_model::ids::JobId;
use muster_model::time::TimeMs;
use serde::{Deserialize, Serialize};

use crate::{Change, LimitReached};

/// A change that would let a job run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Remedy {
    /// Nothing but time.
    Wait {
        /// Until when.
        until: TimeMs,
    },
    /// The job ahead has to be placed, changed or cancelled.
    PlaceAhead {
        /// Which one.
        ahead: JobId,
    },
    /// The limit has to be raised to what there would be, or others in the queue have to end.
    RaiseLimit {
        /// Which one.
        limit: Box<LimitReached>,
    },
    /// The queue has to be allowed what others leave idle.
    Borrow {
        /// Which one.
        queue: String,
    },
    /// Hosts and GPUs have to be let back in.
    Unblock {
        /// Which ones.
        targets: Vec<BlockTarget>,
    },
    /// The job has to ask for something else.
    Change {
        /// What.
        change: Box<Change>,
    },
    /// So many more free GPUs on this host are enough.
    FreeGpus {
        /// How many.
        gpus: u32,
        /// The host that lacks the fewest.
        host: String,
    },
    /// Room for so many more tasks is missing.
    FreeRoom {
        /// How many tasks.
        tasks: u64,
        /// What each of them needs.
        each: String,
    },
    /// The cluster has to grow, or the job to ask for less.
    Grow {
        /// What is missing.
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
