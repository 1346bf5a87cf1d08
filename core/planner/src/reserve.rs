//! Reservations for backfill: once the head of a queue has waited long enough, room is reserved for it where
//! running work ends soonest.
//!
//! Attempts are assumed to end in the order of their expected ends; the unit is put where it fits first. No
//! attempt is stopped. Reserved resources are lent only to work whose time limit ends before the expected
//! start of the unit. The unit therefore starts at the latest when the longest attempt on its hosts has
//! ended, whatever else arrives: its wait is bounded by the time until it is the head, `reserve_after_ms`,
//! and the remaining run time of those attempts.
//!
//! A queue at its limit reserves what its own work holds: that counts once, so no other unit of the queue
//! overtakes it.

use muster_engine::feasibility::Requester;
use muster_engine::state::{Job, Running, State};
use muster_model::command::{TaskPlacement, Victim};
use muster_model::ids::{HostId, UnitIndex};
use muster_model::quota::within;
use muster_model::time::TimeMs;

use crate::capacity::{Capacity, Masks, positions};
use crate::running::{End, Useful};
use crate::{smallest_prefix, unit};

/// Expected place and time of a unit's start.
#[derive(Clone, Debug)]
pub(super) struct Reservation {
    pub(super) tasks: Vec<TaskPlacement>,
    /// `None` if unknown.
    pub(super) expected_at: Option<TimeMs>,
    /// The best estimate, also where `expected_at` is unknown.
    pub(super) likely_at: TimeMs,
}

/// Number of retries that leave out hosts with a planned block too soon, each time those of the last try.
pub(super) const LEFT_OUT_TRIES_MAX: usize = 8;

/// First fit of the unit with the allowed number of tasks; `None` if it does not fit even without all
/// running attempts. These are given by expected end. A host with a planned block before the end of the
/// unit is left out.
pub(super) fn propose(
    capacity: &Capacity<'_>,
    job: &Job,
    unit: UnitIndex,
    ending: &[(End, Running<'_>)],
    is_allowed: impl Fn(&[TaskPlacement]) -> bool,
) -> Option<Reservation> {
    let mut left_out: Vec<HostId> = Vec::new();
    for _ in 0..LEFT_OUT_TRIES_MAX {
        let capacity = capacity.without_hosts(left_out.iter().copied());
        let found = propose_on(&capacity, job, unit, ending, &is_allowed)?;
        // A claim without an expected time is checked at the present time.
        let starts = [Some(found.likely_at), found.expected_at];
        let too_late: Vec<HostId> = starts
            .into_iter()
            .map(|at| Requester::for_claim(job, unit, at, capacity.now()))
            .flat_map(|requester| requester.hosts_blocked_too_soon(capacity.state(), &found.tasks))
            .collect();
        if too_late.is_empty() {
            return Some(found);
        }
        left_out.extend(too_late);
    }
    None
}

fn propose_on(
    capacity: &Capacity<'_>,
    job: &Job,
    unit: UnitIndex,
    ending: &[(End, Running<'_>)],
    is_allowed: impl Fn(&[TaskPlacement]) -> bool,
) -> Option<Reservation> {
    let state = capacity.state();
    let useful = Useful::for_job(state, job);
    let ending: Vec<&(End, Running<'_>)> = ending
        .iter()
        .filter(|(_, running)| useful.has(capacity, running))
        .collect();
    let named: Vec<Victim> = ending
        .iter()
        .map(|(_, running)| running.as_victim())
        .collect();
    let (count, tasks) = smallest_prefix::smallest(capacity, &named, |fork, _| {
        let placed = unit::place_unborrowed(fork, job, unit).ok()?;
        Some(placed.tasks).filter(|tasks| is_allowed(tasks))
    })?;
    let in_the_way = ending[..count].iter().filter(|(_, running)| {
        let mut hosts = running.attempt.tasks.iter().map(|run| run.host);
        hosts.any(|host| tasks.iter().any(|task| task.host == host))
    });
    let ends: Vec<End> = in_the_way.map(|(end, _)| *end).collect();
    let all_known = ends.iter().all(|end| end.is_known);
    let last = ends.iter().map(|end| end.at).max();
    Some(Reservation {
        tasks,
        expected_at: last.filter(|_| all_known),
        likely_at: last.unwrap_or_else(|| capacity.now()),
    })
}

/// Amounts held by attempts of a queue and its descendants.
pub(super) fn held_by(state: &State, queue: &str, ending: &[(End, Running<'_>)]) -> Masks {
    let mut masks = Masks::new();
    let own = ending
        .iter()
        .filter(|(_, running)| within(&running.job.spec.queue).any(|name| name == queue));
    for run in own.flat_map(|(_, running)| &running.attempt.tasks) {
        if let Some(host) = state.host(run.host) {
            let mask = masks.entry(run.host).or_default();
            *mask = mask.or(positions(host, &run.gpus));
        }
    }
    masks
}

/// Start of a unit's wait.
pub(super) fn waits_since(state: &State, job: &Job, unit: UnitIndex) -> TimeMs {
    let known = job.unit(unit);
    let ended = known
        .and_then(|known| known.past.last())
        .map(|past| past.ended_at);
    let not_before = known.map_or(TimeMs::default(), |known| known.not_before);
    ended
        .unwrap_or(job.submitted_at)
        .max(not_before)
        .min(state.time.max(not_before))
}
