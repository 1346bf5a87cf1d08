//! Single units: attempt, history and retry budget.

use std::fmt::Display;

use muster_model::command::StopReason;
use muster_model::desired::RestartReason;
use muster_model::health::Charge;
use muster_model::ids::{TaskIndex, UnitIndex};
use muster_model::lifecycle::{TaskPhase, UnitPhase};
use muster_model::limits;
use muster_model::spec::{ExitMatch, ExitMeaning};

use crate::audit::{Report, Rule, members};
use crate::state::{Attempt, Job, PastAttempt, State, TaskRun, Unit};

pub(super) fn check(state: &State, job: &Job, index: UnitIndex, unit: &Unit, report: &mut Report) {
    let subject = format!("job {} unit {index}", job.id);
    let holds = matches!(
        unit.phase,
        UnitPhase::Placed | UnitPhase::Running | UnitPhase::Stopping
    );
    report.require(
        unit.attempt.is_some() == holds,
        Rule::Unindexed,
        &subject,
        || {
            let attempt = unit.attempt.as_ref().map(|attempt| attempt.epoch);
            format!("it is {:?} with attempt {attempt:?}", unit.phase)
        },
    );
    check_budget(job, unit, &subject, report);
    check_epochs(state, unit, &subject, report);
    if let Some(attempt) = &unit.attempt {
        check_attempt(state, job, attempt, &subject, report);
        check_tasks(job, index, attempt, &subject, report);
        check_stop(job, unit.phase, attempt, &subject, report);
        check_barrier(state, job, attempt, &subject, report);
        members::check(state, job, unit, attempt, &subject, report);
    }
}

/// Checks that only gangs have a barrier, and that all members were prepared at the release.
fn check_barrier(
    state: &State,
    job: &Job,
    attempt: &Attempt,
    subject: &dyn Display,
    report: &mut Report,
) {
    let runs = |wanted: TaskPhase| attempt.tasks.iter().filter(move |run| run.phase == wanted);
    let Some(barrier) = attempt.barrier else {
        let prepared = runs(TaskPhase::Prepared).count();
        report.require(prepared == 0, Rule::GangAtomicity, subject, || {
            format!("{prepared} of its tasks wait for a gang without a barrier")
        });
        return;
    };
    report.require(job.spec.gang, Rule::GangAtomicity, subject, || {
        "its tasks wait for each other although they are not a gang".to_owned()
    });
    let Some(released_at) = barrier.released_at else {
        return;
    };
    let mut assigned = runs(TaskPhase::Assigned).map(|run| run.task);
    // Replacement members join a released gang.
    let assigned = assigned.find(|task| !came_later(attempt, *task));
    report.require(assigned.is_none(), Rule::GangAtomicity, subject, || {
        format!("it was released although task {assigned:?} was not prepared")
    });
    report.require(
        attempt.placed_at <= released_at && released_at <= state.time,
        Rule::Lifecycle,
        subject,
        || {
            format!(
                "it was released at {released_at}, placed at {}",
                attempt.placed_at
            )
        },
    );
}

fn check_budget(job: &Job, unit: &Unit, subject: &dyn Display, report: &mut Report) {
    let over = unit.failures > job.spec.retry.retries_max;
    report.require(
        !over || unit.phase == UnitPhase::Failed || unit.phase == UnitPhase::Cancelled,
        Rule::RetryBudget,
        subject,
        || {
            format!(
                "{} failures are over its {} retries, and it is {:?}",
                unit.failures, job.spec.retry.retries_max, unit.phase
            )
        },
    );
    report.require(
        unit.failures <= unit.attempts.saturating_add(unit.swaps),
        Rule::RetryBudget,
        subject,
        || {
            format!(
                "{} failures in {} attempts, with {} swapped members",
                unit.failures, unit.attempts, unit.swaps
            )
        },
    );
    check_charges(unit, subject, report);
    check_rows(job, unit, subject, report);
    check_retention(job, unit, subject, report);
    let pauses = unit.attempt.as_ref().map_or(0, |it| it.pauses.len());
    report.require(
        unit.past.len() <= limits::ATTEMPTS_KEPT_PER_UNIT_MAX
            && unit.checkpoints.len() <= limits::CHECKPOINTS_PER_JOB_MAX
            && pauses <= limits::PAUSES_PER_ATTEMPT_MAX,
        Rule::Limits,
        subject,
        || {
            format!(
                "it keeps {} attempts, {} checkpoints and {pauses} pauses",
                unit.past.len(),
                unit.checkpoints.len()
            )
        },
    );
}

