//! Preemption: selection of victims, the attempts to stop so that a unit entitled to their resources fits.
//!
//! Finding the cheapest set of victims is a knapsack problem. The search proceeds in this order:
//! 1. [`candidates`]: attempts that the unit has a right to preempt, in ascending order of lost work; in a
//!    large cluster only as many as are likely to suffice, more if they do not.
//! 2. A single task goes on one host: for every host the cheapest set that makes room there ([`exact`]),
//!    starting with the hosts that promise the cheapest sets.
//! 3. Other units: candidates are freed in an order until the unit fits, then every victim that is not
//!    needed is restored ([`orders`]). If there are few candidates, all sets are compared ([`exact`]).
//!
//! The result is a proposal without side effects. It is empty if the unit would not fit.

mod amounts;
mod candidates;
mod cost;
mod exact;
mod one_host;
mod orders;
#[cfg(test)]
mod tests;

use std::cell::OnceCell;

use muster_model::command::{AllocationBasis, TaskPlacement, Victim};
use muster_model::ids::UnitIndex;

use crate::allowance::{Allowance, is_limited};
use crate::capacity::Capacity;
use crate::preempt::candidates::{Candidate, LimitScope, Pool};
pub(super) use crate::preempt::cost::Cost;
use muster_engine::feasibility::Requester;
use muster_engine::rights::{Preemptor, Rights, Subject};
use muster_engine::state::{Job, Running, State, amounts_of};
use muster_model::quota::Amounts;
use muster_model::time::TimeMs;

use crate::running::{stopping, stops_end};
use crate::unit;

/// Maximum number of candidates for which all sets of victims are compared: no more sets than are tried
/// ([`exact::TRIES_MAX`]).
const EXACT_CANDIDATES_MAX: usize = 9;

/// Number of candidates examined first, second, and finally all.
const WINDOWS: [usize; 3] = [128, 2_048, usize::MAX];

/// A unit that finds no room or would exceed a limit.
#[derive(Clone, Copy)]
pub(super) struct Claimant<'a> {
    pub(super) job: &'a Job,
    pub(super) unit: UnitIndex,
    pub(super) allocation_basis: &'a AllocationBasis,
    pub(super) now: TimeMs,
}

/// Attempts to stop, and the placement of the unit afterwards.
#[derive(Clone, Debug)]
pub(super) struct Preemption {
    pub(super) tasks: Vec<TaskPlacement>,
    /// Victims, ascending.
    pub(super) victims: Vec<Victim>,
    /// Time at which all victims, and others that are being stopped there, have stopped.
    pub(super) expected_at: TimeMs,
    cost: Cost,
}

/// Result of a search.
#[derive(Clone, Debug, Default)]
pub(super) struct Proposed {
    pub(super) found: Option<Preemption>,
    /// Earliest end of protection among attempts that the unit has a right to preempt.
    pub(super) protection_ends: Option<TimeMs>,
}

/// Inputs of a search for victims.
struct Search<'s, 'a> {
    /// Free resources plus those that become free anyway.
    coming: &'s Capacity<'a>,
    /// Allowance of its queue, if a limit applies.
    allowance: Option<&'s Allowance<'a>>,
    claimant: Claimant<'s>,
    /// Amounts that the unit would hold.
    amounts: &'s Amounts,
}

/// The cheapest set of victims found; `None` if the unit has no right to enough.
pub(super) fn propose(
    capacity: &Capacity<'_>,
    allowance: &Allowance<'_>,
    claimant: Claimant<'_>,
) -> Proposed {
    let mut proposed = Proposed::default();
    let limited = is_limited(capacity.state(), &claimant.job.spec.queue);
    let limits_now = limited.then_some(allowance);
    let allowance = limited.then(|| allowance.without_stopping());
    let coming = OnceCell::new();
    for amounts in amounts::by_model(capacity, claimant.job, claimant.unit) {
        let rights = rights(capacity.state(), claimant, &amounts);
        let mut pool = Pool::open(capacity, claimant, &rights);
        if pool.is_empty() {
            continue;
        }
        let coming = coming.get_or_init(|| coming_free(capacity));
        if !pool.holds_enough(coming, &amounts) {
            continue;
        }
        match limit_alone(coming, allowance.as_ref(), claimant) {
            // Resources that become free anyway suffice: no further attempt has to stop.
            RemainingBlocker::Nothing(tasks) => {
                proposed.found = claim_coming(capacity, limits_now, claimant, tasks);
                return proposed;
            }
            RemainingBlocker::Limit(only) => pool.narrow(only),
            RemainingBlocker::Room => {}
        }
        let search = Search {
            coming,
            allowance: allowance.as_ref(),
            claimant,
            amounts: &amounts,
        };
        let found = search.among(&mut pool);
        proposed.protection_ends = earlier(proposed.protection_ends, pool.protection_ends());
        proposed.found = cheaper(proposed.found, found);
    }
    proposed
}

