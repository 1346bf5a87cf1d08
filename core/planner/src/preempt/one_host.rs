//! Victim selection for a single task: it runs on one host, so each host is a small search of its own.

use std::collections::BTreeMap;

use muster_model::ids::{HostId, TaskIndex};
use muster_model::spec::TaskGroup;
use muster_model::topology::GpuMask;

use crate::capacity::Masks;
use crate::preempt::candidates::Candidate;
use crate::preempt::exact::{Exact, Item, TRIES_MAX};
use crate::preempt::{Cost, Preemption, Search};

/// A host with the lower bound of its cost, and the attempts that hold resources there.
struct Site<'c, 'a> {
    at_least: Cost,
    host: HostId,
    needed: u32,
    items: Vec<Item<'c, 'a>>,
}

impl<'a> Search<'_, 'a> {
    /// The cheapest set for a unit of one task with GPUs; `None` for other units.
    ///
    /// A limit may require victims elsewhere: that is not considered here.
    pub(super) fn on_one_host(&self, candidates: &[Candidate<'a>]) -> Option<Preemption> {
        let group = self.single_task()?;
        let mut sites = self.sites(group, candidates);
        sites.sort_by_key(|site| (site.at_least, site.host));
        let mut best: Option<Preemption> = None;
        let mut tries = TRIES_MAX;
        for site in sites {
            let hopeless = best.as_ref().is_some_and(|best| best.cost <= site.at_least);
            if hopeless || tries == 0 {
                break;
            }
            let all_gpus = Masks::from([(site.host, GpuMask(u128::MAX))]);
            let room = self.coming.within(all_gpus);
            let mut exact = Exact::new(self, room, site.items, site.needed);
            exact.best = best;
            exact.tries = tries;
            exact.run();
            (best, tries) = (exact.best, exact.tries);
        }
        best
    }

    fn single_task(&self) -> Option<&TaskGroup> {
        let job = self.claimant.job;
        let tasks = job.tasks_of(self.claimant.unit);
        let (group, _) = job.spec.group_of(TaskIndex(tasks.start))?;
        let alone = tasks.len() == 1 && group.resources.gpus > 0;
        alone.then_some(group)
    }

    /// Hosts on which all candidates together hold enough.
    fn sites<'c>(&self, group: &TaskGroup, candidates: &'c [Candidate<'a>]) -> Vec<Site<'c, 'a>> {
        let mut by_host: BTreeMap<HostId, Vec<Item<'c, 'a>>> = BTreeMap::new();
        for candidate in candidates {
            for run in &candidate.running.attempt.tasks {
                let items = by_host.entry(run.host).or_default();
                let gpus = u32::try_from(run.gpus.len()).unwrap_or(u32::MAX);
                match items.last_mut() {
                    Some(last) if std::ptr::eq(last.candidate, candidate) => last.gpus += gpus,
                    _ => items.push(Item { candidate, gpus }),
                }
            }
        }
        let state = self.coming.state();
        let sites = by_host.into_iter().filter_map(|(host, items)| {
            let free = self.coming.free_on(state.host(host)?, "").count();
            let needed = group.resources.gpus.saturating_sub(free);
            let held: u32 = items.iter().map(|item| item.gpus).sum();
            let site = Site {
                at_least: at_least(&items, needed),
                host,
                needed,
                items,
            };
            (held >= needed).then_some(site)
        });
        sites.collect()
    }
}

/// Lower bound of the cost of any set that frees the given number of GPUs: the cheapest item alone, and not
/// less than every GPU at the price of the cheapest.
fn at_least(items: &[Item<'_, '_>], gpus: u32) -> Cost {
    let cheapest = items.iter().map(|item| item.candidate.cost).min();
    let price = |cost: fn(&Cost) -> u64| {
        let prices = items.iter().map(|item| {
            let gpus = u64::from(item.gpus.max(1));
            cost(&item.candidate.cost) / gpus
        });
        prices.min().unwrap_or(0).saturating_mul(u64::from(gpus))
    };
    let by_price = Cost {
        firm_ms: price(|cost| cost.firm_ms),
        ..Cost::default()
    };
    cheapest.unwrap_or_default().max(by_price)
}
