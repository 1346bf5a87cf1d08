//! Guards against endless restarts: consecutive attempts that fail without a newer checkpoint, and
//! consecutive unreadable checkpoints.

use muster_model::command::JobDefaults;
use muster_model::desired::RestartReason;
use muster_model::spec::JobSpec;

use crate::apply::attempt::verdict::Verdict;
use crate::state::{Attempt, Unit};

/// Applies the guards to a verdict; returns it with the unit's consecutive attempts without progress.
pub(in crate::apply) fn guard(
    verdict: Verdict,
    defaults: Option<JobDefaults>,
    spec: &JobSpec,
    unit: &Unit,
    attempt: &Attempt,
) -> (Verdict, u32) {
    let (verdict, in_a_row) = guard_progress(verdict, defaults, spec, unit, attempt);
    (guard_checkpoints(verdict, defaults, spec, unit), in_a_row)
}

/// Fails a unit whose newest checkpoints could not be read: the user has to intervene.
fn guard_checkpoints(
    verdict: Verdict,
    defaults: Option<JobDefaults>,
    spec: &JobSpec,
    unit: &Unit,
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

/// Counts consecutive attempts without progress, and fails a unit with too many of them.
///
/// If the job sets a limit itself, every failure counts, whatever its attribution; under the cluster's
/// default, infrastructure failures do not count. Attempts stopped for other work and attempts that never ran
/// do not count.
fn guard_progress(
    verdict: Verdict,
    defaults: Option<JobDefaults>,
    spec: &JobSpec,
    unit: &Unit,
    attempt: &Attempt,
) -> (Verdict, u32) {
    let own_max = spec.lifecycle.attempts_without_progress_max;
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
