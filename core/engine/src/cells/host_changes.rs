//! Hosts that join or return with other GPUs.

use muster_model::host::Host;
use muster_model::topology::{CellId, HostCells};

use crate::cells::Allocation;

impl Allocation {
    /// Updates the cells for a host that joined or changed. Returns false, without a change, if the effects
    /// go beyond the cells (bound cells changed, or a pinned cell may have appeared): the caller must use
    /// `settle` then.
    #[must_use]
    pub fn replace_host(&mut self, host: &Host, cells: &HostCells) -> bool {
        if !self.is_active() || self.tree().knows(host, cells) {
            return true;
        }
        if self.has_unresolved_pins() {
            return false;
        }
        let mut trial = self.clone();
        let mut bound = Vec::new();
        let mut tops = trial.tops(host, cells);
        for top in &tops {
            trial.clear(top, &mut bound);
        }
        for cell in &bound {
            trial.forget_room(cell);
        }
        let kinds: Vec<_> = bound.iter().map(|cell| self.tree().kind(cell)).collect();
        trial.ground_mut().replace(host, cells);
        // The cells that the host left remain without it; a host that was a root itself may be inside a cell
        // now.
        tops.retain(|top| matches!(top, CellId::Above(_)));
        tops.extend(trial.tops(host, cells));
        tops.sort_unstable();
        tops.dedup();
        for top in tops {
            trial.free_roots(top);
        }
        for (cell, kind) in bound.iter().zip(kinds) {
            if trial.tree().kind(cell) != kind || !trial.carve(cell) {
                return false;
            }
            trial.note_room(cell);
        }
        *self = trial;
        true
    }

    /// Returns the largest cells, with or without a kind, that a host lies in or will lie in.
    fn tops(&self, host: &Host, cells: &HostCells) -> Vec<CellId> {
        let next = cells.above.first().cloned().map(CellId::Above);
        let mut tops = vec![
            self.tree().top(host.id),
            next.unwrap_or(CellId::Host(host.id)),
        ];
        tops.sort_unstable();
        tops.dedup();
        tops
    }

    /// Removes all free cells inside a cell, and lists the bound ones.
    fn clear(&mut self, cell: &CellId, bound: &mut Vec<CellId>) {
        if self.remove_free(cell) {
            return;
        }
        if self.bound(cell).is_some() {
            bound.push(cell.clone());
            return;
        }
        for child in self.tree().children(cell) {
            self.clear(&child, bound);
        }
    }

    /// Frees the largest cells with a kind in a cell.
    fn free_roots(&mut self, top: CellId) {
        let mut open = vec![top];
        while let Some(cell) = open.pop() {
            match self.tree().kind(&cell) {
                Some(kind) => {
                    let load = self.tree().load(&cell);
                    self.insert_free(cell, kind, load);
                }
                None => open.extend(self.tree().children(&cell)),
            }
        }
    }
}
