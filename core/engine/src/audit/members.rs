//! Swapped members of gangs: a vacant place holds nothing, a member is present once, and only jobs that
//! support it have swaps.

use std::collections::BTreeSet;
use std::fmt::Display;

use muster_model::ids::{TaskIndex, UnitId};
use muster_model::lifecycle::{TaskPhase, UnitPhase};
use muster_model::limits;

use crate::audit::{Report, Rule};
use crate::state::{Attempt, Job, Membership, State, Unit, Vacancy};

/// Checks that exactly the gangs that lack a member are indexed for the planner.
pub(super) fn check_vacancy_index(state: &State, report: &mut Report) {
    let mut expected: BTreeSet<UnitId> = BTreeSet::new();
    for job in state.jobs.values() {
        for (index, unit) in &job.units {
            let attempt = unit
                .attempt
                .as_deref()
                .filter(|attempt| attempt.stop.is_none());
            let membership = attempt.and_then(|attempt| attempt.membership.as_deref());
            if membership.is_some_and(|membership| membership.vacancy.is_some()) {
                expected.insert(UnitId::new(job.id, *index));
            }
        }
    }
    let kept: BTreeSet<_> = state.index.vacant.iter().copied().collect();
    report.require(kept == expected, Rule::Unindexed, &"index.vacant", || {
        format!("it has {kept:?}, jobs have {expected:?}")
    });
}

pub(super) fn check(
    state: &State,
    job: &Job,
    unit: &Unit,
    attempt: &Attempt,
    subject: &dyn Display,
    report: &mut Report,
) {
    let Some(membership) = attempt.membership.as_deref() else {
        return;
    };
    let mut require = |holds: bool, rule: Rule, detail: &str| {
        report.require(holds, rule, subject, || detail.to_owned());
    };
    require(
        job.spec.gang && job.spec.lifecycle.member_swap,
        Rule::GangAtomicity,
        "its members are swapped, which its job does not support",
    );
    let is_begun = matches!(unit.phase, UnitPhase::Running | UnitPhase::Stopping);
    require(
        is_begun && attempt.running_at.is_some(),
        Rule::Lifecycle,
        "its members are swapped before all of them ran",
    );
    let in_a_row = membership.swaps_in_a_row;
    require(
        in_a_row <= limits::SWAPS_IN_A_ROW_MAX && in_a_row <= unit.swaps,
        Rule::Limits,
        "it exceeds the limit of consecutive swaps",
    );
    if let Some(leaving) = &membership.leaving {
        let run = attempt.tasks.iter().find(|run| run.task == leaving.task);
        let is_alive = run.is_some_and(|run| {
            !matches!(
                run.phase,
                TaskPhase::Exited | TaskPhase::Gone | TaskPhase::Fenced
            )
        });
        require(
            is_alive && attempt.stop.is_none() && membership.vacancy.is_none(),
            Rule::Lifecycle,
            "a member with an order to leave is gone, or its gang is being stopped",
        );
    }
    check_joined(state, attempt, membership, subject, report);
    if let Some(vacancy) = &membership.vacancy {
        check_vacancy(state, job, attempt, vacancy, subject, report);
    }
}

/// Checks that a replacement is present once, under its own epoch, which is higher than the gang's.
fn check_joined(
    state: &State,
    attempt: &Attempt,
    membership: &Membership,
    subject: &dyn Display,
    report: &mut Report,
) {
    let mut epochs = BTreeSet::from([attempt.epoch]);
    for (task, joined) in &membership.joined {
        let times = attempt.tasks.iter().filter(|run| run.task == *task).count();
        let is_new = epochs.insert(joined.epoch) && joined.epoch > attempt.epoch;
        let is_past = joined.epoch.get() <= state.revision.get();
        report.require(
            times == 1 && is_new && is_past,
            Rule::Epochs,
            subject,
            || {
                let epoch = joined.epoch;
                format!("task {task} joined as {epoch} and is present {times} times")
            },
        );
        let run = attempt.tasks.iter().find(|run| run.task == *task);
        let phase = run.map(|run| run.phase);
        let waits = matches!(phase, Some(TaskPhase::Assigned | TaskPhase::Prepared));
        report.require(
            !waits || joined.running_at.is_none(),
            Rule::Lifecycle,
            subject,
            || {
                format!(
                    "task {task} is {phase:?} and runs since {:?}",
                    joined.running_at
                )
            },
        );
    }
}

/// Checks the place of a departed member: it failed, it is not among the members, and no GPU is held for it.
fn check_vacancy(
    state: &State,
    job: &Job,
    attempt: &Attempt,
    vacancy: &Vacancy,
    subject: &dyn Display,
    report: &mut Report,
) {
    let task: TaskIndex = vacancy.run.task;
    let is_there = attempt.tasks.iter().any(|run| run.task == task);
    let is_gone = match vacancy.run.phase {
        TaskPhase::Exited => vacancy.run.exit.is_some(),
        TaskPhase::Gone | TaskPhase::Fenced => vacancy.run.exit.is_none(),
        TaskPhase::Assigned | TaskPhase::Prepared | TaskPhase::Running => false,
    };
    report.require(!is_there && is_gone, Rule::GangAtomicity, subject, || {
        let phase = vacancy.run.phase;
        format!("the place of task {task} is vacant; its phase is {phase:?}, present: {is_there}")
    });
    report.require(
        vacancy.epoch.get() <= state.revision.get() && vacancy.since <= state.time,
        Rule::Epochs,
        subject,
        || format!("task {task} left as {} at {}", vacancy.epoch, vacancy.since),
    );
    let gpus = state.hosts.values().flat_map(|host| &host.gpus);
    let mut holders = gpus.filter_map(|gpu| gpu.holder);
    let is_held = holders.any(|holder| (holder.job, holder.task) == (job.id, task));
    report.require(!is_held, Rule::GpuExclusivity, subject, || {
        format!("task {task} is gone, and GPUs are held for it")
    });
}
