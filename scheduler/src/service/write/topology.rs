//! Changes of the topology, with their effect on registered hosts.

use std::collections::BTreeSet;

use muster_engine::state::State;
use muster_model::access::Role;
use muster_model::host::Host;
use muster_model::topology::HostCells;
use muster_proto::convert::set_topology_command;
use muster_proto::v1;

use crate::service::gate::Method;
use crate::service::write::request::configuration_write;

/// Hosts listed in one answer.
const HOSTS_LISTED_MAX: usize = 100;

configuration_write! {
    SetTopologyRequest => SetTopologyResponse, Method::of_admin("SetTopology", Role::Admin),
    set_topology_command, "topology", effect
}

/// Effect of a new topology on the registered hosts.
fn effect(before: &State, after: &State) -> v1::SetTopologyResponse {
    let mut effect = v1::SetTopologyResponse::default();
    let none = HostCells::default();
    for host in before.hosts.values() {
        let cells_in = |state: &'_ State| state.index.host_cells.get(&host.id).cloned();
        let (old, new) = (cells_in(before), cells_in(after));
        let (old, new) = (
            old.as_deref().unwrap_or(&none),
            new.as_deref().unwrap_or(&none),
        );
        if new.above.is_empty() {
            effect.hosts_unplaced += 1;
        } else {
            effect.hosts_placed += 1;
        }
        effect.hosts_shaped += u32::from(!new.inside.is_empty());
        if (&new.above, &new.inside) != (&old.above, &old.inside) {
            effect.hosts_changed_total += 1;
            list(&mut effect.hosts_changed, host);
        }
    }
    let topology = &after.configured_topology;
    let named = topology.places.iter().flat_map(|place| &place.hosts);
    let shaped = topology.shapes.iter().flat_map(|shape| &shape.hosts);
    let all: BTreeSet<&str> = named.chain(shaped).map(String::as_str).collect();
    effect.hosts_unknown = all
        .into_iter()
        .filter(|name| before.host_by_name(name).is_none())
        .take(HOSTS_LISTED_MAX)
        .map(ToOwned::to_owned)
        .collect();
    effect
}

fn list(names: &mut Vec<String>, host: &Host) {
    if names.len() < HOSTS_LISTED_MAX {
        names.push(host.name.to_string());
    }
}
