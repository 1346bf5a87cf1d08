//! Scheduling options of a job, apart from resources.

use muster_model::spec::{Layout, Packing, Scheduling, Within};

use crate::convert::gpu_uuid;
use crate::field::InvalidField;
use crate::v1;

impl TryFrom<v1::Scheduling> for Scheduling {
    type Error = InvalidField;

    fn try_from(wire: v1::Scheduling) -> Result<Self, InvalidField> {
        Ok(Self {
            opportunistic: wire.opportunistic,
            lazy_preemption: wire.lazy_preemption,
            run_time_ms_max: wire.run_time_ms_max,
            assembly_ms_max: wire.assembly_ms_max,
            within: wire.within.map(Into::into),
            packing: packing("packing", wire.packing)?,
            hosts: wire.hosts,
            hosts_excluded: wire.hosts_excluded,
            pinned_cell: wire.pinned_cell,
        })
    }
}

impl From<&Scheduling> for v1::Scheduling {
    fn from(scheduling: &Scheduling) -> Self {
        Self {
            opportunistic: scheduling.opportunistic,
            lazy_preemption: scheduling.lazy_preemption,
            run_time_ms_max: scheduling.run_time_ms_max,
            assembly_ms_max: scheduling.assembly_ms_max,
            within: scheduling.within.as_ref().map(Into::into),
            packing: v1::Packing::from(scheduling.packing).into(),
            hosts: scheduling.hosts.clone(),
            hosts_excluded: scheduling.hosts_excluded.clone(),
            pinned_cell: scheduling.pinned_cell.clone(),
        }
    }
}

impl TryFrom<v1::Layout> for Layout {
    type Error = InvalidField;

    fn try_from(wire: v1::Layout) -> Result<Self, InvalidField> {
        let gpus = wire.gpus.iter().enumerate();
        Ok(Self {
            count_min: wire.count_min,
            within: wire.within.map(Into::into),
            within_tasks: wire.within_tasks,
            gpus: gpus
                .map(|(position, gpu)| gpu_uuid(&format!("gpus[{position}]"), gpu))
                .collect::<Result<_, _>>()?,
        })
    }
}

impl From<&Layout> for v1::Layout {
    fn from(layout: &Layout) -> Self {
        Self {
            count_min: layout.count_min,
            within: layout.within.as_ref().map(Into::into),
            within_tasks: layout.within_tasks,
            gpus: layout.gpus.iter().map(ToString::to_string).collect(),
        }
    }
}

impl From<v1::Within> for Within {
    fn from(wire: v1::Within) -> Self {
        Self {
            level: wire.level,
            required: wire.required.unwrap_or(true),
        }
    }
}

impl From<&Within> for v1::Within {
    fn from(within: &Within) -> Self {
        Self {
            level: within.level.clone(),
            required: Some(within.required),
        }
    }
}

impl From<Packing> for v1::Packing {
    fn from(packing: Packing) -> Self {
        match packing {
            Packing::Pack => Self::Pack,
            Packing::Spread => Self::Spread,
            Packing::Exclusive => Self::Exclusive,
        }
    }
}

fn packing(field: &str, number: i32) -> Result<Packing, InvalidField> {
    match v1::Packing::try_from(number) {
        Ok(v1::Packing::Unspecified | v1::Packing::Pack) => Ok(Packing::Pack),
        Ok(v1::Packing::Spread) => Ok(Packing::Spread),
        Ok(v1::Packing::Exclusive) => Ok(Packing::Exclusive),
        Err(_) => Err(InvalidField::new(
            field,
            format!("{number} is not a value that this version knows"),
        )),
    }
}
