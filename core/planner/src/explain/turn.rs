//! Replay of a job's turn in the last round, which takes account of all earlier decisions.

use muster_engine::state::{Job, State, WaitingClass};
use muster_model::command::Command;
use muster_model::ids::{UnitId, UnitIndex};
use muster_model::time::TimeMs;

use crate::Blocker;
use crate::order::Turn;
use crate::round::Round;
use crate::rounds::LastRound;

/// Maximum number of dependencies listed.
const DEPENDENCIES_NAMED_MAX: usize = 8;

/// Result of a job's turn.
pub(super) struct TurnOutcome<'a> {
    /// Time of the turn.
    pub(super) now: TimeMs,
    /// Reason why its next unit is not placed now or ever; `None` if no unit is left waiting.
    pub(super) blocker: Option<Blocker>,
    /// Units of the job placed before.
    pub(super) placed: u64,
    /// The round at that point with the job's turn and unit; `None` if there was no round.
    pub(super) round: Option<(Round<'a>, Turn, UnitIndex)>,
}

/// Replays the last round up to the job's turn.
pub(super) fn of<'a>(last: &'a LastRound, before: &Job, now: TimeMs) -> TurnOutcome<'a> {
    let waiting_before = before.counts.waiting;
    let nothing = TurnOutcome {
        now,
        blocker: None,
        placed: waiting_before,
        round: None,
    };
    if before.cancel.is_some() && !before.phase.is_terminal() {
        return TurnOutcome {
            blocker: Some(Blocker::Cancelling),
            ..nothing
        };
    }
    let known = last.state.job(before.id);
    let kept_back = |job: &Job| suspension(job).or_else(|| dependencies(&last.state, job));
    if let Some(blocker) = known.and_then(kept_back) {
        return TurnOutcome {
            blocker: Some(blocker),
            placed: 0,
            ..nothing
        };
    }
    let Some(job) = known.filter(|job| job.counts.waiting > 0) else {
        return TurnOutcome {
            blocker: known
                .filter(|job| !is_filled(last, job, now))
                .and_then(vacancy),
            ..nothing
        };
    };
    let (class, _) = WaitingClass::of(&last.state.queues, job);
    let mut round = last.round(now);
    round.fill_vacancies();
    round.place_claimed();
    let Some(class) = round.order().position(&class) else {
        return nothing;
    };
    if round.is_done_early(class, job.id) {
        return nothing;
    }
    let (blocker, placed) = take_turns(&mut round, job, class);
    let turn = Turn { job: job.id, class };
    let waiting = |unit: &UnitIndex| {
        let known = job.unit(*unit);
        let not_before = known.map_or(TimeMs::default(), |known| known.not_before);
        not_before.max(round.state.held_until(job)) <= round.now
            && !round.placed_early.contains(&UnitId::new(job.id, *unit))
    };
    let next = job.waiting_units().skip(placed).find(waiting);
    let unit = next.or_else(|| job.waiting_units().next());
    TurnOutcome {
        blocker,
        placed: waiting_before.saturating_sub(job.counts.waiting) + placed as u64,
        round: unit.map(|unit| (round, turn, unit)),
        ..nothing
    }
}

/// Suspension of a job that has waiting units.
fn suspension(job: &Job) -> Option<Blocker> {
    let suspension = job.suspension.as_ref().filter(|_| job.counts.waiting > 0)?;
    Some(Blocker::Suspended {
        author: suspension.author.clone(),
        reason: suspension.reason.clone(),
    })
}

/// The vacant member of a gang that keeps running. After the last round no room has been found for it.
fn vacancy(job: &Job) -> Option<Blocker> {
    let mut attempts = job
        .units
        .values()
        .filter_map(|unit| unit.attempt.as_deref());
    let (attempt, vacancy) =
        attempts.find_map(|attempt| Some((attempt, attempt.open_vacancy()?)))?;
    Some(Blocker::Vacancy {
        task: vacancy.run.task,
        since: vacancy.since,
        not_before: vacancy.not_before,
        until: attempt.incomplete_until(&job.spec)?,
        detail: vacancy.detail.clone(),
    })
}

/// Whether the last round fills the job's vacancy.
fn is_filled(last: &LastRound<'_>, job: &Job, now: TimeMs) -> bool {
    let gang = UnitId::new(job.id, UnitIndex(0));
    if !last.state.index.vacant.contains(&gang) {
        return false;
    }
    let mut round = last.round(now);
    round.fill_vacancies();
    let mut steps = round.plan().steps.iter();
    steps.any(|step| matches!(step, Command::SwapMember(swap) if swap.job == job.id))
}

/// Unfinished dependencies of a job: it has no turn before they have ended.
fn dependencies(state: &State, job: &Job) -> Option<Blocker> {
    let open = state.index.open_of(job.id);
    let total = u64::try_from(open.len()).ok().filter(|total| *total > 0)?;
    let after = job.spec.lifecycle.after.iter();
    let open = after.filter(|dependency| open.contains(&dependency.job));
    Some(Blocker::Dependencies {
        open: open.take(DEPENDENCIES_NAMED_MAX).copied().collect(),
        total,
    })
}

fn take_turns(round: &mut Round<'_>, job: &Job, class: usize) -> (Option<Blocker>, usize) {
    let mut placed = 0;
    while let Some(turn) = round.step() {
        let plan = round.plan();
        if turn.job == job.id {
            let last = plan.blocked.last();
            let blocked = last.filter(|(id, _)| *id == job.id);
            match blocked {
                Some((_, blocker)) => return (Some(blocker.clone()), placed),
                None => placed += 1,
            }
            if !round.order().is_head(turn) {
                return (None, placed);
            }
        } else if let Some(blocker) = round.closed(class) {
            return (Some(blocker.clone()), placed);
        }
    }
    (None, placed)
}
