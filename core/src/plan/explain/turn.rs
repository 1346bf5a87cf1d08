//! What a planning round does in a job's turn.

use crate::ids::UnitIndex;
use crate::plan::order::Turn;
use crate::plan::round::Round;
use crate::plan::{Blocker, Budget, rounds};
use crate::state::{Job, Line, State};
use crate::time::TimeMs;

/// What a job meets in its turn.
pub(super) struct Met<'a> {
    /// When.
    pub(super) now: TimeMs,
    /// Why its next unit is not placed; none if nothing of it is left waiting.
    pub(super) blocker: Option<Blocker>,
    /// Units of it that were placed before.
    pub(super) placed: usize,
    /// The round as it was then, whose turn it was, and the unit; none if there was no round.
    pub(super) round: Option<(Round<'a>, Turn, UnitIndex)>,
}

/// Plans up to the job's turn.
pub(super) fn of<'a>(state: &'a State, job: &Job, now: TimeMs) -> Met<'a> {
    let nothing = Met {
        now,
        blocker: None,
        placed: 0,
        round: None,
    };
    if job.counts.waiting == 0 {
        return nothing;
    }
    let budget = Budget {
        steps_max: usize::MAX,
        examined_max: usize::MAX,
    };
    let (line, _) = Line::of(&state.queues, job);
    let (_, barred) = rounds::run(state, now, budget);
    let mut round = Round::new(state, now, budget).explaining().barring(barred);
    round.place_claimed();
    let Some(line) = round.order().position(&line) else {
        return nothing;
    };
    if round.is_done_early(line, job.id) {
        return Met {
            placed: 1,
            ..nothing
        };
    }
    let (blocker, placed) = take_turns(&mut round, job, line);
    let turn = Turn { job: job.id, line };
    let waiting = |unit: &UnitIndex| {
        let known = job.unit(*unit);
        let not_before = known.map_or(TimeMs::default(), |known| known.not_before);
        not_before <= round.now && !round.placed_early.contains(&(job.id, *unit))
    };
    let next = job.waiting_units().skip(placed).find(waiting);
    let unit = next.or_else(|| job.waiting_units().next());
    Met {
        blocker,
        placed,
        round: unit.map(|unit| (round, turn, unit)),
        ..nothing
    }
}

fn take_turns(round: &mut Round<'_>, job: &Job, line: usize) -> (Option<Blocker>, usize) {
    let mut placed = 0;
    while let Some(turn) = round.step() {
        let plan = round.plan();
        if turn.job == job.id {
            let last = plan.blocked.last();
            let met = last.filter(|(blocked, _)| *blocked == job.id);
            match met {
                Some((_, blocker)) => return (Some(blocker.clone()), placed),
                None => placed += 1,
            }
            if !round.order().is_head(turn) {
                return (None, placed);
            }
        } else if let Some(blocker) = round.closed(line) {
            return (Some(blocker.clone()), placed);
        }
    }
    (None, placed)
}