/// Free resources plus those of attempts that are being stopped.
fn coming_free<'a>(capacity: &Capacity<'a>) -> Capacity<'a> {
    let stopping = stopping(capacity.state());
    let named: Vec<Victim> = stopping.map(|running| running.as_victim()).collect();
    capacity.free_attempts(&named)
}

/// What still blocks a unit after all attempts being stopped have ended.
enum RemainingBlocker {
    /// Nothing: it fits as given then.
    Nothing(Vec<TaskPlacement>),
    /// A limit; only stopping these attempts helps.
    Limit(LimitScope),
    Room,
}

fn limit_alone(
    coming: &Capacity<'_>,
    allowance: Option<&Allowance<'_>>,
    claimant: Claimant<'_>,
) -> RemainingBlocker {
    let Claimant {
        job,
        unit,
        allocation_basis,
        ..
    } = claimant;
    let Ok(placed) = unit::place_unborrowed(&mut coming.clone(), job, unit) else {
        return RemainingBlocker::Room;
    };
    let amounts = amounts_of(&coming.state().hosts, &job.spec, &placed.tasks);
    match allowance.and_then(|allowance| allowance.reached(&job.spec, allocation_basis, &amounts)) {
        Some(limit) => RemainingBlocker::Limit(LimitScope {
            queue: limit.queue,
            user: limit.user,
        }),
        None => RemainingBlocker::Nothing(placed.tasks),
    }
}

/// A claim without victims on resources that attempts release which are being stopped. Without it a unit that this one
/// may preempt could take them, and would be stopped at once. `None` if a limit blocks the unit until then, or one of
/// the hosts is to be blocked too soon after that.
fn claim_coming(
    capacity: &Capacity<'_>,
    allowance: Option<&Allowance<'_>>,
    claimant: Claimant<'_>,
    tasks: Vec<TaskPlacement>,
) -> Option<Preemption> {
    let Claimant {
        job,
        unit,
        allocation_basis,
        now,
    } = claimant;
    let state = capacity.state();
    let amounts = amounts_of(&state.hosts, &job.spec, &tasks);
    let reached = |allowance: &Allowance<'_>| {
        let reached = allowance.reached(&job.spec, allocation_basis, &amounts);
        reached.is_some()
    };
    if allowance.is_some_and(reached) {
        return None;
    }
    let expected_at = stops_end(state, &tasks, now);
    let requester = Requester::for_claim(job, unit, Some(expected_at), now);
    let too_late = requester.hosts_blocked_too_soon(state, &tasks);
    too_late.is_empty().then_some(Preemption {
        tasks,
        victims: Vec::new(),
        expected_at,
        cost: Cost::default(),
    })
}

fn rights<'s>(state: &'s State, claimant: Claimant<'s>, amounts: &'s Amounts) -> Rights<'s> {
    let Claimant {
        job,
        unit,
        allocation_basis,
        ..
    } = claimant;
    Rights::of(
        state,
        Preemptor {
            job,
            unit,
            allocation_basis,
            amounts,
        },
    )
}

fn earlier(one: Option<TimeMs>, other: Option<TimeMs>) -> Option<TimeMs> {
    one.into_iter().chain(other).min()
}

fn cheaper(known: Option<Preemption>, found: Option<Preemption>) -> Option<Preemption> {
    match (known, found) {
        (Some(known), Some(found)) if found.cost < known.cost => Some(found),
        (known, found) => known.or(found),
    }
}

