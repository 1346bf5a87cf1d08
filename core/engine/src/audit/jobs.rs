//! Jobs: their phases, their counts and their sets of units.

use std::collections::BTreeSet;
use std::fmt::Display;

use muster_model::ids::{JobId, UnitIndex};
use muster_model::job::UnitCounts;
use muster_model::lifecycle::{JobPhase, UnitPhase};
use muster_model::spec::{Condition, SuspendMode};

use crate::audit::{Report, Rule, units};
use crate::state::{Job, State};

pub(super) fn check(state: &State, report: &mut Report) {
    for (id, job) in &state.jobs {
        check_identity(state, *id, job, report);
        check_phase(state, job, report);
        check_counts(job, report);
        check_lifecycle(state, job, report);
        for (index, unit) in &job.units {
            units::check(state, job, *index, unit, report);
        }
    }
}

fn check_identity(state: &State, id: JobId, job: &Job, report: &mut Report) {
    let subject = format!("job {id}");
    report.require(job.id == id, Rule::Identity, &subject, || {
        format!("its record says {}", job.id)
    });
    report.require(
        id.get() > 0 && id.get() <= state.revision.get(),
        Rule::Identity,
        &subject,
        || format!("no revision of that number before {}", state.revision),
    );
    report.require(
        job.phase.is_terminal() || state.queues.contains_key(job.spec.queue.as_str()),
        Rule::Identity,
        &subject,
        || format!("its queue `{}` does not exist", job.spec.queue),
    );
    report.require(
        job.submitted_at <= state.time,
        Rule::Identity,
        &subject,
        || format!("it was submitted at {}, in the future", job.submitted_at),
    );
}

fn check_phase(state: &State, job: &Job, report: &mut Report) {
    let subject = format!("job {}", job.id);
    let expected = expected_phase(job);
    report.require(job.phase == expected, Rule::Lifecycle, &subject, || {
        format!(
            "it is {:?}, its units make it {expected:?} ({:?})",
            job.phase, job.counts
        )
    });
    report.require(
        job.finished_at.is_some() == expected.is_terminal(),
        Rule::Lifecycle,
        &subject,
        || format!("it is {expected:?} and ended at {:?}", job.finished_at),
    );
    let in_the_past = job.finished_at.is_none_or(|at| at <= state.time);
    report.require(in_the_past, Rule::Lifecycle, &subject, || {
        format!("it ended at {:?}, in the future", job.finished_at)
    });
}

fn expected_phase(job: &Job) -> JobPhase {
    let counts = &job.counts;
    let holding = counts.placed + counts.running + counts.stopping;
    match (job.cancel.is_some(), holding + counts.waiting, holding) {
        (true, 0, _) => JobPhase::Cancelled,
        (true, _, _) => JobPhase::Cancelling,
        (false, 0, _) if counts.failed > 0 => JobPhase::Failed,
        (false, 0, _) => JobPhase::Succeeded,
        (false, _, 0) => JobPhase::Queued,
        (false, _, _) => JobPhase::Running,
    }
}

fn check_counts(job: &Job, report: &mut Report) {
    let subject = format!("job {}", job.id);
    let units = job.spec.units();
    let known = u64::from(job.first_untouched.get());
    report.require(
        known <= units && job.units.len() as u64 == known,
        Rule::Unindexed,
        &subject,
        || {
            format!(
                "{} records for the first {known} of {units} units",
                job.units.len()
            )
        },
    );
    let mut counted = UnitCounts::default();
    for unit in job.units.values() {
        *counter(&mut counted, unit.phase) += 1;
    }
    *counter(&mut counted, job.untouched_phase()) += units.saturating_sub(known);
    report.require(counted == job.counts, Rule::Lifecycle, &subject, || {
        format!("it counts {:?}, its units are {counted:?}", job.counts)
    });
    let waiting: BTreeSet<UnitIndex> = job
        .units
        .iter()
        .filter(|(_, unit)| unit.phase == UnitPhase::Waiting)
        .map(|(index, _)| *index)
        .collect();
    report.require(
        waiting.iter().eq(job.requeued.iter()),
        Rule::Unindexed,
        &subject,
        || format!("units {waiting:?} wait, it names {:?}", job.requeued),
    );
}

/// Checks that a placed job had its dependencies satisfied and is within its limit of concurrent units.
fn check_lifecycle(state: &State, job: &Job, report: &mut Report) {
    let subject = format!("job {}", job.id);
    let was_placed = job.units.values().any(|unit| unit.attempts > 0);
    for dependency in &job.spec.lifecycle.after {
        // A dependency no longer kept has ended long ago.
        let other = state.jobs.get(&dependency.job).map(|other| other.phase);
        let fits = match other {
            Some(JobPhase::Succeeded) => dependency.when != Condition::Failed,
            Some(JobPhase::Failed | JobPhase::Cancelled) => dependency.when != Condition::Succeeded,
            Some(JobPhase::Queued | JobPhase::Running | JobPhase::Cancelling) => false,
            None => true,
        };
        report.require(fits || !was_placed, Rule::Dependencies, &subject, || {
            format!("it was placed, and {dependency:?} is {other:?}")
        });
    }
    check_suspension(job, &subject, report);
    let UnitCounts {
        placed,
        running,
        stopping,
        ..
    } = job.counts;
    let holding = placed + running + stopping;
    let max = job.spec.lifecycle.tasks_at_once_max;
    report.require(
        max.is_none_or(|max| holding <= u64::from(max)),
        Rule::Limits,
        &subject,
        || format!("{holding} of its units hold resources, over {max:?}"),
    );
}

/// Checks that only a live job is suspended, starts nothing new, and releases what it does not keep.
fn check_suspension(job: &Job, subject: &dyn Display, report: &mut Report) {
    let Some(suspension) = &job.suspension else {
        return;
    };
    let goes_on = job.finished_at.is_none() && job.cancel.is_none();
    report.require(goes_on, Rule::Lifecycle, subject, || {
        format!("it is {:?} and suspended", job.phase)
    });
    let keeps = job.spec.lifecycle.suspend == SuspendMode::Keep;
    for unit in job.units.values() {
        let fits = unit.attempt.as_ref().is_none_or(|attempt| {
            attempt.placed_at <= suspension.at && (keeps || attempt.stop.is_some())
        });
        report.require(fits, Rule::Lifecycle, subject, || {
            let epoch = unit.attempt.as_ref().map(|attempt| attempt.epoch);
            format!("attempt {epoch:?} continues, or is new, although the job is suspended")
        });
        report.require(unit.claim.is_none(), Rule::Lifecycle, subject, || {
            "something is reserved for it although it is suspended".to_owned()
        });
    }
}

/// Whether a job waits for others that have not ended.
pub(super) fn is_held(state: &State, job: &Job) -> bool {
    let mut others = job.spec.lifecycle.after.iter();
    others.any(|dependency| {
        let other = state.jobs.get(&dependency.job);
        other.is_some_and(|other| other.finished_at.is_none())
    })
}

fn counter(counts: &mut UnitCounts, phase: UnitPhase) -> &mut u64 {
    match phase {
        UnitPhase::Waiting => &mut counts.waiting,
        UnitPhase::Placed => &mut counts.placed,
        UnitPhase::Running => &mut counts.running,
        UnitPhase::Stopping => &mut counts.stopping,
        UnitPhase::Succeeded => &mut counts.succeeded,
        UnitPhase::Failed => &mut counts.failed,
        UnitPhase::Cancelled => &mut counts.cancelled,
    }
}
