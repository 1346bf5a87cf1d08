//! Hosts, GPUs and queues in the client interface.

use std::cmp::Reverse;
use std::sync::Arc;

use muster_engine::state::{Queue, QueueUsage, State, Usage};
use muster_model::health::Component;
use muster_model::host::{Gpu, Holder, Host};
use muster_model::ids::{AttemptEpoch, JobId, TaskIndex, UnitIndex};

use crate::convert::health::Standing;
use crate::convert::learnt::cells_to_wire;
use crate::v1;

/// A host with its GPUs and the number of tasks that hold resources on it.
#[must_use]
pub fn host_to_wire(state: &State, host: &Host) -> v1::Host {
    let standing = Standing::of_host(state, host.id);
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
        cells: { state.index.host_cells.get(&host.id) }
            .map(|cells| cells_to_wire(&state.topology, cells)),
        health_phase: standing.phase,
        health_rule: standing.rule,
        kept_off: standing.kept_off,
    }
}

/// A GPU of a host.
#[must_use]
pub fn gpu_to_wire(state: &State, host: &Host, gpu: &Gpu) -> v1::Gpu {
    let standing = Standing::of(state, &Component::Gpu(gpu.uuid));
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
        pci_address: { host.learnt.gpu(gpu.uuid) }
            .map_or_else(String::new, |known| known.pci_address.clone()),
        health_phase: standing.phase,
        health_rule: standing.rule,
        kept_off: standing.kept_off,
        host_block: host.block.as_ref().map(Into::into),
        host_health: v1::HostHealth::from(host.health).into(),
    }
}

impl From<Holder> for v1::Holder {
    fn from(holder: Holder) -> Self {
        Self {
            job_id: holder.job.get(),
            unit: holder.unit.get(),
            epoch: holder.epoch.get(),
            task: holder.task.get(),
        }
    }
}

impl From<v1::Holder> for Holder {
    fn from(wire: v1::Holder) -> Self {
        Self {
            job: JobId(wire.job_id),
            unit: UnitIndex(wire.unit),
            epoch: AttemptEpoch(wire.epoch),
            task: TaskIndex(wire.task),
        }
    }
}

/// Most users listed with a queue.
const USERS_LISTED_MAX: usize = 100;

/// A queue with its usage and that of its users.
#[must_use]
pub fn queue_to_wire(state: &State, queue: &Queue) -> v1::Queue {
    let usage = state.index.usage.get(&queue.name);
    v1::Queue {
        name: queue.name.to_string(),
        live_jobs_max: queue.config.live_jobs_max,
        live_jobs: queue.live_jobs,
        config: Some(queue.config.as_ref().into()),
        retired: queue.retired,
        usage: Some(usage.map_or_else(Default::default, |usage| (&usage.total).into())),
        users: usage.map_or_else(Vec::new, |usage| users_to_wire(usage)),
        history_gpu_ms: queue.history.gpu_ms,
    }
}

fn users_to_wire(usage: &QueueUsage) -> Vec<v1::UserUsage> {
    let mut users: Vec<_> = usage.users.iter().collect();
    users.sort_by_key(|(name, usage)| (Reverse(usage.held.gpus), Arc::clone(name)));
    let users = users.into_iter().take(USERS_LISTED_MAX);
    users
        .map(|(name, usage)| v1::UserUsage {
            user: name.to_string(),
            usage: Some(usage.into()),
        })
        .collect()
}

impl From<&Usage> for v1::Usage {
    fn from(usage: &Usage) -> Self {
        Self {
            held: Some((&usage.held).into()),
            opportunistic: Some((&usage.opportunistic).into()),
            claimed: Some((&usage.claimed).into()),
        }
    }
}