/// Checks the charged failures: one for each attempt that is known to be the job's own failure or is no
/// longer kept, and one for each replaced member.
fn check_charges(unit: &Unit, subject: &dyn Display, report: &mut Report) {
    let is_own = |past: &&PastAttempt| {
        let attribution = past.attribution.as_deref();
        attribution.is_none_or(|attribution| attribution.charge == Charge::User)
    };
    let known = count(unit.past.len() + usize::from(unit.attempt.is_some()));
    let forgotten = unit.attempts.saturating_sub(known);
    let own = count(unit.past.iter().filter(is_own).count());
    let paid = own.saturating_add(forgotten).saturating_add(unit.swaps);
    report.require(unit.failures <= paid, Rule::RetryBudget, subject, || {
        format!(
            "{} failures are charged: {own} attempts were its own, {forgotten} are forgotten, {} members were swapped",
            unit.failures, unit.swaps
        )
    });
}

fn count(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

/// Checks the consecutive counts: retries in place within the job's limit, each after an attempt; no further
/// attempt after the limit of attempts without progress.
fn check_rows(job: &Job, unit: &Unit, subject: &dyn Display, report: &mut Report) {
    let max = job.spec.lifecycle.local_retries_max;
    let local = unit.local_retries;
    report.require(
        local <= max && (local == 0 || local < unit.attempts),
        Rule::RetryBudget,
        subject,
        || {
            format!(
                "{local} retries in place of {max}, in {} attempts",
                unit.attempts
            )
        },
    );
    let without = unit.without_progress;
    report.require(without <= unit.attempts, Rule::RetryBudget, subject, || {
        format!("{without} of {} attempts without progress", unit.attempts)
    });
    let allowed = job.spec.lifecycle.attempts_without_progress_max;
    let failed = matches!(
        unit.restart_reason,
        RestartReason::User | RestartReason::Infra
    );
    let goes_on = unit.phase == UnitPhase::Waiting && failed;
    let over = allowed.is_some_and(|allowed| allowed > 0 && without >= allowed);
    report.require(!(goes_on && over), Rule::RetryBudget, subject, || {
        format!("it waits after {without} attempts without progress, allowed are {allowed:?}")
    });
}

/// Checks that folders are removed only by the policy, are few, and never those of checkpoints that a unit
/// may resume from.
fn check_retention(job: &Job, unit: &Unit, subject: &dyn Display, report: &mut Report) {
    let policy = job.spec.lifecycle.checkpoints;
    let removes = policy.is_some_and(|policy| policy.remove);
    let removals = unit.removals.as_slice();
    report.require(
        removals.is_empty() || (removes && removals.len() <= limits::REMOVALS_PER_UNIT_MAX),
        Rule::Retention,
        subject,
        || format!("{} folders are to be removed by {policy:?}", removals.len()),
    );
    let good: Vec<u64> = unit
        .checkpoints
        .iter()
        .filter(|checkpoint| checkpoint.damaged.is_none())
        .map(|checkpoint| checkpoint.step)
        .collect();
    for removal in removals {
        let is_kept = unit.checkpoints.iter().any(|it| it.path == removal.path);
        let above = good.iter().filter(|step| **step > removal.step).count();
        report.require(!is_kept && above >= 1, Rule::Retention, subject, || {
            format!("step {} is to be removed, kept are {good:?}", removal.step)
        });
    }
    for checkpoint in &unit.checkpoints {
        report.require(
            checkpoint.damaged.is_some() || checkpoint.damaged_by.is_none(),
            Rule::Retention,
            subject,
            || {
                format!(
                    "step {} counts as readable, but an attempt could not read it",
                    checkpoint.step
                )
            },
        );
    }
}

fn check_epochs(state: &State, unit: &Unit, subject: &dyn Display, report: &mut Report) {
    let current = unit.attempt.as_deref();
    let past = unit.past.iter().map(|past| (past.epoch, past.number));
    let all: Vec<_> = past
        .chain(current.map(|attempt| (attempt.epoch, attempt.number)))
        .collect();
    let increasing = all
        .windows(2)
        .all(|pair| pair[0].0 < pair[1].0 && pair[0].1 + 1 == pair[1].1);
    report.require(increasing, Rule::Epochs, subject, || {
        format!("epochs and numbers do not increase: {all:?}")
    });
    if let Some((epoch, number)) = all.last() {
        report.require(
            epoch.get() <= state.revision.get() && *number == unit.attempts,
            Rule::Epochs,
            subject,
            || {
                format!(
                    "attempt {number} has epoch {epoch} at revision {} with {} attempts counted",
                    state.revision, unit.attempts
                )
            },
        );
    }
    let steps = unit.checkpoints.windows(2).all(|pair| {
        pair[0].epoch < pair[1].epoch
            || (pair[0].epoch == pair[1].epoch && pair[0].step < pair[1].step)
    });
    report.require(steps, Rule::Epochs, subject, || {
        "its checkpoints are out of order".to_owned()
    });
}

fn check_attempt(
    state: &State,
    job: &Job,
    attempt: &Attempt,
    subject: &dyn Display,
    report: &mut Report,
) {
    report.require(
        attempt.leader <= state.leadership.epoch && attempt.leader.get() < attempt.epoch.get(),
        Rule::Leadership,
        subject,
        || {
            format!(
                "attempt {} was placed by leadership {}",
                attempt.epoch, attempt.leader
            )
        },
    );
    let ended = attempt.tasks.iter().all(|run| terminal(run.phase));
    report.require(!ended, Rule::Unindexed, subject, || {
        format!(
            "attempt {} continues although all its tasks ended",
            attempt.epoch
        )
    });
    let vacated = vacant(attempt);
    let members = attempt.tasks.iter().chain(vacated);
    let decides = |run: &&TaskRun| Some(run.task) == attempt.decisive;
    let decisive = { members }.find(decides);
    report.require(
        decisive.is_some() == attempt.decisive.is_some()
            && decisive.is_none_or(|run| terminal(run.phase) && !is_success(job, attempt, run)),
        Rule::Lifecycle,
        subject,
        || format!("task {:?} cannot have decided its end", attempt.decisive),
    );
}

fn check_tasks(
    job: &Job,
    index: UnitIndex,
    attempt: &Attempt,
    subject: &dyn Display,
    report: &mut Report,
) {
    let members = attempt.tasks.iter().chain(vacant(attempt));
    let mut tasks: Vec<u32> = members.map(|run| run.task.get()).collect();
    let in_order = attempt.tasks.is_sorted_by_key(|run| run.task);
    tasks.sort_unstable();
    let tasks = if in_order { tasks } else { Vec::new() };
    let complete = if job.spec.gang {
        has_all_members(job, &tasks)
    } else {
        tasks == [index.get()]
    };
    report.require(complete, Rule::GangAtomicity, subject, || {
        format!("attempt {} does not have all tasks", attempt.epoch)
    });
    for run in &attempt.tasks {
        report.require(
            run.exit.is_some() == (run.phase == TaskPhase::Exited),
            Rule::Lifecycle,
            subject,
            || format!("task {} is {:?} with {:?}", run.task, run.phase, run.exit),
        );
        let asked = job.spec.group_of(run.task).map(|(group, _)| group);
        report.require(
            asked.is_some_and(|group| group.resources.gpus as usize == run.gpus.len()),
            Rule::GangAtomicity,
            subject,
            || format!("task {} has {} GPUs", run.task, run.gpus.len()),
        );
    }
}

/// Whether each group has a prefix of its members that is large enough, in order.
fn has_all_members(job: &Job, tasks: &[u32]) -> bool {
    let mut first = 0;
    let mut expected = Vec::new();
    for group in &job.spec.groups {
        let members = tasks
            .iter()
            .filter(|task| (first..first + group.count).contains(*task));
        let count = u32::try_from(members.count()).unwrap_or(u32::MAX);
        if count < group.layout.count_min.unwrap_or(group.count) {
            return false;
        }
        expected.extend(first..first + count);
        first += group.count;
    }
    tasks == expected
}

fn check_stop(
    job: &Job,
    phase: UnitPhase,
    attempt: &Attempt,
    subject: &dyn Display,
    report: &mut Report,
) {
    report.require(
        attempt.stop.is_some() == (phase == UnitPhase::Stopping),
        Rule::Lifecycle,
        subject,
        || format!("it is {phase:?} with stop order {:?}", attempt.stop),
    );
    let runs = |wanted: TaskPhase| {
        let mut first = attempt
            .tasks
            .iter()
            .filter(|run| !came_later(attempt, run.task));
        first.any(|run| run.phase == wanted)
    };
    let begun = !runs(TaskPhase::Assigned) && !runs(TaskPhase::Prepared);
    let fits = match phase {
        UnitPhase::Placed => !begun && attempt.running_at.is_none(),
        UnitPhase::Running => begun && attempt.running_at.is_some(),
        _ => true,
    };
    report.require(fits, Rule::Lifecycle, subject, || {
        format!("it is {phase:?}, its tasks all begun: {begun}")
    });
    let broken = attempt
        .tasks
        .iter()
        .find(|run| terminal(run.phase) && !is_success(job, attempt, run));
    report.require(
        broken.is_none() || phase == UnitPhase::Stopping,
        Rule::GangAtomicity,
        subject,
        || {
            let task = broken.map(|run| run.task);
            format!("it is {phase:?} although task {task:?} failed")
        },
    );
}

/// Returns the last run of the member whose place is vacant.
fn vacant(attempt: &Attempt) -> Option<&TaskRun> {
    let vacancy = attempt.membership.as_deref()?.vacancy.as_ref();
    vacancy.map(|vacancy| &vacancy.run)
}

/// Whether a member is a replacement.
fn came_later(attempt: &Attempt, task: TaskIndex) -> bool {
    let membership = attempt.membership.as_deref();
    membership.is_some_and(|membership| membership.joined.contains_key(&task))
}

const fn terminal(phase: TaskPhase) -> bool {
    match phase {
        TaskPhase::Assigned | TaskPhase::Prepared | TaskPhase::Running => false,
        TaskPhase::Exited | TaskPhase::Gone | TaskPhase::Fenced => true,
    }
}

/// Whether a task exited with 0, or as the job's first matching rule counts as success; by a signal only if
/// it was not stopped from outside.
fn is_success(job: &Job, attempt: &Attempt, run: &TaskRun) -> bool {
    let Some(exit) = &run.exit else { return false };
    if exit.lease_expired || exit.start_error.is_some() {
        return false;
    }
    if exit.code == Some(0) {
        return true;
    }
    let stop = attempt.stop.as_ref().map(|stop| &stop.reason);
    let left_alone = stop.is_none_or(|reason| *reason == StopReason::MemberFailed);
    let rules = job.spec.lifecycle.rules.iter();
    let mut matching = rules.filter(|rule| match rule.on {
        ExitMatch::Codes { first, last } => exit
            .code
            .is_some_and(|code| code >= first && code <= last && code != 75 && code != 93),
        ExitMatch::Signal(signal) => exit.signal == Some(signal),
        ExitMatch::OutOfMemory => exit.out_of_memory,
    });
    let called_well = matching.next().map(|rule| rule.then) == Some(ExitMeaning::Succeed);
    called_well && (exit.code.is_some() || left_alone)
}
