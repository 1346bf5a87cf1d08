//! Upgrade of running opportunistic work: finds cells for an attempt that lost its guarantee.

use std::sync::Arc;

use muster_model::ids::HostId;
use muster_model::topology::{CellId, GpuMask};

use crate::cells::Allocation;

impl Allocation {
    /// Returns the cells of a virtual cluster around these GPUs, ascending, and the allocation with them
    /// bound once more: cells bound to it already, and others within its quota, as small as possible. `None`
    /// if no cell can be bound around one of the GPUs.
    #[must_use]
    pub fn cells_around(
        &self,
        queue: &Arc<str>,
        pinned: Option<&str>,
        gpus: &[(HostId, GpuMask)],
    ) -> Option<(Vec<CellId>, Self)> {
        let mut trial = self.clone();
        let mut cells: Vec<CellId> = Vec::new();
        for (host, mask) in gpus {
            let mut rest = *mask;
            while let Some(first) = rest.positions().next() {
                let cell = match trial.bound_around(*host, first) {
                    Some((cell, bound)) => {
                        let ours = bound.queue == *queue && bound.pinned.as_deref() == pinned;
                        ours.then_some(cell)?
                    }
                    None if pinned.is_some() => return None,
                    None => trial.bind_around(queue, *host, rest)?,
                };
                for (inside, covered) in trial.tree().gpus(&cell) {
                    if inside == *host {
                        rest = rest.without(covered);
                    }
                }
                if !cells.contains(&cell) {
                    cells.push(cell);
                }
            }
        }
        cells.sort_unstable();
        let mut bound = self.clone();
        for cell in &cells {
            bound.bind_safely(queue, cell).ok()?;
        }
        Some((cells, bound))
    }

    /// Binds a cell around the first of these GPUs: the smallest that holds all of them, otherwise the
    /// largest inside the host.
    fn bind_around(&mut self, queue: &Arc<str>, host: HostId, gpus: GpuMask) -> Option<CellId> {
        let first = gpus.positions().next()?;
        let level = self.tree().topology().gpu_level();
        let gpu = CellId::Inside(host, level, GpuMask::one(first));
        let around: Vec<CellId> = self.tree().around(&gpu).collect();
        let holds_all = |cell: &&CellId| match cell {
            CellId::Inside(_, _, inside) => inside.covers(gpus),
            CellId::Host(_) | CellId::Above(_) => true,
        };
        let whole = around.iter().filter(holds_all);
        let parts = around.iter().rev().filter(|cell| !holds_all(cell));
        whole
            .chain(parts)
            .find(|cell| self.bind_safely(queue, cell).is_ok())
            .cloned()
    }
}
