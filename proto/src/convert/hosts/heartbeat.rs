//! Heartbeats and the status they carry.

use muster_model::command::GpuHealth;
use muster_model::heartbeat::{
    CheckpointReport, DamageReport, Heartbeat, TaskStatus, WorkDone, WorkerStatus, WorkerTaskPhase,
};
use muster_model::ids::{
    AttemptEpoch, GpuUuid, JobId, LeadershipEpoch, Revision, TaskIndex, TaskKey, UnitIndex,
};
use muster_model::limits::{
    CHECKPOINTS_REPORTED_MAX, DAMAGED_REPORTED_MAX, GPUS_PER_HOST_MAX, TASKS_PER_HOST_MAX,
};

use crate::convert::{gpu_uuid, health};
use crate::field::{InvalidField, port, required};
use crate::v1;

impl TryFrom<v1::Heartbeat> for Heartbeat {
    type Error = InvalidField;

    fn try_from(wire: v1::Heartbeat) -> Result<Self, InvalidField> {
        let status = wire
            .status
            .map(WorkerStatus::try_from)
            .transpose()
            .map_err(|invalid| invalid.within("status"))?;
        Ok(Self {
            sequence: wire.sequence,
            acknowledged: wire.acknowledged,
            leader: LeadershipEpoch(wire.leadership_epoch),
            desired_revision: Revision(wire.desired_revision),
            status,
        })
    }
}

impl From<&Heartbeat> for v1::Heartbeat {
    fn from(heartbeat: &Heartbeat) -> Self {
        Self {
            sequence: heartbeat.sequence,
            acknowledged: heartbeat.acknowledged,
            leadership_epoch: heartbeat.leader.get(),
            desired_revision: heartbeat.desired_revision.get(),
            status: heartbeat.status.as_ref().map(Into::into),
        }
    }
}

impl TryFrom<v1::WorkerStatus> for WorkerStatus {
    type Error = InvalidField;

    fn try_from(wire: v1::WorkerStatus) -> Result<Self, InvalidField> {
        at_most(
            "tasks",
            wire.tasks.len(),
            "TASKS_PER_HOST_MAX",
            TASKS_PER_HOST_MAX,
        )?;
        at_most(
            "gpus",
            wire.gpus.len(),
            "GPUS_PER_HOST_MAX",
            GPUS_PER_HOST_MAX,
        )?;
        let tasks = wire
            .tasks
            .into_iter()
            .enumerate()
            .map(|(position, task)| {
                TaskStatus::try_from(task).map_err(|invalid| invalid.within_item("tasks", position))
            })
            .collect::<Result<_, _>>()?;
        let gpus = wire
            .gpus
            .into_iter()
            .enumerate()
            .map(|(position, gpu)| {
                gpu_status(gpu).map_err(|invalid| invalid.within_item("gpus", position))
            })
            .collect::<Result<_, _>>()?;
        let health_work = wire.health_work.into_iter().enumerate();
        let health_work = health_work
            .map(|(at, done)| {
                WorkDone::try_from(done).map_err(|invalid| invalid.within_item("health_work", at))
            })
            .collect::<Result<_, _>>()?;
        Ok(Self {
            tasks,
            gpus,
            findings: health::findings(wire.findings)?,
            health_work,
        })
    }
}

fn at_most(field: &str, count: usize, limit_name: &str, limit: usize) -> Result<(), InvalidField> {
    if count > limit {
        let rule = format!("{count} entries are over the limit of {limit} ({limit_name})");
        return Err(InvalidField::new(field, rule));
    }
    Ok(())
}

fn gpu_status(wire: v1::GpuStatus) -> Result<(GpuUuid, GpuHealth), InvalidField> {
    let uuid = gpu_uuid("uuid", &wire.uuid)?;
    Ok((uuid, required("health", wire.health)?.into()))
}

impl From<&WorkerStatus> for v1::WorkerStatus {
    fn from(status: &WorkerStatus) -> Self {
        let gpus = status.gpus.iter().map(|(uuid, health)| v1::GpuStatus {
            uuid: uuid.to_string(),
            health: Some(health.into()),
        });
        Self {
            tasks: status.tasks.iter().map(Into::into).collect(),
            gpus: gpus.collect(),
            findings: status.findings.iter().map(Into::into).collect(),
            health_work: status.health_work.iter().map(Into::into).collect(),
        }
    }
}

impl TryFrom<v1::TaskStatus> for TaskStatus {
    type Error = InvalidField;

