//! The guards against endless restarts: attempts in a row that fail without a newer checkpoint, and checkpoints in a row
//! that cannot be read.

use muster_model::command::JobDefaults;
use muster_model::desired::RestartReason;
use muster_model::spec::JobSpec;

use crate::apply::verdict::Verdict;
use crate::state::{Attempt, Unit};

/// The verdict with the guards' word, and the unit's attempts in a row without progress.
pub(super) fn guard(
    verdict: Verdict,
    defaults: Option<JobDefaults>,
    (spec, unit, attempt): (&JobSpec, &Unit, &Attempt),
) -> (Verdict, u32) {
    let (verdict, in_a_row) = guard_progress(verdict, defaults, (spec, unit, attempt));
    (guard_checkpoints(verdict, defaults, (spec, unit)), in_a_row)
}

/// A unit that failed while its newest checkpoints, one after the other, could not be read is not begun again: somebody has
/// to look.
fn guard_checkpoints(
    verdict: Verdict,
    defaults: Option<JobDefaults>,
    (spec, unit): (&JobSpec, &Unit),
) -> Verdict {
    let own = spec.lifecycle.checkpoints.map(|policy| policy.bad_max);
    let max = own.or(defaults.map(|defaults| defaults.bad_checkpoints_max));
    let bad = unit.bad_in_a_row();
    match verdict {
        Verdict::Requeued {
            reason: RestartReason::User | RestartReason::Infra,
            charged,
            ref detail,
            ..
        } if max.is_some_and(|max| bad >= max) => {
            let left = match unit.newest_checkpoint() {
                Some(checkpoint) => format!("the one before them is step {}", checkpoint.step),
                None => "there is none before them".to_owned(),
            };
            Verdict::Failed {
                charged,
                detail: format!(
                    "checkpoints in a row that could not be read: {bad} (bad_max), {left}; the last end: {detail}"
                ),
            }
        }
        verdict => verdict,
    }
}

/// Attempts in a row without progress, and the end of a unit that had too many of them.
///
/// What fails counts, whoever is to blame if the job sets a limit itself: by the cluster's default no job fails for what
/// infrastructure did to it. What was stopped for others, or never ran, does not count. Before the cluster has defaults
/// nothing is counted for jobs that set no limit, because builds without defaults do not count.
fn guard_progress(
    verdict: Verdict,
    defaults: Option<JobDefaults>,
    (spec, unit, attempt): (&JobSpec, &Unit, &Attempt),
) -> (Verdict, u32) {
    let own_max = spec.lifecycle.attempts_without_progress_max;
    if own_max.is_none() && defaults.is_none() {
        return (verdict, unit.without_progress);
    }
    if unit.has_progressed_in(attempt.epoch) {
        return (verdict, 0);
    }
    let Verdict::Requeued {
        reason: reason @ (RestartReason::User | RestartReason::Infra),
        charged,
        ref detail,
        ..
    } = verdict
    else {
        return (verdict, unit.without_progress);
    };
    let counts = reason == RestartReason::User || own_max.is_some();
    if attempt.running_at.is_none() || !counts {
        return (verdict, unit.without_progress);
    }
    let in_a_row = unit.without_progress + 1;
    match unit.without_progress_max(spec, defaults) {
        Some(max) if in_a_row >= max => {
            let failed = Verdict::Failed {
                charged,
                detail: format!(
                    "attempts in a row that failed without a newer checkpoint: {in_a_row} \
                     (attempts_without_progress_max); the last one: {detail}"
                ),
            };
            (failed, in_a_row)
        }
        _ => (verdict, in_a_row),
    }
}
