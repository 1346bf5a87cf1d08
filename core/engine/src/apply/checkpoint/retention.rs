//! Retention of checkpoints and removal of their folders.
//!
//! The newest checkpoints that are not damaged are kept, and those that the policy keeps besides. Spoiled
//! ones among the newest stay recorded: they count as consecutive. A folder is removed only if its step is
//! below all that are kept, because a later attempt writes steps above the one it resumes from, and never if
//! a kept checkpoint has the same path.

use muster_model::job::{Checkpoint, Removal};
use muster_model::limits;
use muster_model::spec::CheckpointPolicy;

use crate::state::Unit;

/// Steps of checkpoints that are no longer kept, ascending.
#[derive(Debug, Default)]
pub(in crate::apply) struct Forgotten {
    /// Steps whose folders are to be removed.
    pub(in crate::apply) removed: Vec<u64>,
    /// Steps whose folders stay.
    pub(in crate::apply) left: Vec<u64>,
}

/// Removes the records that the policy does not keep.
pub(in crate::apply) fn retain(unit: &mut Unit, policy: CheckpointPolicy) -> Forgotten {
    let Some(oldest) = oldest_kept(&unit.checkpoints, policy.kept_min) else {
        return Forgotten::default();
    };
    let is_milestone = |checkpoint: &Checkpoint| {
        let every = policy.kept_every.unwrap_or(0);
        every > 0 && checkpoint.step.is_multiple_of(every) && checkpoint.damaged.is_none()
    };
    let mut position = 0;
    let mut forgotten = Vec::new();
    unit.checkpoints.retain(|checkpoint| {
        let is_kept = position >= oldest || is_milestone(checkpoint);
        position += 1;
        if !is_kept {
            forgotten.push(checkpoint.clone());
        }
        is_kept
    });
    let mut steps: Vec<u64> = forgotten.iter().map(|it| it.step).collect();
    steps.sort_unstable();
    if policy.remove {
        remove(unit, forgotten);
    }
    let is_removed = |step: &u64| unit.removals.iter().any(|removal| removal.step == *step);
    let (removed, left) = steps.into_iter().partition(is_removed);
    Forgotten { removed, left }
}

/// Returns the position of the oldest of the `kept_min` newest readable checkpoints; `None` if there are no
/// more than those.
fn oldest_kept(checkpoints: &[Checkpoint], kept_min: u32) -> Option<usize> {
    let kept_min = kept_min.max(limits::CHECKPOINTS_KEPT_MIN);
    let newest_first = checkpoints.iter().enumerate().rev();
    let mut good = newest_first.filter(|(_, checkpoint)| checkpoint.damaged.is_none());
    let oldest = good.nth((kept_min - 1) as usize);
    oldest.map(|(position, _)| position)
}

fn remove(unit: &mut Unit, forgotten: Vec<Checkpoint>) {
    unit.removals
        .extend(forgotten.into_iter().map(|it| Removal {
            epoch: it.epoch,
            step: it.step,
            path: it.path,
        }));
    spare_reusable_folders(unit);
    let over = unit
        .removals
        .len()
        .saturating_sub(limits::REMOVALS_PER_UNIT_MAX);
    unit.removals.drain(..over);
}

/// Spares folders that a later attempt may write again: those from the newest readable checkpoint on, and
/// those that contain a kept one.
pub(in crate::apply) fn spare_reusable_folders(unit: &mut Unit) {
    let good = unit.checkpoints.iter().filter(|it| it.damaged.is_none());
    let newest = good.map(|it| it.step).max();
    let kept = &unit.checkpoints;
    unit.removals.retain(|removal| {
        let is_below = newest.is_some_and(|newest| removal.step < newest);
        is_below
            && kept
                .iter()
                .all(|checkpoint| checkpoint.path != removal.path)
    });
}