    fn try_from(wire: v1::TaskStatus) -> Result<Self, InvalidField> {
        let phase = WorkerTaskPhase::try_from(required("phase", wire.phase)?)
            .map_err(|invalid| invalid.within("phase"))?;
        at_most(
            "checkpoints",
            wire.checkpoints.len(),
            "CHECKPOINTS_REPORTED_MAX",
            CHECKPOINTS_REPORTED_MAX,
        )?;
        at_most(
            "damaged",
            wire.damaged.len(),
            "DAMAGED_REPORTED_MAX",
            DAMAGED_REPORTED_MAX,
        )?;
        // An older worker reports only the newest checkpoint.
        let newest = wire.checkpoint.filter(|_| wire.checkpoints.is_empty());
        let checkpoints = wire.checkpoints.into_iter().chain(newest);
        Ok(Self {
            key: TaskKey {
                job: JobId(wire.job_id),
                task: TaskIndex(wire.task),
            },
            unit: UnitIndex(wire.unit),
            epoch: AttemptEpoch(wire.epoch),
            phase,
            checkpoints: checkpoints.map(Into::into).collect(),
            progress_step: wire.progress_step,
            damaged: wire.damaged.into_iter().map(Into::into).collect(),
        })
    }
}

impl From<&TaskStatus> for v1::TaskStatus {
    fn from(status: &TaskStatus) -> Self {
        Self {
            job_id: status.key.job.get(),
            task: status.key.task.get(),
            unit: status.unit.get(),
            epoch: status.epoch.get(),
            phase: Some((&status.phase).into()),
            checkpoint: status.checkpoints.last().map(Into::into),
            checkpoints: status.checkpoints.iter().map(Into::into).collect(),
            progress_step: status.progress_step,
            damaged: status.damaged.iter().map(Into::into).collect(),
        }
    }
}

impl TryFrom<v1::WorkerTaskPhase> for WorkerTaskPhase {
    type Error = InvalidField;

    fn try_from(wire: v1::WorkerTaskPhase) -> Result<Self, InvalidField> {
        use v1::worker_task_phase::Kind;
        Ok(match required("kind", wire.kind)? {
            Kind::Starting(_) => Self::Starting,
            Kind::Running(_) => Self::Running,
            Kind::Stopping(_) => Self::Stopping,
            Kind::Exited(exit) => Self::Exited(exit.into()),
            Kind::Gone(gone) => Self::Gone {
                detail: gone.detail,
            },
            Kind::Prepared(prepared) => Self::Prepared {
                master_port: port("master_port", prepared.master_port)?,
            },
        })
    }
}

impl From<&WorkerTaskPhase> for v1::WorkerTaskPhase {
    fn from(phase: &WorkerTaskPhase) -> Self {
        use v1::worker_task_phase::{Gone, Kind, Plain, Prepared};
        let kind = match phase {
            WorkerTaskPhase::Starting => Kind::Starting(Plain {}),
            WorkerTaskPhase::Running => Kind::Running(Plain {}),
            WorkerTaskPhase::Stopping => Kind::Stopping(Plain {}),
            WorkerTaskPhase::Exited(exit) => Kind::Exited(exit.into()),
            WorkerTaskPhase::Gone { detail } => Kind::Gone(Gone {
                detail: detail.clone(),
            }),
            WorkerTaskPhase::Prepared { master_port } => Kind::Prepared(Prepared {
                master_port: master_port.map(u32::from),
            }),
        };
        Self { kind: Some(kind) }
    }
}

impl From<v1::DamageReport> for DamageReport {
    fn from(wire: v1::DamageReport) -> Self {
        Self {
            step: wire.step,
            reason: wire.reason,
        }
    }
}

impl From<&DamageReport> for v1::DamageReport {
    fn from(report: &DamageReport) -> Self {
        Self {
            step: report.step,
            reason: report.reason.clone(),
        }
    }
}

impl From<v1::CheckpointReport> for CheckpointReport {
    fn from(wire: v1::CheckpointReport) -> Self {
        Self {
            step: wire.step,
            path: wire.path,
            size_bytes: wire.size_bytes,
            digest: wire.digest,
            save_ms: wire.save_ms,
        }
    }
}

impl From<&CheckpointReport> for v1::CheckpointReport {
    fn from(report: &CheckpointReport) -> Self {
        Self {
            step: report.step,
            path: report.path.clone(),
            size_bytes: report.size_bytes,
            digest: report.digest.clone(),
            save_ms: report.save_ms,
        }
    }
}
