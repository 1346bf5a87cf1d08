//! Eligibility and cost of moves that defragment the cluster: used by the planner to find moves, and by
//! `apply` to check them.
//!
//! A move stops an attempt and claims the destination of its unit in one step. No other unit gets that place
//! in between, so a moved unit runs again as soon as it has stopped. It has to wait only if the destination
//! is lost (its host goes down, or a unit that could have preempted it at its old place too takes it). It
//! then keeps its former position in its queue.

use std::fmt;

use muster_model::command::AllocationBasis;
use muster_model::ids::UnitId;
use muster_model::lifecycle::UnitPhase;
use muster_model::quota::Defragment;
use muster_model::time::TimeMs;

use crate::rights::lost_work_ms;
use crate::state::{Purpose, Running, State, Unit};

/// Reason why an attempt cannot be moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Immovable {
    /// Its queue is not `movable`, or is retired.
    Queue,
    /// It does not hold its resources by its queue's share: cells fix the location, and opportunistic work is
    /// preempted instead.
    AllocationBasis,
    /// It is being stopped, is paused, or does not run yet.
    NotRunning,
    /// It has not run for its queue's `protected_ms`.
    Protected {
        /// End of the protection.
        until: TimeMs,
    },
    /// It was moved recently.
    Moved {
        /// Earliest time of the next move.
        until: TimeMs,
    },
    /// It has committed no checkpoint and has run longer than `young_ms`.
    NoCheckpoint,
}

impl fmt::Display for Immovable {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Queue => formatter.write_str("its queue is not movable (movable)"),
            Self::AllocationBasis => formatter.write_str("only work on its queue's share is moved"),
            Self::NotRunning => {
                formatter.write_str("it does not run, is suspended, or is being stopped")
            }
            Self::Protected { until } => {
                write!(formatter, "it is protected until {until} (protected_ms)")
            }
            Self::Moved { until } => {
                write!(
                    formatter,
                    "it was moved and stays until {until} (interval_ms)"
                )
            }
            Self::NoCheckpoint => formatter
                .write_str("it has committed no checkpoint and ran for too long (young_ms)"),
        }
    }
}

/// Checks whether an attempt may be moved at `State::time`.
///
/// # Errors
/// The reason why it cannot be moved.
pub fn may_move(state: &State, config: &Defragment, running: Running<'_>) -> Result<(), Immovable> {
    let Running {
        job, unit, attempt, ..
    } = running;
    let queue = state.queues.get(job.spec.queue.as_str());
    let queue = queue.filter(|queue| queue.config.movable && !queue.retired);
    let queue = queue.ok_or(Immovable::Queue)?;
    if attempt.allocation_basis != AllocationBasis::Share {
        return Err(Immovable::AllocationBasis);
    }
    let running_at = attempt.running_at;
    let is_complete = attempt.vacancy().is_none() && attempt.leaving().is_none();
    let is_free = is_complete && attempt.stop.is_none() && job.suspension.is_none();
    let running_at = running_at.filter(|_| is_free);
    let running_at = running_at.ok_or(Immovable::NotRunning)?;
    let now = state.time;
    let until = running_at.after(queue.config.protected_ms);
    if until > now {
        return Err(Immovable::Protected { until });
    }
    if let Some(moved_at) = unit.moved_at
        && let until = moved_at.after(config.interval_ms)
        && until > now
    {
        return Err(Immovable::Moved { until });
    }
    if unit.checkpoints.is_empty() && now.since(running_at) > config.young_ms {
        return Err(Immovable::NoCheckpoint);
    }
    Ok(())
}

/// Returns the GPU-milliseconds that a move costs: the work since the newest checkpoint, and the idle time of
/// its GPUs while it stops and starts again.
#[must_use]
pub fn cost_gpu_ms(config: &Defragment, running: Running<'_>, now: TimeMs) -> u64 {
    let Running {
        job, unit, attempt, ..
    } = running;
    let gpus: usize = attempt.tasks.iter().map(|run| run.gpus.len()).sum();
    let still_ms = job.spec.stop_grace_ms.saturating_add(config.restart_ms);
    lost_work_ms(unit, attempt, now).saturating_add(still_ms.saturating_mul(gpus.max(1) as u64))
}

/// Whether moves are worth their cost.
#[must_use]
pub const fn is_worth(config: &Defragment, cost_gpu_ms: u64, gain_gpu_ms: u64) -> bool {
    cost_gpu_ms <= cost_gpu_ms_max(config, gain_gpu_ms)
}

/// Returns the maximum cost of moves with this gain.
#[must_use]
pub const fn cost_gpu_ms_max(config: &Defragment, gain_gpu_ms: u64) -> u64 {
    gain_gpu_ms / 100 * config.cost_percent_max as u64
}

/// Returns the number of units being moved: they have a claim at their destination and do not run there yet.
#[must_use]
pub fn in_flight(state: &State) -> u32 {
    let moving = state.index.claims.keys();
    let moving = moving.filter(|id| moved_unit(state, **id).is_some());
    u32::try_from(moving.count()).unwrap_or(u32::MAX)
}

/// Whether some unit still holds its old place besides its destination: the usage of its queues is
/// temporarily too high.
#[must_use]
pub fn counts_twice(state: &State) -> bool {
    state.index.claims.keys().any(|id| {
        let moved = moved_unit(state, *id);
        moved.is_some_and(|unit| unit.phase != UnitPhase::Waiting)
    })
}

/// Returns the record of a unit that has a claim at its destination.
fn moved_unit(state: &State, id: UnitId) -> Option<&Unit> {
    let unit = state.unit(id)?;
    let claim = unit.claim.as_deref()?;
    matches!(claim.purpose, Purpose::Destination { .. }).then_some(unit)
}
