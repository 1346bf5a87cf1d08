//! Changes of the tree of queues and of the topology, with what they mean for what there is.

use std::collections::BTreeSet;

use muster_core::quota::{Amounts, Guarantee};
use muster_core::state::{Host, Queue, State};
use muster_core::topology::{HostCells, Places, Topology};
use muster_proto::convert::{configure_queues_command, set_topology_command};
use muster_proto::v1;
use muster_proto::v1::queue_change::Kind;
use tonic::Status;

use crate::service::context::Context;
use crate::service::local_write::{command, propose, rehearse};

/// Hosts listed in one answer.
const HOSTS_LISTED_MAX: usize = 100;

/// Replaces the tree of queues, unless the request is a dry run.
pub(crate) async fn configure_queues(
    context: &Context,
    request: v1::ConfigureQueuesRequest,
) -> Result<v1::ConfigureQueuesResponse, Status> {
    let is_rehearsal = request.dry_run;
    let command = command(configure_queues_command(request))?;
    let (before, after) = rehearse(context, &command)?;
    let revision = if is_rehearsal {
        before.revision
    } else {
        propose(context, command).await?.0
    };
    Ok(v1::ConfigureQueuesResponse {
        revision: revision.get(),
        changes: changes(&before, &after),
    })
}

/// Replaces the topology, unless the request is a dry run.
pub(crate) async fn set_topology(
    context: &Context,
    request: v1::SetTopologyRequest,
) -> Result<v1::SetTopologyResponse, Status> {
    let is_rehearsal = request.dry_run;
    let command = command(set_topology_command(request))?;
    let (before, after) = rehearse(context, &command)?;
    let revision = if is_rehearsal {
        before.revision
    } else {
        propose(context, command).await?.0
    };
    Ok(v1::SetTopologyResponse {
        revision: revision.get(),
        ..effect(&before, &after.topology)
    })
}

/// Queues that the second state has otherwise than the first, by name.
fn changes(before: &State, after: &State) -> Vec<v1::QueueChange> {
    let names: BTreeSet<_> = before.queues.keys().chain(after.queues.keys()).collect();
    let changes = names.into_iter().filter_map(|name| {
        let (old, new) = (before.queues.get(name), after.queues.get(name));
        let kind = kind_of(old.map(AsRef::as_ref), new.map(AsRef::as_ref))?;
        let usage = after.index.usage.get(name).map(|usage| &usage.total);
        let firm = usage.map(|usage| less(&usage.held, &usage.opportunistic));
        let guarantee = new
            .filter(|queue| !queue.retired)
            .map(|queue| &queue.config.guarantee);
        let reclaimable = match guarantee {
            Some(Guarantee::Amounts(amounts)) => firm.map(|firm| less(&firm, amounts)),
            Some(Guarantee::Cells(_)) => None,
            None => firm,
        };
        Some(v1::QueueChange {
            name: name.to_string(),
            kind: kind.into(),
            live_jobs: new.or(old).map_or(0, |queue| queue.live_jobs),
            usage: Some(usage.map_or_else(v1::Amounts::default, |usage| (&usage.held).into())),
            guarantee: guarantee.map(Into::into),
            reclaimable: reclaimable
                .filter(|amounts| !amounts.is_zero())
                .map(|amounts| (&amounts).into()),
        })
    });
    changes.collect()
}

fn kind_of(old: Option<&Queue>, new: Option<&Queue>) -> Option<Kind> {
    let is_there = |queue: Option<&Queue>| queue.is_some_and(|queue| !queue.retired);
    match (is_there(old), is_there(new)) {
        (false, true) => Some(Kind::Added),
        (true, false) => Some(Kind::Retired),
        (true, true) if old.map(|queue| &queue.config) != new.map(|queue| &queue.config) => {
            Some(Kind::Changed)
        }
        _ => None,
    }
}

/// What is left of amounts; what would be negative is nothing.
fn less(amounts: &Amounts, off: &Amounts) -> Amounts {
    let models = amounts.gpus_by_model.iter().map(|(model, gpus)| {
        let off = off.gpus_by_model.get(model).copied().unwrap_or(0);
        (model.clone(), gpus.saturating_sub(off))
    });
    Amounts {
        gpus: amounts.gpus.saturating_sub(off.gpus),
        gpus_by_model: models.filter(|(_, gpus)| *gpus > 0).collect(),
        cpus_milli: amounts.cpus_milli.saturating_sub(off.cpus_milli),
        memory_mib: amounts.memory_mib.saturating_sub(off.memory_mib),
    }
}

/// What a topology means for the registered hosts.
fn effect(before: &State, topology: &Topology) -> v1::SetTopologyResponse {
    let (old, new) = (Places::of(&before.topology), Places::of(topology));
    let mut effect = v1::SetTopologyResponse::default();
    for host in before.hosts.values() {
        let cells = HostCells::of(topology, &new, host);
        if new.around(&host.name).is_empty() {
            effect.hosts_unplaced += 1;
        } else {
            effect.hosts_placed += 1;
        }
        effect.hosts_shaped += u32::from(!cells.inside.is_empty());
        if cells != HostCells::of(&before.topology, &old, host) {
            effect.hosts_changed_total += 1;
            list(&mut effect.hosts_changed, host);
        }
    }
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
