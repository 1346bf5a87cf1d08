//! Allocation of cells to virtual clusters: bound, free and owed cells.

mod room;

use std::collections::BTreeMap;
use std::sync::Arc;

use imbl::{OrdMap, OrdSet};
use muster_model::ids::HostId;
use muster_model::quota::{Guarantee, QueueConfig};
use muster_model::topology::{CellId, CellKind, GpuMask, Level};

use crate::cells::safety::{self, Counts, KindBalance};
use crate::cells::{CellTree, Load, OpportunisticAttempt};

/// A cell that is bound to a virtual cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bound {
    /// The virtual cluster: its queue.
    pub queue: Arc<str>,
    /// Number of attempts and claims that use it.
    pub users: u32,
    /// The name by which jobs request it, if it is permanently bound.
    pub pinned: Option<Arc<str>>,
}

/// Quota of a virtual cluster for one kind of cell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Quota {
    /// Cells guaranteed, without pinned ones.
    pub count: u32,
    /// Cells bound, without pinned ones.
    pub bound: u32,
}

impl Quota {
    /// Returns the number of cells that it can still ask for.
    #[must_use]
    pub const fn owed(self) -> u32 {
        self.count.saturating_sub(self.bound)
    }
}

/// A free cell that is in no larger free cell.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Free {
    kind: CellKind,
    load: Load,
}

/// Reason why a cell cannot be bound.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BindError {
    /// There is no such cell, or its GPUs are of several models.
    #[error("{0} is not a cell with a single GPU model")]
    Unknown(String),
    /// The quota of the kind is used up.
    #[error("{cell}: {bound} of {count} guaranteed cells ({kind}) are bound already")]
    NoQuota {
        /// Name of the cell.
        cell: String,
        /// Its kind.
        kind: String,
        /// Cells bound.
        bound: u32,
        /// Cells guaranteed.
        count: u32,
    },
    /// It is bound to another virtual cluster, or lies in or around a bound cell.
    #[error("{0} is bound already, or lies in or around a cell that is")]
    Taken(String),
    /// Another virtual cluster could not get the cells it is owed.
    #[error("{cell} is needed for guaranteed cells: {arithmetic}")]
    Unsafe {
        /// Name of the cell.
        cell: String,
        /// The sum that fails.
        arithmetic: String,
    },
}

/// The cells of all virtual clusters. Empty without virtual clusters: nothing is maintained then. A clone is
/// cheap, so decisions are tried on a clone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Allocation {
    tree: CellTree,
    /// True if there is a virtual cluster.
    active: bool,
    free: OrdMap<CellId, Free>,
    by_kind: OrdMap<CellKind, OrdSet<(Load, CellId)>>,
    bound: OrdMap<CellId, Bound>,
    /// Bound cells by virtual cluster and allocatable GPUs.
    room: OrdSet<(Arc<str>, u32, CellId)>,
    quotas: OrdMap<(Arc<str>, CellKind), Quota>,
    /// Quota that is not bound, over all virtual clusters; no entry is 0.
    owed: OrdMap<CellKind, u32>,
    pins: OrdMap<Arc<str>, CellId>,
    /// Pins of cells that do not exist.
    pins_unresolved: u32,
    /// Attempts that are opportunistic although their jobs are not.
    guests: OrdSet<OpportunisticAttempt>,
}

