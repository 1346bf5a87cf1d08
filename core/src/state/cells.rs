//! The cells of every host, derived from the topology and the hosts.

use std::sync::Arc;

use imbl::OrdMap;

use crate::ids::HostId;
use crate::state::{CellIndex, Host, HostEntries, Index};
use crate::topology::{HostCells, Places, Topology};

impl Index {
    /// Places all hosts anew.
    pub(crate) fn place_hosts(&mut self, topology: &Topology, hosts: &OrdMap<HostId, Arc<Host>>) {
        self.places = Arc::new(Places::of(topology));
        self.host_cells = OrdMap::new();
        self.cells = CellIndex::default();
        for host in hosts.values() {
            self.place_host(topology, host);
        }
    }

    /// Counts the free GPUs of all cells, which were placed anew.
    pub(crate) fn count_cells(&mut self, hosts: &OrdMap<HostId, Arc<Host>>) {
        for host in hosts.values() {
            let none = HostEntries::default();
            self.recount_cells(host.id, &none, &HostEntries::of(host));
        }
    }

    /// Brings the counts of the cells around a host in line with what it contributes.
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

    /// Places one host, which is new or presents other GPUs.
    pub(crate) fn place_host(&mut self, topology: &Topology, host: &Host) {
        let cells = self.cells_of(topology, host);
        self.cells.add_host(&cells.above, host.id);
        self.host_cells.insert(host.id, cells);
    }

    fn cells_of(&self, topology: &Topology, host: &Host) -> Arc<HostCells> {
        Arc::new(HostCells::of(topology, &self.places, host))
    }
}
