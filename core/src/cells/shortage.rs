//! What bad hardware takes from virtual clusters: counted over the whole cluster, not for each of them, because which
//! of them would go without is open until they ask.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::cells::Allocation;
use crate::cells::surplus::{self, Counts};
use crate::topology::{CellId, CellKind};

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

impl Allocation {
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
