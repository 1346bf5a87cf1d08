//! Cells that bad hardware takes from virtual clusters: counted over the whole cluster, because it is
//! undecided which of them would be short until they ask.

use std::collections::BTreeMap;
use std::sync::Arc;

use muster_model::topology::{CellId, CellKind};
use serde::{Deserialize, Serialize};

use crate::cells::Allocation;
use crate::cells::safety::{self, Counts};

/// A shortage of healthy cells of one kind.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CellShortage {
    /// The kind.
    pub kind: CellKind,
    /// Number of missing cells.
    pub missing: u64,
    /// Cells of the kind that are owed, by virtual cluster: the missing ones are among those.
    pub owed: Vec<(Arc<str>, u32)>,
    /// The sum of healthy cells, human-readable.
    pub arithmetic: String,
}

/// Guaranteed cells of one kind, and the cells available for them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CellsLeft {
    /// Display name of the kind: `host of 8 H100`.
    pub kind: String,
    /// Cells guaranteed.
    pub guaranteed: u32,
    /// Cells bound; the virtual cluster may get the rest of its guarantee besides.
    pub bound: u32,
    /// Unbound cells that are completely idle and healthy.
    pub free: u64,
    /// Unbound cells in use by other work.
    pub in_use: u64,
    /// Unbound cells with bad hardware.
    pub unhealthy: u64,
}

impl Allocation {
    /// Returns the guarantees of a virtual cluster by kind, and the cells available for them. Visits all free
    /// cells.
    #[must_use]
    pub fn cells_left(&self, queue: &str) -> Vec<CellsLeft> {
        self.quotas(queue)
            .map(|(kind, quota)| {
                let mut left = CellsLeft {
                    kind: self.tree().kind_name(kind),
                    guaranteed: quota.count,
                    bound: quota.bound,
                    free: 0,
                    in_use: 0,
                    unhealthy: 0,
                };
                for cell in self.unbound(kind) {
                    let load = self.tree().load(&cell);
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

    /// Returns the cells of a kind that are free, or lie in larger free ones.
    fn unbound(&self, kind: &CellKind) -> Vec<CellId> {
        let outer = self.free_kinds();
        let outer = outer.filter(|outer| *outer == kind || self.tree().may_hold(outer, kind));
        let mut open: Vec<CellId> = outer
            .filter_map(|outer| self.free_of(outer))
            .flatten()
            .map(|(_, cell)| cell.clone())
            .collect();
        let mut found = Vec::new();
        while let Some(cell) = open.pop() {
            match self.tree().kind(&cell) {
                Some(own) if own == *kind => found.push(cell),
                Some(own) if own.level < kind.level => open.extend(self.tree().children(&cell)),
                _ => {}
            }
        }
        found
    }

    /// Returns the kinds with fewer healthy cells than are owed, largest first; empty while every virtual
    /// cluster can get all that it is guaranteed.
    #[must_use]
    pub fn shortages(&self) -> Vec<CellShortage> {
        let healthy = self.healthy();
        let owed: Vec<CellKind> = self.all_owed().map(|(kind, _)| kind.clone()).collect();
        let sums = safety::sums(self.tree(), None, owed.iter(), |kind| Counts {
            free: healthy.get(kind).copied().unwrap_or(0),
            owed: self.counts(kind).owed,
        });
        sums.into_iter()
            .filter(|(_, sum)| sum.left() < 0)
            .map(|(kind, sum)| CellShortage {
                kind: kind.clone(),
                missing: sum.left().unsigned_abs(),
                owed: self.owed(kind),
                arithmetic: sum.text(self.tree(), kind),
            })
            .collect()
    }

    /// Returns the number of free healthy cells, by kind, that are in no larger such cell.
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
            for child in self.tree().children(&cell) {
                let Some(kind) = self.tree().kind(&child) else {
                    continue;
                };
                match self.tree().load(&child).bad {
                    0 => *healthy.entry(kind).or_default() += 1,
                    _ => broken.push(child),
                }
            }
        }
        healthy
    }
}
