//! Safety of virtual clusters: at any time each can get all cells that it is still owed, regardless of the
//! others.
//!
//! For every kind of cell, largest first: `left = free - owed + splits of the cells left of larger kinds`.
//! The state is safe if nothing is left below zero. `free` counts cells that are in no larger free cell,
//! `owed` the quota that is not bound. If cells of one kind split in different ways, the minimum over all of
//! them counts, so the condition is sufficient for every tree and exact for uniform ones. The health of
//! hardware is not considered.

use std::collections::BTreeMap;
use std::fmt::Write;

use muster_model::topology::CellKind;

use crate::cells::CellTree;

/// Free and owed cells of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) free: i64,
    pub(super) owed: i64,
}

/// The sum of one kind of cells.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct KindBalance {
    counts: Counts,
    /// Contributions of larger kinds: kind, cells per split, and number left.
    larger: Vec<(CellKind, i64, i64)>,
}

impl KindBalance {
    /// Returns the cells left over; below zero, the cells missing.
    pub(super) fn left(&self) -> i64 {
        let split: i64 = self.larger.iter().map(|(_, each, left)| each * left).sum();
        self.counts.free - self.counts.owed + split
    }

    /// Returns the sum in human-readable form.
    pub(super) fn text(&self, tree: &CellTree, kind: &CellKind) -> String {
        let mut text = format!("{}: {} free", tree.kind_name(kind), self.counts.free);
        for (larger, each, left) in &self.larger {
            // Writing to a string cannot fail.
            let _ = write!(
                text,
                " + {each} x {left} left of {}",
                tree.kind_name(larger)
            );
        }
        let _ = write!(text, " - {} owed = {}", self.counts.owed, self.left());
        text
    }
}

/// Computes the sums of all kinds of one GPU model (of all if `None`). `counts` gives those of each kind;
/// `owed` lists the owed kinds, whether or not such cells exist.
pub(super) fn sums<'a>(
    tree: &'a CellTree,
    gpu_model: Option<&'a str>,
    owed: impl Iterator<Item = &'a CellKind>,
    counts: impl Fn(&CellKind) -> Counts,
) -> BTreeMap<&'a CellKind, KindBalance> {
    let mut sums: BTreeMap<&CellKind, KindBalance> = tree
        .kinds(gpu_model)
        .chain(owed)
        .map(|kind| {
            let counts = counts(kind);
            (
                kind,
                KindBalance {
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
        for (child, each) in tree.fewest(kind) {
            if let Some(sum) = sums.get_mut(child) {
                sum.larger.push((kind.clone(), i64::from(each), left));
            }
        }
    }
    sums
}
