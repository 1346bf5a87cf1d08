//! Cells above hosts with what is free in them.

use std::sync::Arc;

use imbl::{OrdMap, OrdSet};
use muster_model::ids::HostId;
use muster_model::topology::Level;

use crate::state::HostClass;

/// Cells by their free GPUs of one class.
type CellsByFree = OrdSet<(u64, Arc<str>)>;

/// Cells above hosts by their free GPUs, so that whoever looks for a cell with room sees only those that have it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CellIndex {
    /// Hosts of a cell, by its path.
    hosts: OrdMap<Arc<str>, OrdSet<HostId>>,
    /// Hosts of a cell that accept work and have GPUs of a class, and those of the GPUs that are free.
    counts: OrdMap<(Arc<str>, HostClass), Count>,
    /// The same cells by level and class, the fullest first.
    by_free: OrdMap<(Level, HostClass), CellsByFree>,
}

/// What a cell has of a class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Count {
    hosts: u32,
    free: u64,
}

impl CellIndex {
    /// Cells of a level with at least so many free GPUs of a class, the fullest first.
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

    /// The cell of a level with the most free GPUs of a class, and how many those are.
    #[must_use]
    pub fn fullest(&self, level: Level, class: &HostClass) -> Option<(u64, &Arc<str>)> {
        let cells = self.by_free.get(&(level, HostClass::clone(class)))?;
        cells.get_max().map(|(free, path)| (*free, path))
    }

    /// All cells of a level.
    pub fn of_level(&self, level: Level) -> impl Iterator<Item = &Arc<str>> {
        let depth = usize::from(level.0);
        let paths = self.hosts.keys();
        paths.filter(move |path| path.matches('/').count() == depth)
    }

    /// Hosts of a cell.
    pub fn hosts(&self, path: &str) -> impl Iterator<Item = HostId> {
        self.hosts.get(path).into_iter().flatten().copied()
    }

    /// How many hosts a cell has.
    #[must_use]
    pub fn host_count(&self, path: &str) -> usize {
        self.hosts.get(path).map_or(0, OrdSet::len)
    }

    /// A host lies in these cells.
    pub fn add_host(&mut self, around: &[Arc<str>], host: HostId) {
        for path in around {
            self.hosts.entry(Arc::clone(path)).or_default().insert(host);
        }
    }

    /// A host does not lie in these cells any more.
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

    /// A host in these cells has other free GPUs of a class; none if it does not accept work (any more).
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
