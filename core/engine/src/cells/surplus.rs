//! The safety of virtual clusters: at any moment each can get all cells that it is still owed, whatever the others do.
//!
//! For every kind of cell, largest first: `left = free - owed + what the cells left of larger kinds split into`. The
//! state is safe if nothing is left below zero. `free` counts cells that are in no larger free cell, `owed` the quota
//! that is not bound. Where cells of one kind split in different ways, the fewest that come out of any count, so the
//! condition is sufficient for every tree and exact for uniform ones. The health of hardware does not enter.

use std::collections::BTreeMap;
use std::fmt::Write;

use muster_model::topology::CellKind;

use crate::cells::Ground;

/// Free and owed cells of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) free: i64,
    pub(super) owed: i64,
}

/// How the cells of one kind add up.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Sum {
    counts: Counts,
    /// From which larger kinds how many come: how many out of each, and how many of those are left.
    larger: Vec<(CellKind, i64, i64)>,
}

impl Sum {
    /// Cells that nobody is owed; below zero, cells that are missing.
    pub(super) fn left(&self) -> i64 {
        let split: i64 = self.larger.iter().map(|(_, each, left)| each * left).sum();
        self.counts.free - self.counts.owed + split
    }

    /// The arithmetic for people.
    pub(super) fn text(&self, ground: &Ground, kind: &CellKind) -> String {
        let mut text = format!("{}: {} free", ground.kind_name(kind), self.counts.free);
        for (larger, each, left) in &self.larger {
            // Writing to a string cannot fail.
            let _ = write!(
                text,
                " + {each} x {left} left of {}",
                ground.kind_name(larger)
            );
        }
        let _ = write!(text, " - {} owed = {}", self.counts.owed, self.left());
        text
    }
}

/// Adds up all kinds of one GPU model (of all if none). `counts` gives those of each kind; `owed` lists the kinds that
/// are owed, whether or not there are such cells.
pub(super) fn sums<'a>(
    ground: &'a Ground,
    gpu_model: Option<&'a str>,
    owed: impl Iterator<Item = &'a CellKind>,
    counts: impl Fn(&CellKind) -> Counts,
) -> BTreeMap<&'a CellKind, Sum> {
    let mut sums: BTreeMap<&CellKind, Sum> = ground
        .kinds(gpu_model)
        .chain(owed)
        .map(|kind| {
            let counts = counts(kind);
            (
                kind,
                Sum {
                    counts,
                    larger: Vec::new(),
                },
            )
        })
        .collect();
    let kinds: Vec<&CellKind> = sums.keys().copied().collect();
    for kind in kinds {
        let left = sums[kind].left();
        if left <= 0 {
            continue;
        }
        for (child, each) in ground.fewest(kind) {
            if let Some(sum) = sums.get_mut(child) {
                sum.larger.push((kind.clone(), i64::from(each), left));
            }
        }
    }
    sums
}
