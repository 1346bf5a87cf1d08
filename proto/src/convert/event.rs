//! Events. One arm a kind: the tables are long because there are many kinds, and nothing hides in them.

use muster_core::event::EventKind;
use muster_core::ids::{
    AttemptEpoch, HostId, JobId, LeadershipEpoch, ReplicaId, TaskIndex, UnitIndex,
};
use muster_core::time::TimeMs;
use v1::event::Kind;

use super::{InvalidField, enumeration, gpu_uuid, required};
use crate::v1;

impl From<&EventKind> for v1::Event {
    fn from(kind: &EventKind) -> Self {
        Self {
            kind: Some(kind_to_wire(kind)),
        }
    }
}

fn kind_to_wire(kind: &EventKind) -> Kind {
    match kind {
        EventKind::LeaderBegan { replica, epoch } => Kind::LeaderBegan(v1::LeaderBegan {
            replica_id: replica.get(),
            leadership_epoch: epoch.get(),
        }),
        EventKind::JobSubmitted {
            job,
            name,
            user,
            queue,
        } => Kind::JobSubmitted(v1::JobSubmitted {
            job_id: job.get(),
            name: name.clone(),
            user: user.clone(),
            queue: queue.clone(),
        }),
        EventKind::JobCancelRequested {
            job,
            author,
            reason,
        } => Kind::JobCancelRequested(v1::JobCancelRequested {
            job_id: job.get(),
            author: author.clone(),
            reason: reason.clone(),
        }),
        EventKind::JobFinished { job, phase, reason } => Kind::JobFinished(v1::JobFinished {
            job_id: job.get(),
            phase: v1::JobPhase::from(*phase).into(),
            reason: reason.clone(),
        }),
        EventKind::JobPruned { job } => Kind::JobPruned(v1::JobPruned { job_id: job.get() }),
        EventKind::AttemptPlaced {
            job,
            unit,
            epoch,
            number,
            hosts,
            gpus,
        } => Kind::AttemptPlaced(v1::AttemptPlaced {
            job_id: job.get(),
            unit: unit.get(),
            epoch: epoch.get(),
            number: *number,
            host_ids: hosts.iter().map(|host| host.get()).collect(),
            gpus: *gpus,
        }),
        EventKind::TaskStarted {
            job,
            unit,
            epoch,
            task,
            host,
        } => Kind::TaskStarted(v1::TaskStarted {
            job_id: job.get(),
            unit: unit.get(),
            epoch: epoch.get(),
            task: task.get(),
            host_id: host.get(),
        }),
        EventKind::AttemptRunning { job, unit, epoch } => {
            Kind::AttemptRunning(v1::AttemptRunning {
                job_id: job.get(),
                unit: unit.get(),
                epoch: epoch.get(),
            })
        }
        EventKind::TaskExited {
            job,
            unit,
            epoch,
            task,
            host,
            exit,
        } => Kind::TaskExited(v1::TaskExited {
            job_id: job.get(),
            unit: unit.get(),
            epoch: epoch.get(),
            task: task.get(),
            host_id: host.get(),
            exit: Some(exit.into()),
        }),
        EventKind::TaskLost {
            job,
            unit,
            epoch,
            task,
            host,
            detail,
        } => Kind::TaskLost(v1::TaskLost {
            job_id: job.get(),
            unit: unit.get(),
            epoch: epoch.get(),
            task: task.get(),
            host_id: host.get(),
            detail: detail.clone(),
        }),
        EventKind::AttemptStopping {
            job,
            unit,
            epoch,
            reason,
        } => Kind::AttemptStopping(v1::AttemptStopping {
            job_id: job.get(),
            unit: unit.get(),
            epoch: epoch.get(),
            reason: Some(reason.into()),
        }),
        EventKind::AttemptEnded {
            job,
            unit,
            epoch,
            hosts,
            detail,
        } => Kind::AttemptEnded(v1::AttemptEnded {
            job_id: job.get(),
            unit: unit.get(),
            epoch: epoch.get(),
            host_ids: hosts.iter().map(|host| host.get()).collect(),
            detail: detail.clone(),
        }),
        EventKind::UnitRequeued {
            job,
            unit,
            reason,
            not_before,
        } => Kind::UnitRequeued(v1::UnitRequeued {
            job_id: job.get(),
            unit: unit.get(),
            reason: v1::RestartReason::from(*reason).into(),
            not_before_ms: not_before.0,
        }),
        EventKind::HostRegistered { host, name, gpus } => {
            Kind::HostRegistered(v1::HostRegistered {
                host_id: host.get(),
                name: name.clone(),
                gpus: *gpus,
            })
        }
        EventKind::HostHealthChanged { host, name, health } => {
            Kind::HostHealthChanged(v1::HostHealthChanged {
                host_id: host.get(),
                name: name.clone(),
                health: v1::HostHealth::from(*health).into(),
            })
        }
        EventKind::GpuHealthChanged {
            gpu,
            host,
            host_name,
            health,
        } => Kind::GpuHealthChanged(v1::GpuHealthChanged {
            gpu: gpu.to_string(),
            host_id: host.get(),
            host: host_name.clone(),
            health: Some(health.into()),
        }),
        EventKind::Blocked { target, block } => Kind::Blocked(v1::Blocked {
            target: Some(target.into()),
            block: Some(block.into()),
        }),
        EventKind::Unblocked { target, author } => Kind::Unblocked(v1::Unblocked {
            target: Some(target.into()),
            author: author.clone(),
        }),
        EventKind::CheckpointCommitted {
            job,
            unit,
            epoch,
            step,
            path,
            size_bytes,
        } => Kind::CheckpointCommitted(v1::CheckpointCommitted {
            job_id: job.get(),
            unit: unit.get(),
            epoch: epoch.get(),
            step: *step,
            path: path.clone(),
            size_bytes: *size_bytes,
        }),
        EventKind::QueueSet { name } => Kind::QueueSet(v1::QueueSet { name: name.clone() }),
    }
}

