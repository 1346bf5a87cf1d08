//! The cells of every host, derived from the topology and the hosts.

use std::sync::Arc;

use imbl::OrdMap;

use crate::ids::HostId;
use crate::state::{Host, Index};
use crate::topology::{HostCells, Places, Topology};

impl Index {
    /// Places all hosts anew.
    pub(crate) fn place_hosts(&mut self, topology: &Topology, hosts: &OrdMap<HostId, Arc<Host>>) {
        self.places = Arc::new(Places::of(topology));
        self.host_cells = hosts
            .values()
            .map(|host| (host.id, self.cells_of(topology, host)))
            .collect();
    }

    /// Places one host, which is new or presents other GPUs.
    pub(crate) fn place_host(&mut self, topology: &Topology, host: &Host) {
        let cells = self.cells_of(topology, host);
        self.host_cells.insert(host.id, cells);
    }

    fn cells_of(&self, topology: &Topology, host: &Host) -> Arc<HostCells> {
        Arc::new(HostCells::of(topology, &self.places, host))
    }
}
