//! Victims along an order: candidates are freed one after the other until the unit fits, then every
//! unneeded one is restored, most expensive first. The cheaper result of two orders is used (least lost
//! work first; host by host, cheapest host first): a heuristic.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use muster_model::ids::HostId;
use muster_model::limits;

use crate::preempt::candidates::Candidate;
use crate::preempt::{Cost, Preemption, Search, names, subject};
use crate::prefix;

/// Attempts that the last pass frees in total while it tries to restore victims one by one; beyond it all
/// attempts in the way stay victims.
const FREED_AGAIN_MAX: usize = 1_024;

impl<'a> Search<'_, 'a> {
    /// The cheaper result of the two orders.
    pub(super) fn along_orders(&self, candidates: &[Candidate<'a>]) -> Option<Preemption> {
        let found = [by_cost(candidates), by_host(candidates)].map(|order| {
            let order = self.takeable(order);
            self.along(&order)
        });
        let [one, other] = found;
        super::cheaper(one, other)
    }

    /// Candidates that may be preempted one after the other in this order: every one of another queue
    /// brings that queue closer to its guarantee.
    fn takeable<'c>(&self, order: Vec<&'c Candidate<'a>>) -> Vec<&'c Candidate<'a>> {
        let state = self.coming.state();
        let mut rights = super::rights(state, self.wanting, self.amounts);
        let taken = order.into_iter().filter(|candidate| {
            let subject = subject(&candidate.running);
            let allowed = rights.over(&subject).is_ok();
            if allowed {
                rights.take(&subject);
            }
            allowed
        });
        taken.take(limits::VICTIMS_PER_CLAIM_MAX).collect()
    }

    fn along(&self, order: &[&Candidate<'a>]) -> Option<Preemption> {
        let named = names(order);
        let (count, mut tasks) = prefix::smallest(self.coming, &named, |fork, count| {
            self.fits_in(fork, &order[..count])
        })?;
        let mut victims = order[..count].to_vec();
        let mut dearest_first = victims.clone();
        dearest_first.sort_by_key(|victim| Reverse(victim.cost));
        self.give_back_idle(&mut victims, &mut tasks);
        let reprieves = FREED_AGAIN_MAX / victims.len().max(1);
        for spared in dearest_first.into_iter().take(reprieves) {
            let is_spared = |one: &&Candidate<'a>| std::ptr::eq(*one, spared);
            let Some(position) = victims.iter().position(is_spared) else {
                continue;
            };
            let mut rest = victims.clone();
            rest.remove(position);
            let mut fork = self.coming.free_attempts(&names(&rest));
            if let Some(found) = self.fits_in(&mut fork, &rest) {
                (victims, tasks) = (rest, found);
                self.give_back_idle(&mut victims, &mut tasks);
            }
        }
        self.finish(&victims, tasks)
    }

    /// Restores all victims at once that hold nothing where the unit goes, if it still fits then.
    fn give_back_idle(
        &self,
        victims: &mut Vec<&Candidate<'a>>,
        tasks: &mut Vec<muster_model::command::TaskPlacement>,
    ) {
        let in_the_way = super::in_the_way::InTheWay::of(tasks);
        let rest: Vec<&Candidate<'a>> = victims
            .iter()
            .copied()
            .filter(|victim| in_the_way.holds(&victim.running))
            .collect();
        if rest.len() == victims.len() {
            return;
        }
        let mut fork = self.coming.free_attempts(&names(&rest));
        if let Some(found) = self.fits_in(&mut fork, &rest) {
            (*victims, *tasks) = (rest, found);
        }
    }
}

/// Least lost work first; ties go to the lower priority, then to the youngest: the order in which they are
/// gathered.
fn by_cost<'c, 'a>(candidates: &'c [Candidate<'a>]) -> Vec<&'c Candidate<'a>> {
    candidates.iter().collect()
}

/// Host by host, least lost work first; an attempt over several hosts comes with its first.
fn by_host<'c, 'a>(candidates: &'c [Candidate<'a>]) -> Vec<&'c Candidate<'a>> {
    let mut cost_of: BTreeMap<HostId, Cost> = BTreeMap::new();
    for candidate in candidates {
        for host in candidate.running.attempt.hosts() {
            let cost = cost_of.entry(host).or_default();
            *cost = cost.plus(candidate.cost);
        }
    }
    let mut order: Vec<&Candidate<'a>> = candidates.iter().collect();
    order.sort_by_cached_key(|candidate| {
        let hosts = candidate.running.attempt.hosts();
        let costs = hosts
            .into_iter()
            .filter_map(|host| Some((*cost_of.get(&host)?, host)));
        (
            costs.min(),
            candidate.cost,
            Reverse(candidate.running.job.id),
        )
    });
    order
}
