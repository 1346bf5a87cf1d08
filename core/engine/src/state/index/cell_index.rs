//! Index of the cells above hosts by free GPUs.

use std::sync::Arc;

use imbl::{OrdMap, OrdSet};
use muster_model::ids::HostId;
use muster_model::topology::Level;

use crate::state::HostClass;

/// Cells by their free GPUs of one class.
type CellsByFree = OrdSet<(u64, Arc<str>)>;

/// Cells above hosts by free GPUs, so a search for room visits only cells that have it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CellIndex {
    /// Hosts by cell path.
    hosts: OrdMap<Arc<str>, OrdSet<HostId>>,
    /// Hosts per cell and class that accept work and have GPUs of the class, with the number of those GPUs
    /// that are free.
    counts: OrdMap<(Arc<str>, HostClass), Count>,
    /// The same cells by level and class, ordered by free GPUs.
    by_free: OrdMap<(Level, HostClass), CellsByFree>,
}

/// Totals of one class in one cell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Count {
    hosts: u32,
    free: u64,
}

impl CellIndex {
    /// Returns the cells of a level with at least this many free GPUs of a class, fullest first.
    pub fn with_free(
        &self,
        level: Level,
        class: &HostClass,
        gpus: u64,
    ) -> impl Iterator<Item = &Arc<str>> + use<'_> {
        let cells = self.by_free.get(&(level, HostClass::clone(class)));
        cells
            .into_iter()
            .flat_map(move |cells| cells.range((gpus, Arc::from(""))..))
            .map(|(_, path)| path)
    }

    /// Returns the cell of a level with the most free GPUs of a class, and their number.
    #[must_use]
    pub fn fullest(&self, level: Level, class: &HostClass) -> Option<(u64, &Arc<str>)> {
        let cells = self.by_free.get(&(level, HostClass::clone(class)))?;
        cells.get_max().map(|(free, path)| (*free, path))
    }

    /// Returns all cells of a level.
    pub fn of_level(&self, level: Level) -> impl Iterator<Item = &Arc<str>> {
        let depth = usize::from(level.0);
        let paths = self.hosts.keys();
        paths.filter(move |path| path.matches('/').count() == depth)
    }

    /// Returns the hosts of a cell.
    pub fn hosts(&self, path: &str) -> impl Iterator<Item = HostId> {
        self.hosts.get(path).into_iter().flatten().copied()
    }

    /// Returns the number of hosts of a cell.
    #[must_use]
    pub fn host_count(&self, path: &str) -> usize {
        self.hosts.get(path).map_or(0, OrdSet::len)
    }

    /// Adds a host to its cells.
    pub fn add_host(&mut self, around: &[Arc<str>], host: HostId) {
        for path in around {
            self.hosts.entry(Arc::clone(path)).or_default().insert(host);
        }
    }

    /// Removes a host from its cells.
    pub(crate) fn remove_host(&mut self, around: &[Arc<str>], host: HostId) {
        for path in around {
            if let Some(hosts) = self.hosts.get_mut(path) {
                hosts.remove(&host);
                if hosts.is_empty() {
                    self.hosts.remove(path);
                }
            }
        }
    }

    /// Updates the free GPUs of a class that a host contributes to its cells; `None` if it does not accept
    /// work.
    pub fn change(
        &mut self,
        around: &[Arc<str>],
        class: &HostClass,
        before: Option<u32>,
        after: Option<u32>,
    ) {
        if before == after {
            return;
        }
        for (path, level) in around.iter().zip(0..) {
            let key = (Arc::clone(path), HostClass::clone(class));
            let known = self.counts.get(&key).copied();
            let mut count = known.unwrap_or_default();
            count.hosts = count.hosts + u32::from(after.is_some()) - u32::from(before.is_some());
            count.free =
                count.free + u64::from(after.unwrap_or(0)) - u64::from(before.unwrap_or(0));
            let cells = self
                .by_free
                .entry((Level(level), HostClass::clone(class)))
                .or_default();
            if let Some(known) = known {
                cells.remove(&(known.free, Arc::clone(path)));
            }
            if count.hosts > 0 {
                cells.insert((count.free, Arc::clone(path)));
                self.counts.insert(key, count);
            } else {
                let empty = cells.is_empty();
                self.counts.remove(&key);
                if empty {
                    self.by_free
                        .remove(&(Level(level), HostClass::clone(class)));
                }
            }
        }
    }
}
