//! Placement search for one unit on free resources: an independent task by best fit, a gang all or nothing.

mod exact;
mod gang;
mod greedy;
mod member;
mod request;
mod shortage;
mod single;

use muster_engine::feasibility::Requester;
use muster_model::command::TaskPlacement;
use muster_model::ids::UnitIndex;
use muster_model::time::TimeMs;

use crate::capacity::Capacity;
use crate::running::stops_end;
pub(crate) use crate::unit::member::place_member;
use crate::unit::request::UnitRequest;
pub(crate) use crate::unit::shortage::Lack;
pub(crate) use crate::unit::shortage::Shortage;
use muster_engine::state::Job;

/// Placement of a unit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Placed {
    /// Its tasks, in task order. A gang with a minimum may get fewer than it requests.
    pub(crate) tasks: Vec<TaskPlacement>,
}

/// Allocates room for one unit, or returns the shortage and takes nothing.
///
/// The unit may use what it claims itself, and what others claim for a later time by which it will have
/// ended. A unit that reached its limit of consecutive failures at its place, or could not be started
/// there, is placed elsewhere if there is room elsewhere.
pub(crate) fn place(
    capacity: &mut Capacity<'_>,
    job: &Job,
    unit: UnitIndex,
) -> Result<Placed, Shortage> {
    let hosts = job.hosts_avoided(unit);
    if !hosts.is_empty() {
        let mut fork = capacity.without_hosts(hosts.iter().copied());
        if let Ok(placed) = place_in_fork(capacity, &mut fork, job, unit) {
            return Ok(placed);
        }
    }
    place_anywhere(capacity, job, unit)
}

fn place_anywhere(
    capacity: &mut Capacity<'_>,
    job: &Job,
    unit: UnitIndex,
) -> Result<Placed, Shortage> {
    let claims = job.unit(unit).is_some_and(|known| known.claim.is_some());
    if !claims {
        // Backfill into claimed resources only if nothing else is free: the fork costs more than a check.
        let placed = place_free(capacity, job, unit);
        if placed.is_ok() {
            return placed;
        }
        let Some(mut fork) = capacity.for_unit(job, unit) else {
            return placed;
        };
        return place_in_fork(capacity, &mut fork, job, unit);
    }
    match capacity.for_unit(job, unit) {
        Some(mut fork) => place_in_fork(capacity, &mut fork, job, unit),
        None => place_free(capacity, job, unit),
    }
}

fn place_in_fork(
    capacity: &mut Capacity<'_>,
    fork: &mut Capacity<'_>,
    job: &Job,
    unit: UnitIndex,
) -> Result<Placed, Shortage> {
    let placed = place_free(fork, job, unit)?;
    capacity.commit(capacity.requester(job, unit), &placed.tasks);
    Ok(placed)
}

/// Like `place`, for a claim: without what others claim, whatever the unit's time limit.
pub(crate) fn place_unborrowed(
    capacity: &mut Capacity<'_>,
    job: &Job,
    unit: UnitIndex,
) -> Result<Placed, Shortage> {
    let requester = Requester::for_later(job, unit, capacity.now());
    place_for(capacity, requester)
}

/// Placement of a unit for a claim, at a later time or, where attempts that are being stopped leave its hosts after
/// that, then; with the time. `None` if it does not fit, or one of the hosts is to be blocked too soon after that.
pub(crate) fn place_later(
    capacity: &Capacity<'_>,
    job: &Job,
    unit: UnitIndex,
    at: TimeMs,
) -> Option<(Vec<TaskPlacement>, TimeMs)> {
    let (state, now) = (capacity.state(), capacity.now());
    let mut then = capacity.clone().at(at);
    let tasks = place_unborrowed(&mut then, job, unit).ok()?.tasks;
    let starts_at = at.max(stops_end(state, &tasks, now));
    let requester = Requester::for_claim(job, unit, Some(starts_at), now);
    let too_late = requester.hosts_blocked_too_soon(state, &tasks);
    too_late.is_empty().then_some((tasks, starts_at))
}

/// Whether a unit fits in a capacity, ignoring claims.
pub(crate) fn fits(capacity: &Capacity<'_>, job: &Job, unit: UnitIndex) -> Result<(), Shortage> {
    place_free(&mut capacity.clone(), job, unit).map(|_| ())
}

fn place_free(capacity: &mut Capacity<'_>, job: &Job, unit: UnitIndex) -> Result<Placed, Shortage> {
    place_for(capacity, capacity.requester(job, unit))
}

fn place_for(capacity: &mut Capacity<'_>, requester: Requester<'_>) -> Result<Placed, Shortage> {
    let request = UnitRequest::of(capacity, requester);
    if requester.job.spec.gang {
        gang::place(capacity, &request)
    } else {
        single::place(capacity, &request)
    }
}
