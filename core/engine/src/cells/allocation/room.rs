//! Allocatable GPUs in free and in bound cells.

use std::collections::BTreeMap;
use std::sync::Arc;

use muster_model::ids::HostId;
use muster_model::topology::{CellId, GpuMask, Level};

use crate::cells::{Allocation, HostLoad};

impl Allocation {
    /// Removes a bound cell from the index of room, before its hosts change.
    pub(in crate::cells) fn forget_room(&mut self, cell: &CellId) {
        if let Some(bound) = self.bound.get(cell) {
            let room = self.room_in(cell);
            self.room
                .remove(&(Arc::clone(&bound.queue), room, cell.clone()));
        }
    }

    /// Adds a bound cell again after [`Self::forget_room`].
    pub(in crate::cells) fn note_room(&mut self, cell: &CellId) {
        if let Some(bound) = self.bound.get(cell) {
            let room = self.room_in(cell);
            self.room
                .insert((Arc::clone(&bound.queue), room, cell.clone()));
        }
    }

    /// Returns the GPUs that a virtual cluster can count on: those allocatable in its bound cells, and all
    /// GPUs of the cells that it is owed.
    #[must_use]
    pub fn gpus_left(&self, queue: &Arc<str>) -> u64 {
        let bound = self.bound_with_room(queue, false);
        let bound = bound.iter().map(|cell| u64::from(self.room_in(cell)));
        let owed = self.quotas(queue);
        let owed = owed.map(|(kind, quota)| u64::from(kind.gpus) * u64::from(quota.owed()));
        bound.sum::<u64>() + owed.sum::<u64>()
    }

    /// Returns the GPUs of a virtual cluster's bound cells by host, without those that this allocation has
    /// assigned and `before` has not.
    #[must_use]
    pub fn bound_gpus_since(&self, before: &Self, queue: &Arc<str>) -> BTreeMap<HostId, u32> {
        let mut by_host = BTreeMap::new();
        for cell in self.bound_with_room(queue, true) {
            for (host, gpus) in self.tree.gpus(&cell) {
                let [now, then] = [self, before].map(|of| of.tree.host_load(host).within(gpus));
                let given = now.busy.saturating_sub(then.busy);
                *by_host.entry(host).or_default() += gpus.count().saturating_sub(given);
            }
        }
        by_host
    }

    /// Returns the allocatable GPUs of a cell.
    fn room_in(&self, cell: &CellId) -> u32 {
        let load = self.tree.load(cell);
        let gpus = self.tree.kind(cell).map_or(0, |kind| kind.gpus);
        gpus.saturating_sub(load.bad + load.busy)
    }

    /// Returns the cells bound to a virtual cluster, least room first; cells without room only if `all` is
    /// set.
    pub(in crate::cells) fn bound_with_room(&self, queue: &Arc<str>, all: bool) -> Vec<CellId> {
        let lowest = CellId::Above(Arc::from(""));
        self.room
            .range((Arc::clone(queue), u32::from(!all), lowest)..)
            .take_while(|(name, ..)| name == queue)
            .map(|(.., cell)| cell.clone())
            .collect()
    }

    /// Updates the load of a host.
    pub fn set_load(&mut self, host: HostId, load: HostLoad) {
        if !self.active || self.tree.host_load(host) == load {
            return;
        }
        let bound = self.bound_on(host);
        for cell in &bound {
            self.forget_room(cell);
        }
        self.tree.set_load(host, load);
        for cell in &bound {
            self.note_room(cell);
        }
        let around = self.tree.around(&CellId::Host(host));
        let whole: Option<CellId> = { around }.find(|cell| self.free.contains_key(cell));
        let changed = match whole {
            Some(cell) => vec![cell],
            None => self.free_inside(host),
        };
        for cell in changed {
            let load = self.tree.load(&cell);
            if let Some(free) = self.free.get(&cell)
                && free.load != load
            {
                let kind = free.kind.clone();
                self.remove_free(&cell);
                self.insert_free(cell, kind, load);
            }
        }
    }

    /// Marks more GPUs of a host as in use.
    pub fn take(&mut self, host: HostId, gpus: GpuMask) {
        self.set_load(host, self.tree.host_load(host).with_busy(gpus));
    }

    /// Returns the bound cells around and inside a host.
    fn bound_on(&self, host: HostId) -> Vec<CellId> {
        let (first, last) = inside(host);
        let around = self.tree.around(&CellId::Host(host));
        let inside = self.bound.range(first..=last);
        around
            .filter(|cell| self.bound.contains_key(cell))
            .chain(inside.map(|(cell, _)| cell.clone()))
            .collect()
    }

    /// Returns the free cells inside a host, larger levels first.
    fn free_inside(&self, host: HostId) -> Vec<CellId> {
        let (first, last) = inside(host);
        let inside = self.free.range(first..=last);
        inside.map(|(cell, _)| cell.clone()).collect()
    }
}

/// Returns the id range of all cells inside a host.
const fn inside(host: HostId) -> (CellId, CellId) {
    (
        CellId::Inside(host, Level(0), GpuMask(0)),
        CellId::Inside(host, Level(u8::MAX), GpuMask(u128::MAX)),
    )
}
