//! Hosts, GPUs and queues as readers see them.

use muster_core::ids::{AttemptEpoch, JobId, TaskIndex, UnitIndex};
use muster_core::state::{Gpu, Holder, Host, Queue, State};

use crate::v1;

/// A host with its GPUs and the number of tasks that hold resources on it.
#[must_use]
pub fn host_to_wire(state: &State, host: &Host) -> v1::Host {
    v1::Host {
        id: host.id.get(),
        name: host.name.to_string(),
        address: host.address.clone(),
        health: v1::HostHealth::from(host.health).into(),
        health_since_ms: host.health_since.0,
        block: host.block.as_ref().map(Into::into),
        gpus: host.gpus.iter().map(|gpu| gpu_to_wire(host, gpu)).collect(),
        cpus_milli: host.cpus_milli,
        cpus_milli_used: host.cpus_milli_used,
        memory_mib: host.memory_mib,
        memory_mib_used: host.memory_mib_used,
        labels: host.labels.clone(),
        registered_at_ms: host.registered_at.0,
        worker_id: host.worker_id.to_string(),
        incarnation: host.incarnation,
        boot_id: host.boot_id.clone(),
        tasks: state.index.tasks.get(&host.id).copied().unwrap_or(0),
        claims: host.claims.iter().map(|claim| (*claim).into()).collect(),
    }
}

/// A GPU of a host.
#[must_use]
pub fn gpu_to_wire(host: &Host, gpu: &Gpu) -> v1::Gpu {
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

impl From<&Queue> for v1::Queue {
    fn from(queue: &Queue) -> Self {
        Self {
            name: queue.name.to_string(),
            live_jobs_max: queue.config.live_jobs_max,
            live_jobs: queue.live_jobs,
        }
    }
}
