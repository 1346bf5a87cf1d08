//! What bad hardware takes from virtual clusters: counted over the whole cluster, not for each of them, because which
//! of them would go without is open until they ask.

use std::collections::BTreeMap;
use std::sync::Arc;

use muster_model::topology::{CellId, CellKind};
use serde::{Deserialize, Serialize};

use crate::cells::Allocation;
use crate::cells::surplus::{self, Counts};

/// Healthy cells of a kind that are missing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CellShortage {
    /// Of which kind.
    pub kind: CellKind,
    /// How many cells.
    pub missing: u64,
    /// To whom cells of the kind are owed, and how many: the missing ones are among those.
    pub owed: Vec<(Arc<str>, u32)>,
    /// How the healthy cells add up, for people.
    pub arithmetic: String,
}

/// Cells of one kind that a virtual cluster is guaranteed, and what there is of them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CellsLeft {
    /// The kind, for people: `host of 8 H100`.
    pub kind: String,
    /// Cells guaranteed.
    pub guaranteed: u32,
    /// Cells bound; the cluster may still have as many as are guaranteed beside.
    pub bound: u32,
    /// Cells bound to nobody, in which nothing is in use and nothing out of order.
    pub free: u64,
    /// Cells bound to nobody that others use.
    pub in_use: u64,
    /// Cells bound to nobody that bad hardware makes worth less.
    pub unhealthy: u64,
}

impl Allocation {
    /// What a virtual cluster is guaranteed, kind by kind, and what there is to bind. It looks at all free cells.
    #[must_use]
    pub fn cells_left(&self, queue: &str) -> Vec<CellsLeft> {
        self.quotas(queue)
            .map(|(kind, quota)| {
                let mut left = CellsLeft {
                    kind: self.ground().kind_name(kind),
                    guaranteed: quota.count,
                    bound: quota.bound,
                    free: 0,
                    in_use: 0,
                    unhealthy: 0,
                };
                for cell in self.unbound(kind) {
                    let load = self.ground().load(&cell);
                    let count = match (load.bad, load.busy) {
                        (0, 0) => &mut left.free,
                        (0, _) => &mut left.in_use,
                        _ => &mut left.unhealthy,
                    };
                    *count += 1;
                }
                left
            })
            .collect()
    }

    /// The cells of a kind that are free, or lie in larger free ones.
    fn unbound(&self, kind: &CellKind) -> Vec<CellId> {
        let outer = self.free_kinds();
        let outer = outer.filter(|outer| *outer == kind || self.ground().may_hold(outer, kind));
        let mut open: Vec<CellId> = outer
            .filter_map(|outer| self.free_of(outer))
            .flatten()
            .map(|(_, cell)| cell.clone())
            .collect();
        let mut found = Vec::new();
        while let Some(cell) = open.pop() {
            match self.ground().kind(&cell) {
                Some(own) if own == *kind => found.push(cell),
                Some(own) if own.level < kind.level => open.extend(self.ground().children(&cell)),
                _ => {}
            }
        }
        found
    }

    /// Kinds of which there are fewer healthy cells than are owed, largest first; empty while every virtual cluster
    /// can get all that it is guaranteed.
    #[must_use]
    pub fn shortages(&self) -> Vec<CellShortage> {
        let healthy = self.healthy();
        let owed: Vec<CellKind> = self.all_owed().map(|(kind, _)| kind.clone()).collect();
        let sums = surplus::sums(self.ground(), None, owed.iter(), |kind| Counts {
            free: healthy.get(kind).copied().unwrap_or(0),
            owed: self.counts(kind).owed,
        });
        sums.into_iter()
            .filter(|(_, sum)| sum.left() < 0)
            .map(|(kind, sum)| CellShortage {
                kind: kind.clone(),
                missing: sum.left().unsigned_abs(),
                owed: self.owed(kind),
                arithmetic: sum.text(self.ground(), kind),
            })
            .collect()
    }

    /// Free cells without bad hardware that are in no larger such cell.
    fn healthy(&self) -> BTreeMap<CellKind, i64> {
        let mut healthy = BTreeMap::new();
        let mut broken: Vec<CellId> = Vec::new();
        for kind in self.free_kinds() {
            let cells = self.free_of(kind);
            let bad = cells.into_iter().flatten().rev();
            let bad: Vec<CellId> = bad
                .take_while(|(load, _)| load.bad > 0)
                .map(|(_, cell)| cell.clone())
                .collect();
            let whole = cells.map_or(0, imbl::OrdSet::len) - bad.len();
            healthy.insert(kind.clone(), i64::try_from(whole).unwrap_or(i64::MAX));
            broken.extend(bad);
        }
        while let Some(cell) = broken.pop() {
            for child in self.ground().children(&cell) {
                let Some(kind) = self.ground().kind(&child) else {
                    continue;
                };
                match self.ground().load(&child).bad {
                    0 => *healthy.entry(kind).or_default() += 1,
                    _ => broken.push(child),
                }
            }
        }
        healthy
    }
}
