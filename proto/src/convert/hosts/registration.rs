//! Registrations of hosts by their agents, and the periods of the heartbeat protocol.

use muster_model::command::{GpuDescription, HostRegistration};
use muster_model::timings::Timings;

use crate::convert::gpu_uuid;
use crate::convert::hosts::reported_topology::{reported_from_wire, reported_to_wire};
use crate::field::InvalidField;
use crate::v1;

impl TryFrom<v1::HostRegistration> for HostRegistration {
    type Error = InvalidField;

    fn try_from(wire: v1::HostRegistration) -> Result<Self, InvalidField> {
        let worker_id = wire.worker_id.parse().map_err(|_| {
            InvalidField::new(
                "worker_id",
                "must be a UUID (8-4-4-4-12 hexadecimal digits)",
            )
        })?;
        let gpus = wire
            .gpus
            .into_iter()
            .enumerate()
            .map(|(position, gpu)| {
                GpuDescription::try_from(gpu)
                    .map_err(|invalid| invalid.within_item("gpus", position))
            })
            .collect::<Result<_, _>>()?;
        Ok(Self {
            name: wire.name,
            address: wire.address,
            worker_id,
            incarnation: wire.incarnation,
            boot_id: wire.boot_id,
            gpus,
            cpus_milli: wire.cpus_milli,
            memory_mib: wire.memory_mib,
            labels: wire.labels,
            reported: reported_from_wire(wire.reported)?,
        })
    }
}

impl From<&HostRegistration> for v1::HostRegistration {
    fn from(registration: &HostRegistration) -> Self {
        Self {
            name: registration.name.clone(),
            address: registration.address.clone(),
            worker_id: registration.worker_id.to_string(),
            incarnation: registration.incarnation,
            boot_id: registration.boot_id.clone(),
            gpus: registration.gpus.iter().map(Into::into).collect(),
            cpus_milli: registration.cpus_milli,
            memory_mib: registration.memory_mib,
            labels: registration.labels.clone(),
            reported: reported_to_wire(&registration.reported),
        }
    }
}

impl TryFrom<v1::GpuDescription> for GpuDescription {
    type Error = InvalidField;

    fn try_from(wire: v1::GpuDescription) -> Result<Self, InvalidField> {
        Ok(Self {
            uuid: gpu_uuid("uuid", &wire.uuid)?,
            index: wire.index,
            model: wire.model,
            memory_mib: wire.memory_mib,
        })
    }
}

impl From<&GpuDescription> for v1::GpuDescription {
    fn from(gpu: &GpuDescription) -> Self {
        Self {
            uuid: gpu.uuid.to_string(),
            index: gpu.index,
            model: gpu.model.clone(),
            memory_mib: gpu.memory_mib,
        }
    }
}

impl From<Timings> for v1::Timings {
    fn from(timings: Timings) -> Self {
        Self {
            heartbeat_ms: timings.heartbeat_ms,
            suspect_ms: timings.suspect_ms,
            lost_ms: timings.lost_ms,
        }
    }
}

impl TryFrom<v1::Timings> for Timings {
    type Error = InvalidField;

    fn try_from(wire: v1::Timings) -> Result<Self, InvalidField> {
        if wire.heartbeat_ms == 0 {
            return Err(InvalidField::new("heartbeat_ms", "must be at least 1"));
        }
        if wire.suspect_ms <= wire.heartbeat_ms || wire.lost_ms <= wire.suspect_ms {
            let rule = "beat_ms < suspect_ms < lost_ms must hold";
            return Err(InvalidField::new("suspect_ms", rule));
        }
        Ok(Self {
            heartbeat_ms: wire.heartbeat_ms,
            suspect_ms: wire.suspect_ms,
            lost_ms: wire.lost_ms,
        })
    }
}
