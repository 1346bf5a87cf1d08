//! Splits of cells into smaller ones.

use muster_model::topology::CellKind;

use crate::cells::CellTree;

impl CellTree {
    /// Returns all kinds of cells of a GPU model (of all models if `None`), largest level first.
    pub(in crate::cells) fn kinds<'a>(
        &'a self,
        gpu_model: Option<&'a str>,
    ) -> impl Iterator<Item = &'a CellKind> {
        self.splits
            .keys()
            .filter(move |kind| gpu_model.is_none_or(|model| *kind.gpu_model == *model))
    }

    /// Returns the minimum number of cells of each kind that a split of any cell of this kind yields.
    pub(in crate::cells) fn fewest(&self, kind: &CellKind) -> Vec<(&CellKind, u32)> {
        let Some(ways) = self.splits.get(kind) else {
            return Vec::new();
        };
        let mut all = ways.keys();
        let Some(first) = all.next() else {
            return Vec::new();
        };
        let mut fewest: Vec<(&CellKind, u32)> =
            first.iter().map(|(kind, count)| (kind, *count)).collect();
        for way in all {
            for (kind, count) in &mut fewest {
                let other = way.iter().find(|(other, _)| other == *kind);
                *count = (*count).min(other.map_or(0, |(_, count)| *count));
            }
        }
        fewest.retain(|(_, count)| *count > 0);
        fewest
    }

    /// Whether some cell of the first kind contains one of the second.
    pub(in crate::cells) fn may_hold(&self, outer: &CellKind, inner: &CellKind) -> bool {
        outer == inner
            || outer.level < inner.level
                && self.splits.get(outer).is_some_and(|ways| {
                    ways.keys()
                        .flatten()
                        .any(|(child, _)| self.may_hold(child, inner))
                })
    }
}