impl Allocation {
    /// Builds the allocation with only pinned cells bound. Quotas of levels that do not exist and pins of
    /// cells that do not exist are ignored.
    #[must_use]
    pub(super) fn new<'a>(
        tree: CellTree,
        queues: impl Iterator<Item = (&'a str, &'a QueueConfig)>,
    ) -> Self {
        let mut allocation = Self {
            active: true,
            ..Self::default()
        };
        for root in tree.roots() {
            let load = tree.load(&root);
            if let Some(kind) = tree.kind(&root) {
                allocation.insert_free(root, kind, load);
            }
        }
        allocation.tree = tree;
        for (name, config) in queues {
            if let Guarantee::Cells(_) = &config.guarantee {
                allocation.add_quotas(&Arc::from(name), config);
            }
        }
        allocation
    }

    fn add_quotas(&mut self, queue: &Arc<str>, config: &QueueConfig) {
        let Guarantee::Cells(quotas) = &config.guarantee else {
            return;
        };
        for quota in quotas {
            let Some(level) = self.tree.topology().level(&quota.level) else {
                continue;
            };
            let kind = CellKind {
                level,
                gpu_model: Arc::from(quota.gpu_model.as_str()),
                gpus: quota.gpus,
            };
            for pinned in &quota.pinned {
                match self.tree.find(level, pinned) {
                    Some(cell) => self.pin(queue, &pinned.name, &kind, cell),
                    None => self.pins_unresolved += 1,
                }
            }
            if quota.count > 0 {
                let known = self.quotas.entry((Arc::clone(queue), kind.clone()));
                known.or_default().count += quota.count;
                *self.owed.entry(kind).or_default() += quota.count;
            }
        }
    }

    fn pin(&mut self, queue: &Arc<str>, name: &str, kind: &CellKind, cell: CellId) {
        if self.tree.kind(&cell).as_ref() != Some(kind) || !self.carve(&cell) {
            self.pins_unresolved += 1;
            return;
        }
        let name: Arc<str> = Arc::from(name);
        self.pins.insert(Arc::clone(&name), cell.clone());
        let bound = Bound {
            queue: Arc::clone(queue),
            users: 0,
            pinned: Some(name),
        };
        self.insert_bound(cell, bound);
    }

    fn insert_bound(&mut self, cell: CellId, bound: Bound) {
        self.bound.insert(cell.clone(), bound);
        self.note_room(&cell);
    }

    /// Whether there is any virtual cluster.
    #[must_use]
    pub const fn is_active(&self) -> bool {
        self.active
    }

    /// Whether a pinned cell does not exist or is not of its kind.
    pub(super) const fn has_unresolved_pins(&self) -> bool {
        self.pins_unresolved > 0
    }

    /// Returns the attempts that are opportunistic although their jobs are not, oldest first.
    pub fn guests(&self) -> impl Iterator<Item = OpportunisticAttempt> + '_ {
        self.guests.iter().copied()
    }

    pub(super) const fn guests_mut(&mut self) -> &mut OrdSet<OpportunisticAttempt> {
        &mut self.guests
    }

    /// Returns all quota that is not bound.
    pub(super) fn all_owed(&self) -> impl Iterator<Item = (&CellKind, u32)> {
        self.owed.iter().map(|(kind, count)| (kind, *count))
    }

    /// Returns the physical cells; the caller updates the free cells too.
    pub(super) const fn ground_mut(&mut self) -> &mut CellTree {
        &mut self.tree
    }

    /// Returns the physical cells.
    #[must_use]
    pub const fn tree(&self) -> &CellTree {
        &self.tree
    }

    /// Returns the binding of a cell.
    #[must_use]
    pub fn bound(&self, cell: &CellId) -> Option<&Bound> {
        self.bound.get(cell)
    }

    /// Returns all bound cells, ascending.
    pub fn all_bound(&self) -> impl Iterator<Item = (&CellId, &Bound)> {
        self.bound.iter()
    }

    /// Returns the cell pinned under a name.
    #[must_use]
    pub fn pinned(&self, name: &str) -> Option<&CellId> {
        self.pins.get(name)
    }

    /// Returns the bound cell that a GPU of a host lies in.
    #[must_use]
    pub fn bound_around(&self, host: HostId, position: usize) -> Option<(CellId, &Bound)> {
        if self.bound.is_empty() {
            return None;
        }
        let gpu = CellId::Inside(
            host,
            self.tree.topology().gpu_level(),
            GpuMask::one(position),
        );
        self.tree
            .around(&gpu)
            .find_map(|cell| self.bound.get(&cell).map(|bound| (cell.clone(), bound)))
    }

    /// Returns the quotas of a virtual cluster, largest kind first.
    pub fn quotas(&self, queue: &str) -> impl Iterator<Item = (&CellKind, Quota)> {
        let first = CellKind {
            level: Level(0),
            gpu_model: Arc::from(""),
            gpus: 0,
        };
        let queue: Arc<str> = Arc::from(queue);
        self.quotas
            .range((Arc::clone(&queue), first)..)
            .take_while(move |((name, _), _)| *name == queue)
            .map(|((_, kind), quota)| (kind, *quota))
    }

    /// Returns the virtual clusters that are owed cells of a kind, with the number.
    pub fn owed(&self, kind: &CellKind) -> Vec<(Arc<str>, u32)> {
        self.quotas
            .iter()
            .filter(|((_, other), quota)| other == kind && quota.owed() > 0)
            .map(|((queue, _), quota)| (Arc::clone(queue), quota.owed()))
            .collect()
    }

    /// Returns the free cells of a kind that are in no larger free cell, by load.
    pub(super) fn free_of(&self, kind: &CellKind) -> Option<&OrdSet<(Load, CellId)>> {
        self.by_kind.get(kind)
    }

    /// Returns the kinds with such cells, largest first.
    pub(super) fn free_kinds(&self) -> impl DoubleEndedIterator<Item = &CellKind> {
        self.by_kind.keys()
    }

    /// Binds a cell to a virtual cluster once more; the quota must cover it. Does not check safety.
    ///
    /// # Errors
    /// If it cannot be bound; then nothing changes.
    pub fn bind(&mut self, queue: &Arc<str>, cell: &CellId) -> Result<(), BindError> {
        if let Some(bound) = self.bound.get_mut(cell) {
            if bound.queue != *queue {
                return Err(BindError::Taken(self.tree.name(cell)));
            }
            bound.users += 1;
            return Ok(());
        }
        let Some(kind) = self.tree.kind(cell) else {
            return Err(BindError::Unknown(self.tree.name(cell)));
        };
        let key = (Arc::clone(queue), kind);
        let quota = self.quotas.get(&key).copied().unwrap_or_default();
        if quota.owed() == 0 {
            return Err(BindError::NoQuota {
                cell: self.tree.name(cell),
                kind: self.tree.kind_name(&key.1),
                bound: quota.bound,
                count: quota.count,
            });
        }
        if !self.carve(cell) {
            return Err(BindError::Taken(self.tree.name(cell)));
        }
        self.count_bound(queue, key.1, 1);
        let bound = Bound {
            queue: Arc::clone(queue),
            users: 1,
            pinned: None,
        };
        self.insert_bound(cell.clone(), bound);
        Ok(())
    }

    /// Releases a cell once; it is free when its last user is gone.
    pub fn release(&mut self, queue: &Arc<str>, cell: &CellId) {
        let Some(bound) = self.bound.get_mut(cell) else {
            return;
        };
        if bound.queue != *queue || bound.users == 0 {
            return;
        }
        bound.users -= 1;
        if bound.users > 0 || bound.pinned.is_some() {
            return;
        }
        self.forget_room(cell);
        self.bound.remove(cell);
        if let Some(kind) = self.tree.kind(cell) {
            self.count_bound(queue, kind, -1);
        }
        self.merge(cell.clone());
    }

    /// Changes the number of bound cells of a quota, and with it the owed cells of the kind.
    fn count_bound(&mut self, queue: &Arc<str>, kind: CellKind, change: i32) {
        let key = (Arc::clone(queue), kind);
        let Some(quota) = self.quotas.get_mut(&key) else {
            return;
        };
        let before = quota.owed();
        quota.bound = quota.bound.saturating_add_signed(change);
        let after = quota.owed();
        let (_, kind) = key;
        let owed = self.owed.get(&kind).copied().unwrap_or(0) + after - before;
        match owed {
            0 => self.owed.remove(&kind),
            _ => self.owed.insert(kind, owed),
        };
    }

    /// Removes a cell from the free ones, splitting those around it; false if it is not free.
    pub(super) fn carve(&mut self, cell: &CellId) -> bool {
        let mut path: Vec<CellId> = Vec::new();
        let mut found = false;
        for outer in self.tree.around(cell) {
            found = self.free.contains_key(&outer);
            path.push(outer);
            if found {
                break;
            }
        }
        if !found {
            return false;
        }
        while let Some(outer) = path.pop() {
            self.remove_free(&outer);
            let Some(inner) = path.last() else {
                break;
            };
            for child in self.tree.children(&outer) {
                if let Some(kind) = self.tree.kind(&child) {
                    let load = self.tree.load(&child);
                    self.insert_free(child, kind, load);
                }
            }
            debug_assert!(self.free.contains_key(inner), "a cell lies in its parent");
        }
        true
    }

    /// Frees a cell, merging it with its buddies if all of them are free.
    fn merge(&mut self, mut cell: CellId) {
        while let Some(parent) = self.tree.parent(&cell) {
            let children = self.tree.children(&parent);
            let all_free = children
                .iter()
                .all(|child| *child == cell || self.free.contains_key(child));
            if !all_free {
                break;
            }
            for child in &children {
                self.remove_free(child);
            }
            cell = parent;
        }
        if let Some(kind) = self.tree.kind(&cell) {
            let load = self.tree.load(&cell);
            self.insert_free(cell, kind, load);
        }
    }

    pub(super) fn insert_free(&mut self, cell: CellId, kind: CellKind, load: Load) {
        let cells = self.by_kind.entry(kind.clone()).or_default();
        cells.insert((load, cell.clone()));
        self.free.insert(cell, Free { kind, load });
    }

    /// Removes a free cell; false if it was not free.
    pub(super) fn remove_free(&mut self, cell: &CellId) -> bool {
        let Some(Free { kind, load }) = self.free.remove(cell) else {
            return false;
        };
        if let Some(cells) = self.by_kind.get_mut(&kind) {
            cells.remove(&(load, cell.clone()));
            if cells.is_empty() {
                self.by_kind.remove(&kind);
            }
        }
        true
    }

    /// Returns the sums of the kinds of a GPU model (of all models if `None`).
    pub(super) fn sums<'a>(
        &'a self,
        gpu_model: Option<&'a str>,
    ) -> BTreeMap<&'a CellKind, KindBalance> {
        let owed = self
            .owed
            .keys()
            .filter(move |kind| gpu_model.is_none_or(|model| *kind.gpu_model == *model));
        safety::sums(&self.tree, gpu_model, owed, |kind| self.counts(kind))
    }

    pub(super) fn counts(&self, kind: &CellKind) -> Counts {
        let free = self.by_kind.get(kind).map_or(0, OrdSet::len);
        Counts {
            free: i64::try_from(free).unwrap_or(i64::MAX),
            owed: i64::from(self.owed.get(kind).copied().unwrap_or(0)),
        }
    }

    /// Returns the sum of the first kind that is short of cells; `None` if every virtual cluster can get all
    /// that it is owed.
    #[must_use]
    pub fn unsafe_because(&self) -> Option<String> {
        self.sums(None)
            .into_iter()
            .find(|(_, sum)| sum.left() < 0)
            .map(|(kind, sum)| sum.text(&self.tree, kind))
    }
}