impl TryFrom<v1::Event> for EventKind {
    type Error = InvalidField;

    fn try_from(wire: v1::Event) -> Result<Self, InvalidField> {
        kind_from_wire(required("kind", wire.kind)?)
    }
}

fn kind_from_wire(kind: Kind) -> Result<EventKind, InvalidField> {
    Ok(match kind {
        Kind::LeaderBegan(wire) => EventKind::LeaderBegan {
            replica: ReplicaId(wire.replica_id),
            epoch: LeadershipEpoch(wire.leadership_epoch),
        },
        Kind::JobSubmitted(wire) => EventKind::JobSubmitted {
            job: JobId(wire.job_id),
            name: wire.name,
            user: wire.user,
            queue: wire.queue,
        },
        Kind::JobCancelRequested(wire) => EventKind::JobCancelRequested {
            job: JobId(wire.job_id),
            author: wire.author,
            reason: wire.reason,
        },
        Kind::JobFinished(wire) => EventKind::JobFinished {
            job: JobId(wire.job_id),
            phase: enumeration::<v1::JobPhase, _>("job_finished.phase", wire.phase)?,
            reason: wire.reason,
        },
        Kind::JobPruned(wire) => EventKind::JobPruned {
            job: JobId(wire.job_id),
        },
        Kind::AttemptPlaced(wire) => EventKind::AttemptPlaced {
            job: JobId(wire.job_id),
            unit: UnitIndex(wire.unit),
            epoch: AttemptEpoch(wire.epoch),
            number: wire.number,
            hosts: wire.host_ids.into_iter().map(HostId).collect(),
            gpus: wire.gpus,
        },
        Kind::TaskStarted(wire) => EventKind::TaskStarted {
            job: JobId(wire.job_id),
            unit: UnitIndex(wire.unit),
            epoch: AttemptEpoch(wire.epoch),
            task: TaskIndex(wire.task),
            host: HostId(wire.host_id),
        },
        Kind::AttemptRunning(wire) => EventKind::AttemptRunning {
            job: JobId(wire.job_id),
            unit: UnitIndex(wire.unit),
            epoch: AttemptEpoch(wire.epoch),
        },
        Kind::TaskExited(wire) => EventKind::TaskExited {
            job: JobId(wire.job_id),
            unit: UnitIndex(wire.unit),
            epoch: AttemptEpoch(wire.epoch),
            task: TaskIndex(wire.task),
            host: HostId(wire.host_id),
            exit: required("task_exited.exit", wire.exit)?.into(),
        },
        Kind::TaskLost(wire) => EventKind::TaskLost {
            job: JobId(wire.job_id),
            unit: UnitIndex(wire.unit),
            epoch: AttemptEpoch(wire.epoch),
            task: TaskIndex(wire.task),
            host: HostId(wire.host_id),
            detail: wire.detail,
        },
        Kind::AttemptStopping(wire) => EventKind::AttemptStopping {
            job: JobId(wire.job_id),
            unit: UnitIndex(wire.unit),
            epoch: AttemptEpoch(wire.epoch),
            reason: required("attempt_stopping.reason", wire.reason)?.try_into()?,
        },
        Kind::AttemptEnded(wire) => EventKind::AttemptEnded {
            job: JobId(wire.job_id),
            unit: UnitIndex(wire.unit),
            epoch: AttemptEpoch(wire.epoch),
            hosts: wire.host_ids.into_iter().map(HostId).collect(),
            detail: wire.detail,
        },
        Kind::UnitRequeued(wire) => EventKind::UnitRequeued {
            job: JobId(wire.job_id),
            unit: UnitIndex(wire.unit),
            reason: enumeration::<v1::RestartReason, _>("unit_requeued.reason", wire.reason)?,
            not_before: TimeMs(wire.not_before_ms),
        },
        Kind::HostRegistered(wire) => EventKind::HostRegistered {
            host: HostId(wire.host_id),
            name: wire.name,
            gpus: wire.gpus,
        },
        Kind::HostHealthChanged(wire) => EventKind::HostHealthChanged {
            host: HostId(wire.host_id),
            name: wire.name,
            health: enumeration::<v1::HostHealth, _>("host_health_changed.health", wire.health)?,
        },
        Kind::GpuHealthChanged(wire) => EventKind::GpuHealthChanged {
            gpu: gpu_uuid("gpu_health_changed.gpu", &wire.gpu)?,
            host: HostId(wire.host_id),
            host_name: wire.host,
            health: required("gpu_health_changed.health", wire.health)?.into(),
        },
        Kind::Blocked(wire) => EventKind::Blocked {
            target: required("blocked.target", wire.target)?.try_into()?,
            block: required("blocked.block", wire.block)?.into(),
        },
        Kind::Unblocked(wire) => EventKind::Unblocked {
            target: required("unblocked.target", wire.target)?.try_into()?,
            author: wire.author,
        },
        Kind::CheckpointCommitted(wire) => EventKind::CheckpointCommitted {
            job: JobId(wire.job_id),
            unit: UnitIndex(wire.unit),
            epoch: AttemptEpoch(wire.epoch),
            step: wire.step,
            path: wire.path,
            size_bytes: wire.size_bytes,
        },
        Kind::QueueSet(wire) => EventKind::QueueSet { name: wire.name },
    })
}

