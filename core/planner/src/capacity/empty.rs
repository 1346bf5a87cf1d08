//! Capacity of an idle cluster, with every host empty, reachable and unblocked: what could ever be placed.

use std::sync::Arc;

use imbl::OrdMap;
use muster_engine::feasibility::{Freed, Room};
use muster_engine::state::{CellIndex, HostClass, State};
use muster_model::host::Host;
use muster_model::topology::GpuMask;

use crate::capacity::left::{PlacedJobs, Remaining};
use crate::capacity::{Capacity, FreeHosts};

impl<'a> Capacity<'a> {
    /// Capacity of the whole cluster. Visits every host.
    pub(crate) fn empty(state: &'a State) -> Self {
        let freed = Freed {
            all_attempts: true,
            ..Freed::default()
        };
        let mut whole = Self {
            free: OrdMap::new(),
            places: CellIndex::default(),
            freed: Arc::new(freed),
            all_hosts: true,
            ..Self::new(state)
        };
        for host in state.hosts.values() {
            whole.add_empty(host);
        }
        whole
    }

    fn add_empty(&mut self, host: &Host) {
        let Some(cells) = self.cells(host.id) else {
            return;
        };
        let left = Remaining {
            room: Room::whole(host),
            free: cells.of_model(""),
            taken: GpuMask::default(),
            newcomers: PlacedJobs::None,
        };
        self.left.insert(host.id, left);
        let any: &mut FreeHosts = self.free.entry(HostClass::from("")).or_default();
        any.insert((left.free.count(), host.id));
        self.places.add_host(&cells.above, host.id);
        for (class, of_class) in cells.models.iter() {
            let gpus = of_class.count();
            let hosts = self.free.entry(class.clone()).or_default();
            hosts.insert((gpus, host.id));
            self.places.change(&cells.above, class, None, Some(gpus));
        }
    }

    /// Whether anything may be placed on a host.
    pub(super) fn accepts(&self, host: &Host) -> bool {
        self.all_hosts || host.accepts_work()
    }
}
