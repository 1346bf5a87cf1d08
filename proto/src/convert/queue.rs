//! Configuration of queues. Absent fields of the wire form get their defaults here; the core's form has
//! every field, and its wire form contains every field.

use std::collections::BTreeMap;

use muster_model::quota::{
    Amounts, CellQuota, Defragment, Guarantee, Limits, PinnedCell, QueueConfig, QueueOrder,
    QueueTree,
};

use crate::field::{InvalidField, required};
use crate::v1;

impl TryFrom<v1::QueueTree> for QueueTree {
    type Error = InvalidField;

    fn try_from(wire: v1::QueueTree) -> Result<Self, InvalidField> {
        let queues = wire.queues.into_iter().map(|(name, config)| {
            let config = QueueConfig::try_from(config)
                .map_err(|invalid| invalid.within(&format!("queues.{name}")))?;
            Ok((name, config))
        });
        Ok(Self {
            queues: queues.collect::<Result<BTreeMap<_, _>, InvalidField>>()?,
            history_half_life_ms: wire.history_half_life_ms,
            defragment: wire.defragment.map(Into::into),
        })
    }
}

impl From<&QueueTree> for v1::QueueTree {
    fn from(tree: &QueueTree) -> Self {
        let queues = tree.queues.iter();
        Self {
            queues: queues
                .map(|(name, config)| (name.clone(), config.into()))
                .collect(),
            history_half_life_ms: tree.history_half_life_ms,
            defragment: tree.defragment.map(Into::into),
        }
    }
}

impl From<v1::Defragment> for Defragment {
    fn from(wire: v1::Defragment) -> Self {
        let default = Self::default();
        Self {
            moves_max: wire.moves_max.unwrap_or(default.moves_max),
            moves_in_flight_max: wire
                .moves_in_flight_max
                .unwrap_or(default.moves_in_flight_max),
            interval_ms: wire.interval_ms.unwrap_or(default.interval_ms),
            after_ms: wire.after_ms.unwrap_or(default.after_ms),
            cost_percent_max: wire.cost_percent_max.unwrap_or(default.cost_percent_max),
            restart_ms: wire.restart_ms.unwrap_or(default.restart_ms),
            young_ms: wire.young_ms.unwrap_or(default.young_ms),
        }
    }
}

impl From<Defragment> for v1::Defragment {
    fn from(config: Defragment) -> Self {
        Self {
            moves_max: Some(config.moves_max),
            moves_in_flight_max: Some(config.moves_in_flight_max),
            interval_ms: Some(config.interval_ms),
            after_ms: Some(config.after_ms),
            cost_percent_max: Some(config.cost_percent_max),
            restart_ms: Some(config.restart_ms),
            young_ms: Some(config.young_ms),
        }
    }
}

impl TryFrom<v1::QueueConfig> for QueueConfig {
    type Error = InvalidField;

    fn try_from(wire: v1::QueueConfig) -> Result<Self, InvalidField> {
        let default = Self::default();
        let guarantee = wire
            .guarantee
            .map(Guarantee::try_from)
            .transpose()
            .map_err(|invalid| invalid.within("guarantee"))?;
        Ok(Self {
            weight: wire.weight.unwrap_or(default.weight),
            order: order("order", wire.order)?,
            guarantee: guarantee.unwrap_or(default.guarantee),
            limit: wire.limit.map_or(default.limit, Into::into),
            user_limit: wire.user_limit.map_or(default.user_limit, Into::into),
            borrow: wire.borrow.unwrap_or(default.borrow),
            preempt_by_priority: wire.preempt_by_priority,
            backfill: wire.backfill.unwrap_or(default.backfill),
            reserve_after_ms: wire.reserve_after_ms.unwrap_or(default.reserve_after_ms),
            protected_ms: wire.protected_ms,
            movable: wire.movable,
            live_jobs_max: wire.live_jobs_max.unwrap_or(default.live_jobs_max),
        })
    }
}

impl From<&QueueConfig> for v1::QueueConfig {
    fn from(config: &QueueConfig) -> Self {
        Self {
            weight: Some(config.weight),
            order: v1::QueueOrder::from(config.order).into(),
            guarantee: Some((&config.guarantee).into()),
            limit: Some((&config.limit).into()),
            user_limit: Some((&config.user_limit).into()),
            borrow: Some(config.borrow),
            preempt_by_priority: config.preempt_by_priority,
            backfill: Some(config.backfill),
            reserve_after_ms: Some(config.reserve_after_ms),
            protected_ms: config.protected_ms,
            live_jobs_max: Some(config.live_jobs_max),
            movable: config.movable,
        }
    }
}

