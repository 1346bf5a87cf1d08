//! Hosts and their GPUs.

use std::collections::BTreeSet;
use std::sync::Arc;

use muster_model::host::{Gpu, Host};
use muster_model::ids::{HostId, Revision};
use muster_model::time::TimeMs;
use muster_proto::convert::{reported_from_wire, reported_to_wire};
use muster_proto::field::packed::{pack_gpu, pack_request, unpack_gpu, unpack_request};
use muster_proto::field::{enumeration, required};

use crate::error::Field;
use crate::v1;

/// GPU models, each stored once for any number of GPUs.
#[derive(Default)]
pub(super) struct Models(BTreeSet<Arc<str>>);

impl Models {
    fn shared(&mut self, model: &str) -> Arc<str> {
        if let Some(known) = self.0.get(model) {
            return Arc::clone(known);
        }
        let model: Arc<str> = model.into();
        self.0.insert(Arc::clone(&model));
        model
    }
}

pub(super) fn to_wire(host: &Host) -> v1::Host {
    v1::Host {
        id: host.id.get(),
        name: host.name.to_string(),
        address: host.address.clone(),
        worker_id: pack_request(host.worker_id),
        incarnation: host.incarnation,
        boot_id: host.boot_id.clone(),
        health: muster_proto::v1::HostHealth::from(host.health).into(),
        health_since_ms: host.health_since.0,
        one_way: host.one_way,
        block: host.block.as_ref().map(Into::into),
        planned: host.planned.as_ref().map(Into::into),
        gpus: host.gpus.iter().map(gpu_to_wire).collect(),
        cpus_milli: host.cpus_milli,
        memory_mib: host.memory_mib,
        cpus_milli_used: host.cpus_milli_used,
        memory_mib_used: host.memory_mib_used,
        labels: host.labels.clone(),
        registered_at_ms: host.registered_at.0,
        desired_revision: host.desired_revision.get(),
        claims: host.claims.iter().map(|claim| (*claim).into()).collect(),
        reported: reported_to_wire(&host.reported_topology),
    }
}

pub(super) fn from_wire(wire: v1::Host, models: &mut Models) -> Field<Host> {
    Ok(Host {
        on_probation: false,
        no_gangs: false,
        id: HostId(wire.id),
        name: wire.name.into(),
        address: wire.address,
        worker_id: unpack_request("host.worker_id", &wire.worker_id)?,
        incarnation: wire.incarnation,
        boot_id: wire.boot_id,
        health: enumeration::<muster_proto::v1::HostHealth, _>("host.health", wire.health)?,
        health_since: TimeMs(wire.health_since_ms),
        one_way: wire.one_way,
        block: wire.block.map(Into::into),
        planned: wire.planned.map(Into::into),
        gpus: wire
            .gpus
            .into_iter()
            .map(|gpu| gpu_from_wire(gpu, models))
            .collect::<Field<_>>()?,
        cpus_milli: wire.cpus_milli,
        memory_mib: wire.memory_mib,
        cpus_milli_used: wire.cpus_milli_used,
        memory_mib_used: wire.memory_mib_used,
        labels: wire.labels,
        registered_at: TimeMs(wire.registered_at_ms),
        desired_revision: Revision(wire.desired_revision),
        claims: wire.claims.into_iter().map(Into::into).collect(),
        reported_topology: Arc::new(reported_from_wire(wire.reported)?),
    })
}

fn gpu_to_wire(gpu: &Gpu) -> v1::Gpu {
    v1::Gpu {
        uuid: pack_gpu(gpu.uuid),
        index: gpu.index,
        model: gpu.model.to_string(),
        memory_mib: gpu.memory_mib,
        health: Some((&gpu.health).into()),
        health_since_ms: gpu.health_since.0,
        block: gpu.block.as_ref().map(Into::into),
        holder: gpu.holder.map(Into::into),
        claim: gpu.claim.map(Into::into),
    }
}

fn gpu_from_wire(wire: v1::Gpu, models: &mut Models) -> Field<Gpu> {
    Ok(Gpu {
        uuid: unpack_gpu("host.gpus.uuid", &wire.uuid)?,
        index: wire.index,
        model: models.shared(&wire.model),
        memory_mib: wire.memory_mib,
        health: required("host.gpus.health", wire.health)?.into(),
        health_since: TimeMs(wire.health_since_ms),
        block: wire.block.map(Into::into),
        holder: wire.holder.map(Into::into),
        claim: wire.claim.map(Into::into),
    })
}
