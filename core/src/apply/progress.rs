//! The guard against endless restarts: attempts in a row that fail without a newer checkpoint.

use crate::apply::verdict::Verdict;
use crate::command::JobDefaults;
use crate::spec::JobSpec;
use crate::state::{Attempt, RestartReason, Unit};

/// The verdict with the guard's word, and the unit's attempts in a row without progress.
///
/// What fails counts, whoever is to blame; what was stopped for others, or never ran, does not. Before the cluster has
/// defaults nothing is counted for jobs that set no limit, because builds without defaults do not count.
pub(super) fn guard(
    verdict: Verdict,
    defaults: Option<JobDefaults>,
    (spec, unit, attempt): (&JobSpec, &Unit, &Attempt),
) -> (Verdict, u32) {
    let own_max = spec.lifecycle.attempts_without_progress_max;
    if own_max.is_none() && defaults.is_none() {
        return (verdict, unit.without_progress);
    }
    if has_progressed(unit, attempt) {
        return (verdict, 0);
    }
    let Verdict::Requeued {
        reason: RestartReason::User | RestartReason::Infra,
        charged,
        ref detail,
        ..
    } = verdict
    else {
        return (verdict, unit.without_progress);
    };
    if attempt.running_at.is_none() {
        return (verdict, unit.without_progress);
    }
    let in_a_row = unit.without_progress + 1;
    match unit.without_progress_max(spec, defaults) {
        Some(max) if in_a_row >= max => {
            let failed = Verdict::Failed {
                charged,
                detail: format!(
                    "{in_a_row} attempts in a row failed without a newer checkpoint \
                     (attempts_without_progress_max), the last one: {detail}"
                ),
            };
            (failed, in_a_row)
        }
        _ => (verdict, in_a_row),
    }
}

/// Whether an attempt committed a checkpoint of a higher step than the one that it began from.
fn has_progressed(unit: &Unit, attempt: &Attempt) -> bool {
    let good = || unit.checkpoints.iter().filter(|it| it.spoiled.is_none());
    let begun_from = good().rfind(|it| it.epoch < attempt.epoch);
    let newest = good().rfind(|it| it.epoch == attempt.epoch);
    match (newest, begun_from) {
        (Some(newest), Some(begun_from)) => newest.step > begun_from.step,
        (newest, _) => newest.is_some(),
    }
}