impl From<QueueOrder> for v1::QueueOrder {
    fn from(order: QueueOrder) -> Self {
        match order {
            QueueOrder::Priority => Self::Priority,
            QueueOrder::Fifo => Self::Fifo,
            QueueOrder::Fair => Self::Fair,
        }
    }
}

fn order(field: &str, number: i32) -> Result<QueueOrder, InvalidField> {
    match v1::QueueOrder::try_from(number) {
        Ok(v1::QueueOrder::Unspecified | v1::QueueOrder::Priority) => Ok(QueueOrder::Priority),
        Ok(v1::QueueOrder::Fifo) => Ok(QueueOrder::Fifo),
        Ok(v1::QueueOrder::Fair) => Ok(QueueOrder::Fair),
        Err(_) => Err(InvalidField::new(
            field,
            format!("{number} is not a value that this version knows"),
        )),
    }
}

impl TryFrom<v1::Guarantee> for Guarantee {
    type Error = InvalidField;

    fn try_from(wire: v1::Guarantee) -> Result<Self, InvalidField> {
        use v1::guarantee::Kind;
        Ok(match required("", wire.kind)? {
            Kind::Amounts(amounts) => Self::Amounts(amounts.into()),
            Kind::Cells(cells) => Self::Cells(cells.quotas.into_iter().map(Into::into).collect()),
        })
    }
}

impl From<&Guarantee> for v1::Guarantee {
    fn from(guarantee: &Guarantee) -> Self {
        use v1::guarantee::{Cells, Kind};
        let kind = match guarantee {
            Guarantee::Amounts(amounts) => Kind::Amounts(amounts.into()),
            Guarantee::Cells(quotas) => Kind::Cells(Cells {
                quotas: quotas.iter().map(Into::into).collect(),
            }),
        };
        Self { kind: Some(kind) }
    }
}

impl From<v1::Amounts> for Amounts {
    fn from(wire: v1::Amounts) -> Self {
        Self {
            gpus: wire.gpus,
            gpus_by_model: wire.gpus_by_model,
            cpus_milli: wire.cpus_milli,
            memory_mib: wire.memory_mib,
        }
    }
}

impl From<&Amounts> for v1::Amounts {
    fn from(amounts: &Amounts) -> Self {
        Self {
            gpus: amounts.gpus,
            gpus_by_model: amounts.gpus_by_model.clone(),
            cpus_milli: amounts.cpus_milli,
            memory_mib: amounts.memory_mib,
        }
    }
}

impl From<v1::Limits> for Limits {
    fn from(wire: v1::Limits) -> Self {
        Self {
            gpus: wire.gpus,
            gpus_by_model: wire.gpus_by_model,
            cpus_milli: wire.cpus_milli,
            memory_mib: wire.memory_mib,
        }
    }
}

impl From<&Limits> for v1::Limits {
    fn from(limits: &Limits) -> Self {
        Self {
            gpus: limits.gpus,
            gpus_by_model: limits.gpus_by_model.clone(),
            cpus_milli: limits.cpus_milli,
            memory_mib: limits.memory_mib,
        }
    }
}

impl From<v1::CellQuota> for CellQuota {
    fn from(wire: v1::CellQuota) -> Self {
        let pinned = wire.pinned.into_iter().map(|cell| PinnedCell {
            name: cell.name,
            cell: cell.cell,
        });
        Self {
            level: wire.level,
            gpu_model: wire.gpu_model,
            gpus: wire.gpus,
            count: wire.count,
            pinned: pinned.collect(),
        }
    }
}

impl From<&CellQuota> for v1::CellQuota {
    fn from(quota: &CellQuota) -> Self {
        let pinned = quota.pinned.iter().map(|cell| v1::PinnedCell {
            name: cell.name.clone(),
            cell: cell.cell.clone(),
        });
        Self {
            level: quota.level.clone(),
            gpu_model: quota.gpu_model.clone(),
            gpus: quota.gpus,
            count: quota.count,
            pinned: pinned.collect(),
        }
    }
}
