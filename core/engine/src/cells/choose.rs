//! Choice of a cell to bind when a virtual cluster asks for one of a kind.
//!
//! Buddy allocation: free cells of the kind itself first, then those split off the smallest larger free cell.
//! Among equals healthy ones first, then those least used by others, then by id. To avoid bad hardware,
//! larger cells are split although smaller ones are free, as long as owed cells stay available.

use std::ops::ControlFlow;

use muster_model::topology::{CellId, CellKind};

use crate::cells::{Allocation, Load};

/// Maximum number of free cells tried for one binding. Without bad hardware or protected work the first one
/// suffices.
const CELLS_TRIED_MAX: usize = 512;

/// Requirements on a cell.
#[derive(Clone, Copy, Debug)]
pub struct Wanted<'a> {
    /// Its kind.
    pub kind: &'a CellKind,
    /// GPUs that are not bad.
    pub healthy_gpus: u32,
    /// GPUs that are not in use.
    pub free_gpus: u32,
}

impl Wanted<'_> {
    fn met_by(&self, load: Load) -> bool {
        let healthy = self.kind.gpus.saturating_sub(load.bad);
        healthy >= self.healthy_gpus && healthy.saturating_sub(load.busy) >= self.free_gpus
    }
}

/// A search: the requirements, the deciding callback, and the number of cells that may still be tried.
struct Search<'a, F> {
    allocation: &'a Allocation,
    wanted: Wanted<'a>,
    bad_max: u32,
    accept: F,
    tries_left: usize,
}

impl Allocation {
    /// Offers cells of a kind, best first, until one is accepted: fully healthy ones of all sizes of free
    /// cells first, then the others.
    pub fn choose<T>(
        &self,
        wanted: Wanted<'_>,
        mut accept: impl FnMut(&CellId) -> Option<T>,
    ) -> Option<T> {
        for (bad_min, bad_max) in [(0, 0), (1, u32::MAX)] {
            let mut search = Search {
                allocation: self,
                wanted,
                bad_max,
                accept: |cell: &CellId, load: Load| match load.bad >= bad_min {
                    true => accept(cell),
                    false => None,
                },
                tries_left: CELLS_TRIED_MAX,
            };
            if let ControlFlow::Break(found) = search.run() {
                return found;
            }
        }
        None
    }

    /// Visits cells of a kind in the order of [`Allocation::choose`] until the visitor breaks.
    pub(super) fn visit(
        &self,
        wanted: Wanted<'_>,
        mut visitor: impl FnMut(&CellId) -> ControlFlow<()>,
    ) {
        self.choose(wanted, |cell| visitor(cell).break_value());
    }
}

impl<T, F: FnMut(&CellId, Load) -> Option<T>> Search<'_, F> {
    /// Breaks with the accepted result, or with `None` when all tries are used up.
    fn run(&mut self) -> ControlFlow<Option<T>> {
        let allocation = self.allocation;
        for outer in allocation.free_kinds().rev() {
            let tree = allocation.tree();
            if *outer == *self.wanted.kind {
                self.of_kind(outer)?;
            } else if tree.may_hold(outer, self.wanted.kind) {
                for (load, cell) in allocation.free_of(outer).into_iter().flatten() {
                    // Bad or busy GPUs of the larger cell may lie outside the smaller one.
                    if outer.gpus - load.bad >= self.wanted.healthy_gpus {
                        self.inside(cell)?;
                    }
                }
            }
        }
        ControlFlow::Continue(())
    }

    /// Offers free cells of the kind itself; those with too little room are skipped together.
    fn of_kind(&mut self, kind: &CellKind) -> ControlFlow<Option<T>> {
        let Some(cells) = self.allocation.free_of(kind) else {
            return ControlFlow::Continue(());
        };
        let lowest = CellId::Above(std::sync::Arc::from(""));
        let mut from = Load::default();
        while from.bad <= self.bad_max {
            let Some((load, cell)) = cells.range((from, lowest.clone())..).next() else {
                break;
            };
            let bad = load.bad;
            if bad > self.bad_max {
                break;
            }
            let of_group = cells.range((*load, cell.clone())..);
            for (load, cell) in of_group.take_while(|(load, _)| load.bad == bad) {
                if !self.wanted.met_by(*load) {
                    break;
                }
                self.offer(cell, *load)?;
            }
            from = Load {
                bad: bad + 1,
                busy: 0,
            };
        }
        ControlFlow::Continue(())
    }

    /// Offers cells of the kind inside a larger one, along the children with the least load.
    fn inside(&mut self, outer: &CellId) -> ControlFlow<Option<T>> {
        let tree = self.allocation.tree();
        let mut children: Vec<(Load, CellId, CellKind)> = tree
            .children(outer)
            .into_iter()
            .filter_map(|child| {
                let kind = tree.kind(&child)?;
                let load = tree.load(&child);
                let healthy = kind.gpus - load.bad >= self.wanted.healthy_gpus;
                let holds = healthy && tree.may_hold(&kind, self.wanted.kind);
                holds.then_some((load, child, kind))
            })
            .collect();
        children.sort_unstable();
        for (load, child, kind) in children {
            if kind != *self.wanted.kind {
                self.inside(&child)?;
            } else if load.bad <= self.bad_max && self.wanted.met_by(load) {
                self.offer(&child, load)?;
            }
        }
        ControlFlow::Continue(())
    }

    fn offer(&mut self, cell: &CellId, load: Load) -> ControlFlow<Option<T>> {
        if self.tries_left == 0 {
            return ControlFlow::Break(None);
        }
        self.tries_left -= 1;
        match (self.accept)(cell, load) {
            Some(found) => ControlFlow::Break(Some(found)),
            None => ControlFlow::Continue(()),
        }
    }
}
