//! Greedy victim selection: candidates are freed one after the other until the unit fits, then every
//! unneeded one is restored, most expensive first. The cheaper result of two orders is used (least lost
//! work first; host by host, cheapest host first): a heuristic.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use muster_model::command::TaskPlacement;
use muster_model::ids::HostId;
use muster_model::limits;

use crate::in_the_way::InTheWay;
use crate::preempt::candidates::Candidate;
use crate::preempt::{Cost, Preemption, Search, subject, victims_of};
use crate::smallest_prefix;

/// Attempts that the last pass frees in total while it tries to restore victims one by one; beyond it all
/// attempts in the way stay victims.
const FREED_AGAIN_MAX: usize = 1_024;

/// Victims, and the placement of the unit without them.
struct Chosen<'c, 'a> {
    victims: Vec<&'c Candidate<'a>>,
    tasks: Vec<TaskPlacement>,
}

impl<'a> Search<'_, 'a> {
    /// The cheaper result of the two orders.
    pub(super) fn along_orders(&self, candidates: &[Candidate<'a>]) -> Option<Preemption> {
        let orders = [by_cost(candidates), by_host(candidates)];
        let [one, other] = orders.map(|order| self.along(&self.takeable(order)));
        super::cheaper(one, other)
    }

    /// Candidates that may be preempted one after the other in this order: every one of another queue
    /// brings that queue closer to its guarantee.
    fn takeable<'c>(&self, order: Vec<&'c Candidate<'a>>) -> Vec<&'c Candidate<'a>> {
        let state = self.coming.state();
        let mut rights = super::rights(state, self.claimant, self.amounts);
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

    /// Victims along one order: the shortest prefix that makes room, without those that are not needed.
    fn along(&self, order: &[&Candidate<'a>]) -> Option<Preemption> {
        let named = victims_of(order);
        let (count, tasks) = smallest_prefix::smallest(self.coming, &named, |fork, count| {
            self.fits_in(fork, &order[..count])
        })?;
        let victims = order[..count].to_vec();
        let mut dearest_first = victims.clone();
        dearest_first.sort_by_key(|victim| Reverse(victim.cost));
        let mut chosen = self.sparing_idle(Chosen { victims, tasks });
        let tries_max = FREED_AGAIN_MAX / chosen.victims.len().max(1);
        for spared in dearest_first.into_iter().take(tries_max) {
            let spared = spared.running.as_victim();
            let fewer = self.sparing(&chosen, |victim| victim.running.as_victim() == spared);
            if let Some(fewer) = fewer {
                // The unit may go elsewhere now: others may have become idle.
                chosen = self.sparing_idle(fewer);
            }
        }
        self.finish(&chosen.victims, chosen.tasks)
    }

    /// Spares all victims at once that hold nothing where the unit goes, if it still fits then.
    fn sparing_idle<'c>(&self, chosen: Chosen<'c, 'a>) -> Chosen<'c, 'a> {
        let in_the_way = InTheWay::of(&chosen.tasks);
        self.sparing(&chosen, |victim| !in_the_way.holds(&victim.running))
            .unwrap_or(chosen)
    }

    /// The victims without some of them; `None` if there are no such victims or the unit does not fit then.
    fn sparing<'c>(
        &self,
        chosen: &Chosen<'c, 'a>,
        is_spared: impl Fn(&Candidate<'a>) -> bool,
    ) -> Option<Chosen<'c, 'a>> {
        let mut victims = chosen.victims.clone();
        victims.retain(|victim| !is_spared(victim));
        if victims.len() == chosen.victims.len() {
            return None;
        }
        let fork = self.coming.free_attempts(&victims_of(&victims));
        let tasks = self.fits_in(&fork, &victims)?;
        Some(Chosen { victims, tasks })
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
