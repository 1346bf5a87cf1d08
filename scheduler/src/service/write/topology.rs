//! Changes of the topology, with their effect on registered hosts.

use std::collections::BTreeSet;

use muster_engine::state::State;
use muster_model::access::Role;
use muster_model::host::Host;
use muster_model::topology::HostCells;
use muster_proto::convert::set_topology_command;
use muster_proto::v1;
use tokio::time::Instant;
use tonic::Status;

use crate::audit_log::Record;
use crate::service::context::Context;
use crate::service::gate::Method;
use crate::service::write::propose::{Proposal, carry_out};
use crate::service::write::request::WriteRequest;

/// Hosts listed in one answer.
const HOSTS_LISTED_MAX: usize = 100;

impl WriteRequest for v1::SetTopologyRequest {
    const METHOD: Method = Method::of_admin("SetTopology", Role::Admin);

    type Order = Proposal;

    fn authors(&mut self) -> Vec<&mut String> {
        vec![&mut self.author]
    }

    fn record(&self) -> Record {
        Record {
            dry_run: self.dry_run,
            ..Record::about(&self.request_id, "topology".to_owned())
        }
    }

    fn order(self) -> Result<Proposal, Status> {
        let is_dry_run = self.dry_run;
        Proposal::new(set_topology_command(self), is_dry_run)
    }

    async fn execute(
        order: Proposal,
        context: &Context,
        _: Instant,
    ) -> Result<v1::SetTopologyResponse, Status> {
        let carried_out = carry_out(context, order).await?;
        Ok(v1::SetTopologyResponse {
            revision: carried_out.revision,
            ..effect(&carried_out.before, &carried_out.after)
        })
    }

    fn complete(record: Record, response: &v1::SetTopologyResponse) -> Record {
        record.at_revision(response.revision)
    }
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
