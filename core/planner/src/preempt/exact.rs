//! Exact victim selection: the cheapest subset of candidates, by branch and bound.
//!
//! Sets are tried in the order of their candidates, cheapest first; a branch ends where it cannot become
//! cheaper than the best known set. Only sets with enough GPUs are tried, each on a fork.

use crate::capacity::Capacity;
use crate::preempt::candidates::Candidate;
use crate::preempt::{Cost, Preemption, Search, victims_of};

/// Maximum number of sets tried for one unit; beyond it the cheapest of those tried is used.
pub(super) const TRIES_MAX: u32 = 512;
/// Maximum number of branches examined in one search.
const BRANCHES_MAX: u32 = 16_384;

/// A candidate, and the GPUs that it frees where the search looks for room.
#[derive(Clone, Copy)]
pub(super) struct Item<'c, 'a> {
    pub(super) candidate: &'c Candidate<'a>,
    pub(super) gpus: u32,
}

/// One search.
pub(super) struct Exact<'e, 'c, 's, 'a> {
    pub(super) search: &'e Search<'s, 'a>,
    /// Capacity in which room is sought.
    pub(super) room: Capacity<'a>,
    /// Items, cheapest first.
    pub(super) items: Vec<Item<'c, 'a>>,
    /// Minimum number of GPUs to free.
    pub(super) needed: u32,
    pub(super) best: Option<Preemption>,
    /// Remaining number of sets that may be tried.
    pub(super) tries: u32,
    branches: u32,
    /// Whether all candidates together are known to suffice.
    is_hopeful: bool,
}

/// The cheapest subset of some candidates, if it is cheaper than the best known.
pub(super) fn among<'a>(
    search: &Search<'_, 'a>,
    candidates: &[Candidate<'a>],
    best: Option<Preemption>,
) -> Option<Preemption> {
    let items = candidates.iter().map(|candidate| Item {
        candidate,
        gpus: candidate.running.attempt.gpus(),
    });
    let coming = search.coming;
    let free: u64 = coming.models().map(|model| coming.gpus_free(model)).sum();
    let needed = u32::try_from(search.amounts.gpus.saturating_sub(free)).unwrap_or(u32::MAX);
    let mut exact = Exact::new(search, coming.clone(), items.collect(), needed);
    exact.best = best;
    exact.run();
    exact.best
}

impl<'e, 'c, 's, 'a> Exact<'e, 'c, 's, 'a> {
    pub(super) fn new(
        search: &'e Search<'s, 'a>,
        room: Capacity<'a>,
        mut items: Vec<Item<'c, 'a>>,
        needed: u32,
    ) -> Self {
        items.sort_by_key(|item| item.candidate.cost);
        Self {
            search,
            room,
            items,
            needed,
            best: None,
            tries: TRIES_MAX,
            branches: BRANCHES_MAX,
            is_hopeful: false,
        }
    }

    pub(super) fn run(&mut self) {
        self.branch(&mut Vec::new(), 0, Cost::default(), 0);
    }

    /// Visits all sets that consist of the chosen candidates, which cost `cost` and free `gpus`, and any of
    /// the items from `next` on.
    fn branch(&mut self, chosen: &mut Vec<&'c Candidate<'a>>, next: usize, cost: Cost, gpus: u32) {
        if gpus >= self.needed && !chosen.is_empty() && self.try_out(chosen) {
            // Adding candidates only raises the cost.
            return;
        }
        for position in next..self.items.len() {
            let item = self.items[position];
            let cost = cost.plus(item.candidate.cost);
            // Later candidates cost no less.
            if !self.is_cheaper(cost) || self.tries == 0 || self.branches == 0 {
                return;
            }
            self.branches -= 1;
            chosen.push(item.candidate);
            self.branch(chosen, position + 1, cost, gpus + item.gpus);
            chosen.pop();
        }
    }

    /// If one set does not suffice, and all candidates together do not either, no other set need be tried.
    fn end_if_hopeless(&mut self) {
        if self.is_hopeful {
            return;
        }
        let all: Vec<_> = self.items.iter().map(|item| item.candidate).collect();
        self.is_hopeful = !self.search.is_hopeless_without(&all, &self.room);
        if !self.is_hopeful {
            self.branches = 0;
        }
    }

    fn is_cheaper(&self, cost: Cost) -> bool {
        self.best.as_ref().is_none_or(|best| cost < best.cost)
    }

    /// Tries whether the unit fits without the chosen victims; if so and if it may preempt them, they
    /// become the best set.
    fn try_out(&mut self, chosen: &[&'c Candidate<'a>]) -> bool {
        self.tries -= 1;
        let fork = self.room.free_attempts(&victims_of(chosen));
        let Some(tasks) = self.search.fits_in(&fork, chosen) else {
            self.end_if_hopeless();
            return false;
        };
        let found = self.search.finish(chosen, tasks);
        self.best = super::cheaper(self.best.take(), found);
        true
    }
}
