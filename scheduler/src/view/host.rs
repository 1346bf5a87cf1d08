//! Hosts and their GPUs.

use muster_engine::state::State;
use muster_model::health::Component;
use muster_model::host::{Gpu, Host};
use muster_model::topology::{HostCells, Topology};
use muster_proto::v1;

use crate::view::health::HealthSummary;

/// A host with its GPUs and the number of tasks that hold resources on it.
#[must_use]
pub fn host_to_wire(state: &State, host: &Host) -> v1::Host {
    let health = HealthSummary::of_host(state, host.id);
    let gpus = host.gpus.iter().map(|gpu| gpu_to_wire(state, host, gpu));
    v1::Host {
        id: host.id.get(),
        name: host.name.to_string(),
        address: host.address.clone(),
        health: v1::HostHealth::from(host.health).into(),
        health_since_ms: host.health_since.0,
        one_way: host.one_way,
        block: host.block.as_ref().map(Into::into),
        gpus: gpus.collect(),
        cpus_milli: host.cpus_milli,
        cpus_milli_used: host.cpus_milli_used,
        memory_mib: host.memory_mib,
        memory_mib_used: host.memory_mib_used,
        labels: host.labels.clone(),
        registered_at_ms: host.registered_at.0,
        worker_id: host.worker_id.to_string(),
        incarnation: host.incarnation,
        boot_id: host.boot_id.clone(),
        tasks: state.index.tasks.get(&host.id).map_or(0, |it| it.count),
        claims: host.claims.iter().map(|claim| (*claim).into()).collect(),
        planned: host.planned.as_ref().map(Into::into),
        cells: state
            .index
            .host_cells
            .get(&host.id)
            .map(|cells| cells_to_wire(&state.topology, cells)),
        health_phase: health.phase,
        health_rule: health.rule,
        restrictions: health.restrictions,
    }
}

/// A GPU of a host.
pub(crate) fn gpu_to_wire(state: &State, host: &Host, gpu: &Gpu) -> v1::Gpu {
    let health = HealthSummary::of(state, &Component::Gpu(gpu.uuid));
    v1::Gpu {
        uuid: gpu.uuid.to_string(),
        index: gpu.index,
        model: gpu.model.to_string(),
        memory_mib: gpu.memory_mib,
        health: Some((&gpu.health).into()),
        health_since_ms: gpu.health_since.0,
        block: gpu.block.as_ref().map(Into::into),
        holder: gpu.holder.map(Into::into),
        host_id: host.id.get(),
        host: host.name.to_string(),
        claim: gpu.claim.map(Into::into),
        pci_address: host
            .reported_topology
            .gpu(gpu.uuid)
            .map_or_else(String::new, |known| known.pci_address.clone()),
        health_phase: health.phase,
        health_rule: health.rule,
        restrictions: health.restrictions,
        host_block: host.block.as_ref().map(Into::into),
        host_health: v1::HostHealth::from(host.health).into(),
    }
}

/// A host's cells.
fn cells_to_wire(topology: &Topology, cells: &HostCells) -> v1::HostCells {
    let inside = cells.inside.iter().map(|cell| v1::CellGroup {
        level: topology.name(cell.level).unwrap_or_default().to_owned(),
        gpus: cell
            .gpus
            .positions()
            .filter_map(|at| u32::try_from(at).ok())
            .collect(),
    });
    v1::HostCells {
        path: cells
            .above
            .last()
            .map_or_else(String::new, ToString::to_string),
        path_by: v1::CellSource::from(cells.above_by).into(),
        inside: inside.collect(),
        inside_by: v1::CellSource::from(cells.inside_by).into(),
        flaws: cells.flaws.iter().map(ToString::to_string).collect(),
    }
}
