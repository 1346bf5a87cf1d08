//! Updates of the cell tree from the topology reported by workers and the configured one.

use std::sync::Arc;

use imbl::OrdMap;
use muster_model::event::EventKind;
use muster_model::ids::HostId;
use muster_model::limits;
use muster_model::topology::{ChangeScope, HostCells, ReportedTopology};

use crate::apply::Step;
use crate::state::{State, guaranteed_levels};

impl Step<'_> {
    /// Updates the tree after a host's worker reported a new location or other GPUs; `before` is the previous
    /// report.
    pub(in crate::apply) fn update_location(&mut self, id: HostId, before: &ReportedTopology) {
        let State {
            hosts,
            queues,
            index,
            configured_topology,
            ..
        } = &mut *self.state;
        let host = hosts.get(&id).expect("hosts named by the state exist");
        let guaranteed = guaranteed_levels(queues);
        let tree = &mut index.tree;
        match tree.replace(host, before, configured_topology, &guaranteed) {
            ChangeScope::Host => self.replace_cells(id),
            ChangeScope::Cluster => self.rebuild_tree_and_emit_levels(),
        }
    }

    /// Updates the cells of a host that joined or reports other GPUs, and with them those of virtual
    /// clusters.
    pub(in crate::apply) fn replace_cells(&mut self, id: HostId) {
        let State {
            hosts,
            topology,
            index,
            ..
        } = &mut *self.state;
        let host = hosts.get(&id).expect("hosts named by the state exist");
        let known = index.host_cells.get(&id).cloned();
        index.place_host(host);
        let cells = index.host_cells.get(&id).map(Arc::clone);
        let cells = cells.unwrap_or_default();
        if !index.allocation.replace_host(host, &cells) {
            let topology = Arc::clone(topology);
            self.settle_cells(&topology);
        }
        self.emit_flaws(id, known.as_deref());
    }

    /// Rebuilds the tree from its inputs. No work is stopped by that.
    pub(in crate::apply) fn rebuild_tree(&mut self) {
        let tree = self.state.cluster_tree();
        let now = Arc::clone(tree.topology());
        let before = std::mem::replace(&mut self.state.topology, Arc::clone(&now));
        let known = self.state.index.host_cells.clone();
        let State { index, hosts, .. } = &mut *self.state;
        index.place_hosts(tree, hosts);
        index.count_cells(hosts);
        self.settle_cells(&before);
        self.emit_changed_flaws(&known);
    }

    fn rebuild_tree_and_emit_levels(&mut self) {
        let before = Arc::clone(&self.state.topology);
        self.rebuild_tree();
        let now = &self.state.topology;
        if now.above != before.above || now.inside != before.inside {
            let (above, inside) = (now.above.clone(), now.inside.clone());
            self.emit(EventKind::LevelsChanged { above, inside });
        }
    }

    /// Removes levels that existed only for guarantees of virtual clusters that are gone; adds the new ones.
    pub(in crate::apply) fn settle_levels(&mut self) {
        let tree = self.state.cluster_tree();
        if tree.topology().inside != self.state.topology.inside {
            self.rebuild_tree_and_emit_levels();
        }
    }

    /// Reports the hosts whose topology flaws changed, up to a bounded number; the hosts themselves show all.
    fn emit_changed_flaws(&mut self, known: &OrdMap<HostId, Arc<HostCells>>) {
        let now = self.state.index.host_cells.clone();
        let is_changed = |(id, cells): &(&HostId, &Arc<HostCells>)| {
            let known = known.get(*id).map_or(&[][..], |known| &known.flaws);
            *known != *cells.flaws
        };
        let changed = now
            .iter()
            .filter(is_changed)
            .take(limits::HOSTS_REPORTED_MAX);
        for (id, _) in changed {
            self.emit_flaws(*id, known.get(id).map(AsRef::as_ref));
        }
    }

    fn emit_flaws(&mut self, id: HostId, known: Option<&HostCells>) {
        let cells = self.state.index.host_cells.get(&id);
        let flaws = cells.map_or(&[][..], |cells| &cells.flaws);
        let known = known.map_or(&[][..], |known| &known.flaws);
        if known == flaws {
            return;
        }
        let name = self.state.host(id).map(|host| host.name.to_string());
        let kind = EventKind::HostCellsDoubted {
            host: id,
            name: name.unwrap_or_default(),
            flaws: flaws.iter().map(ToString::to_string).collect(),
        };
        self.emit(kind);
    }
}