impl From<&EventKind> for v1::EventKind {
    fn from(kind: &EventKind) -> Self {
        match kind {
            EventKind::LeaderBegan { .. } => Self::LeaderBegan,
            EventKind::JobSubmitted { .. } => Self::JobSubmitted,
            EventKind::JobCancelRequested { .. } => Self::JobCancelRequested,
            EventKind::JobFinished { .. } => Self::JobFinished,
            EventKind::JobPruned { .. } => Self::JobPruned,
            EventKind::AttemptPlaced { .. } => Self::AttemptPlaced,
            EventKind::TaskStarted { .. } => Self::TaskStarted,
            EventKind::AttemptRunning { .. } => Self::AttemptRunning,
            EventKind::TaskExited { .. } => Self::TaskExited,
            EventKind::TaskLost { .. } => Self::TaskLost,
            EventKind::AttemptStopping { .. } => Self::AttemptStopping,
            EventKind::AttemptEnded { .. } => Self::AttemptEnded,
            EventKind::UnitRequeued { .. } => Self::UnitRequeued,
            EventKind::HostRegistered { .. } => Self::HostRegistered,
            EventKind::HostHealthChanged { .. } => Self::HostHealthChanged,
            EventKind::GpuHealthChanged { .. } => Self::GpuHealthChanged,
            EventKind::Blocked { .. } => Self::Blocked,
            EventKind::Unblocked { .. } => Self::Unblocked,
            EventKind::CheckpointCommitted { .. } => Self::CheckpointCommitted,
            EventKind::QueueSet { .. } => Self::QueueSet,
        }
    }
}