impl<'a> Search<'_, 'a> {
    /// Examines more and more candidates until they suffice.
    fn among(&self, pool: &mut Pool<'_, 'a>) -> Option<Preemption> {
        for most in WINDOWS {
            let gathered = pool.gather(most);
            let found = self.cheapest(&gathered.candidates);
            if found.is_some() || gathered.is_all {
                return found;
            }
        }
        None
    }

    fn cheapest(&self, candidates: &[Candidate<'a>]) -> Option<Preemption> {
        let all: Vec<&Candidate<'a>> = candidates.iter().collect();
        if candidates.is_empty() || self.is_hopeless_without(&all, self.coming) {
            return None;
        }
        let on_host = self.on_one_host(candidates);
        if on_host.is_some() {
            return on_host;
        }
        let best = self.along_orders(candidates);
        if candidates.len() > EXACT_CANDIDATES_MAX {
            return best;
        }
        exact::among(self, candidates, best)
    }

    /// Whether the unit has no room, or would exceed a limit, even if all of these end: then no subset
    /// suffices.
    fn is_hopeless_without(&self, all: &[&Candidate<'_>], room: &Capacity<'a>) -> bool {
        let Claimant { job, unit, .. } = self.claimant;
        let mut fork = room.free_attempts(&victims_of(all));
        self.is_limited_without(all) || unit::place_unborrowed(&mut fork, job, unit).is_err()
    }

    /// Whether the unit would exceed a limit even if all of these end.
    fn is_limited_without(&self, all: &[&Candidate<'_>]) -> bool {
        let Claimant {
            job,
            allocation_basis,
            ..
        } = self.claimant;
        self.allowance.cloned().is_some_and(|mut allowance| {
            for one in all {
                allowance.take_back(&one.running);
            }
            let reached = allowance.reached(&job.spec, allocation_basis, self.amounts);
            reached.is_some()
        })
    }

    /// Time at which the grace periods of some victims have passed.
    fn stopped_at(&self, victims: &[&Candidate<'_>]) -> TimeMs {
        let grace_ms = victims.iter().map(|one| one.running.job.spec.stop_grace_ms);
        self.claimant.now.after(grace_ms.max().unwrap_or(0))
    }

    /// Placement of the unit once these victims have stopped; `None` if it has no room then (a host that is
    /// to be blocked too soon after that is none) or would exceed a limit.
    fn fits_in(
        &self,
        fork: &Capacity<'_>,
        victims: &[&Candidate<'_>],
    ) -> Option<Vec<TaskPlacement>> {
        let Claimant {
            job,
            unit,
            allocation_basis,
            ..
        } = self.claimant;
        let (tasks, _) = unit::place_later(fork, job, unit, self.stopped_at(victims))?;
        let Some(allowance) = self.allowance else {
            return Some(tasks);
        };
        let hosts = &self.coming.state().hosts;
        let mut allowance = allowance.clone();
        for Candidate { running, .. } in victims {
            allowance.take_back(running);
        }
        let amounts = amounts_of(hosts, &job.spec, &tasks);
        let reached = allowance.reached(&job.spec, allocation_basis, &amounts);
        reached.is_none().then_some(tasks)
    }

    /// Whether the unit may preempt all of these, given the amounts that it would then hold.
    fn may_take(&self, victims: &[&Candidate<'_>], amounts: &Amounts) -> bool {
        let subjects = victims.iter().map(|one| subject(&one.running));
        let mut rights = rights(self.coming.state(), self.claimant, amounts);
        rights.take_all(subjects.collect()).is_ok()
    }

    /// The proposal, if the unit has a right to all victims and to the amounts.
    fn finish(&self, victims: &[&Candidate<'_>], tasks: Vec<TaskPlacement>) -> Option<Preemption> {
        let Claimant { job, now, .. } = self.claimant;
        let amounts = amounts_of(&self.coming.state().hosts, &job.spec, &tasks);
        if victims.is_empty() || !self.may_take(victims, &amounts) {
            return None;
        }
        let mut named: Vec<Victim> = victims.iter().map(|one| one.running.as_victim()).collect();
        named.sort_unstable();
        let others_at = stops_end(self.coming.state(), &tasks, now);
        Some(Preemption {
            tasks,
            victims: named,
            expected_at: self.stopped_at(victims).max(others_at),
            cost: victims
                .iter()
                .fold(Cost::default(), |sum, one| sum.plus(one.cost)),
        })
    }
}

fn subject<'a>(running: &Running<'a>) -> Subject<'a> {
    Subject::attempt(running.job, running.attempt)
}

/// The candidates as commands name them.
fn victims_of(candidates: &[&Candidate<'_>]) -> Vec<Victim> {
    candidates
        .iter()
        .map(|one| one.running.as_victim())
        .collect()
}
