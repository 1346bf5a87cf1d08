//! Cells of every host, derived from the configured topology, the hosts and the topology reported by workers.

use std::collections::BTreeSet;
use std::sync::Arc;

use imbl::OrdMap;
use muster_model::host::Host;
use muster_model::ids::HostId;
use muster_model::quota::Guarantee;
use muster_model::topology::{ClusterTree, Topology};

use crate::state::{CellIndex, HostEntries, Index, Queue, State};

impl State {
    /// Derives the tree of cells.
    pub(crate) fn cluster_tree(&self) -> ClusterTree {
        self.cluster_tree_by(&self.configured_topology)
    }

    /// Returns the cells above a host, largest first.
    #[must_use]
    pub fn cells_above(&self, host: &Host) -> &[Arc<str>] {
        let cells = self.index.host_cells.get(&host.id);
        cells.map_or(&[], |cells| &cells.above)
    }

    /// Returns the innermost cell above a host: its failure domain.
    #[must_use]
    pub fn rack_of(&self, host: &Host) -> Option<&Arc<str>> {
        self.cells_above(host).last()
    }

    /// Returns the hosts in the same rack, including the host itself; empty if no racks are known.
    pub fn hosts_in_rack_of(&self, host: &Host) -> impl Iterator<Item = HostId> {
        let rack = self.rack_of(host);
        rack.into_iter()
            .flat_map(|rack| self.index.cells.hosts(rack))
    }

    /// Returns the tree of cells for a proposed topology.
    #[must_use]
    pub fn cluster_tree_by(&self, configured: &Topology) -> ClusterTree {
        ClusterTree::of(configured, &self.hosts, &guaranteed_levels(&self.queues))
    }
}

/// Returns the levels of the cells guaranteed to virtual clusters.
pub(crate) fn guaranteed_levels(queues: &OrdMap<Arc<str>, Arc<Queue>>) -> BTreeSet<&str> {
    let live = queues.values().filter(|queue| !queue.retired);
    let quotas = live.flat_map(|queue| match &queue.config.guarantee {
        Guarantee::Cells(quotas) => quotas.as_slice(),
        Guarantee::Amounts(_) => &[],
    });
    quotas.map(|quota| quota.level.as_str()).collect()
}

impl Index {
    /// Recomputes the cells of all hosts.
    pub(crate) fn place_hosts(&mut self, tree: ClusterTree, hosts: &OrdMap<HostId, Arc<Host>>) {
        self.tree = tree;
        self.host_cells = OrdMap::new();
        self.cells = CellIndex::default();
        for host in hosts.values() {
            let cells = Arc::new(self.tree.cells(host));
            self.cells.add_host(&cells.above, host.id);
            self.host_cells.insert(host.id, cells);
        }
    }

    /// Counts the free GPUs of all cells; called after all hosts were placed.
    pub(crate) fn count_cells(&mut self, hosts: &OrdMap<HostId, Arc<Host>>) {
        for host in hosts.values() {
            let none = HostEntries::default();
            self.recount_cells(host.id, &none, &HostEntries::of(host));
        }
    }

    /// Updates the counts of the cells around a host to its current contribution.
    pub(crate) fn recount_cells(
        &mut self,
        host: HostId,
        before: &HostEntries,
        after: &HostEntries,
    ) {
        let Some(cells) = self.host_cells.get(&host) else {
            return;
        };
        if cells.above.is_empty() {
            return;
        }
        for (class, count) in &before.by_model {
            let now = after.of_model(class);
            self.cells.change(&cells.above, class, Some(*count), now);
        }
        for (class, count) in &after.by_model {
            if before.of_model(class).is_none() {
                self.cells.change(&cells.above, class, None, Some(*count));
            }
        }
    }

    /// Places a host that is new, reports other GPUs or changed location; its contribution moves with it.
    pub(crate) fn place_host(&mut self, host: &Host) {
        let cells = Arc::new(self.tree.cells(host));
        let before = self.host_cells.get(&host.id);
        let before = before.map(|known| Arc::clone(&known.above));
        if before.as_ref() == Some(&cells.above) {
            self.host_cells.insert(host.id, cells);
            return;
        }
        let (none, entries) = (HostEntries::default(), HostEntries::of(host));
        self.recount_cells(host.id, &entries, &none);
        self.cells.remove_host(&before.unwrap_or_default(), host.id);
        self.cells.add_host(&cells.above, host.id);
        self.host_cells.insert(host.id, cells);
        self.recount_cells(host.id, &none, &entries);
    }
}
