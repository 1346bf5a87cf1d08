//! Desired state of a host.

use muster_model::desired::{
    CheckpointDuties, CheckpointRef, DesiredState, GangHost, RankInfo, StopInstruction,
    TaskAssignment,
};
use muster_model::ids::{
    AttemptEpoch, GpuUuid, HostId, JobId, LeadershipEpoch, Revision, TaskIndex, TaskKey, UnitIndex,
};
use muster_model::spec::Execution;

use crate::convert::{gpu_uuid, health};
use crate::field::{InvalidField, enumeration, required};
use crate::v1;

impl TryFrom<v1::DesiredState> for DesiredState {
    type Error = InvalidField;

    fn try_from(wire: v1::DesiredState) -> Result<Self, InvalidField> {
        let tasks = wire
            .tasks
            .into_iter()
            .enumerate()
            .map(|(position, task)| {
                TaskAssignment::try_from(task)
                    .map_err(|invalid| invalid.within_item("tasks", position))
            })
            .collect::<Result<_, _>>()?;
        Ok(Self {
            leader: LeadershipEpoch(wire.leadership_epoch),
            revision: Revision(wire.revision),
            host: HostId(wire.host_id),
            tasks,
            health: health::duties_from_wire(wire.health)?,
        })
    }
}

impl From<&DesiredState> for v1::DesiredState {
    fn from(desired: &DesiredState) -> Self {
        Self {
            leadership_epoch: desired.leader.get(),
            revision: desired.revision.get(),
            host_id: desired.host.get(),
            tasks: desired.tasks.iter().map(Into::into).collect(),
            health: health::duties_to_wire(&desired.health),
        }
    }
}

impl TryFrom<v1::TaskAssignment> for TaskAssignment {
    type Error = InvalidField;

    fn try_from(wire: v1::TaskAssignment) -> Result<Self, InvalidField> {
        let restart_reason =
            enumeration::<v1::RestartReason, _>("restart_reason", wire.restart_reason)?;
        let acknowledged = enumeration::<v1::TaskPhase, _>("acknowledged", wire.acknowledged)?;
        let rank = RankInfo::try_from(required("rank", wire.rank)?)
            .map_err(|invalid| invalid.within("rank"))?;
        Ok(Self {
            key: TaskKey {
                job: JobId(wire.job_id),
                task: TaskIndex(wire.task),
            },
            unit: UnitIndex(wire.unit),
            epoch: AttemptEpoch(wire.epoch),
            attempt: wire.attempt,
            restart_reason,
            acknowledged,
            command: wire.command,
            environment: wire.environment,
            working_directory: wire.working_directory,
            gpus: gpus_from_wire(&wire.gpus)?,
            cpus_milli: wire.cpus_milli,
            memory_mib: wire.memory_mib,
            execution: wire
                .execution
                .map_or_else(|| Ok(Execution::default()), Execution::try_from)
                .map_err(|invalid| invalid.within("execution"))?,
            rank,
            checkpoint: wire.checkpoint.map(Into::into),
            stop_grace_ms: wire.stop_grace_ms,
            partition_grace_ms: wire.partition_grace_ms,
            stop: wire.stop.map(Into::into),
            barrier: wire.barrier,
            released: wire.released,
            suspended: wire.suspended,
            gang_hosts: wire.gang_hosts.into_iter().map(Into::into).collect(),
            warning: wire.warning.map(Into::into),
            checkpoint_duties: CheckpointDuties {
                removals: wire.removals.into_iter().map(Into::into).collect(),
                kept: wire.kept_checkpoints,
                interval_ms: wire.checkpoint_interval_ms,
                mean_time_ms: wire.mean_time_ms,
            },
            user: wire.user,
        })
    }
}

fn gpus_from_wire(texts: &[String]) -> Result<Vec<GpuUuid>, InvalidField> {
    texts
        .iter()
        .enumerate()
        .map(|(position, text)| {
            gpu_uuid("", text).map_err(|invalid| invalid.within_item("gpus", position))
        })
        .collect()
}

impl From<&TaskAssignment> for v1::TaskAssignment {
    fn from(assignment: &TaskAssignment) -> Self {
        Self {
            job_id: assignment.key.job.get(),
            task: assignment.key.task.get(),
            unit: assignment.unit.get(),
            epoch: assignment.epoch.get(),
            attempt: assignment.attempt,
            restart_reason: v1::RestartReason::from(assignment.restart_reason).into(),
            acknowledged: v1::TaskPhase::from(assignment.acknowledged).into(),
            command: assignment.command.clone(),
            environment: assignment.environment.clone(),
            working_directory: assignment.working_directory.clone(),
            gpus: assignment.gpus.iter().map(ToString::to_string).collect(),
            cpus_milli: assignment.cpus_milli,
            memory_mib: assignment.memory_mib,
            rank: Some((&assignment.rank).into()),
            checkpoint: assignment.checkpoint.as_ref().map(Into::into),
            stop_grace_ms: assignment.stop_grace_ms,
            partition_grace_ms: assignment.partition_grace_ms,
            stop: assignment.stop.as_ref().map(Into::into),
            barrier: assignment.barrier,
            released: assignment.released,
            suspended: assignment.suspended,
            gang_hosts: assignment.gang_hosts.iter().map(Into::into).collect(),
            execution: (assignment.execution != Execution::default())
                .then(|| (&assignment.execution).into()),
            warning: assignment.warning.map(Into::into),
            removals: assignment
                .checkpoint_duties
                .removals
                .iter()
                .map(Into::into)
                .collect(),
            kept_checkpoints: assignment.checkpoint_duties.kept.clone(),
            checkpoint_interval_ms: assignment.checkpoint_duties.interval_ms,
            mean_time_ms: assignment.checkpoint_duties.mean_time_ms,
            user: assignment.user.clone(),
        }
    }
}

impl From<v1::GangHost> for GangHost {
    fn from(wire: v1::GangHost) -> Self {
        Self {
            address: wire.address,
            slots: wire.slots,
        }
    }
}

impl From<&GangHost> for v1::GangHost {
    fn from(host: &GangHost) -> Self {
        Self {
            address: host.address.clone(),
            slots: host.slots,
        }
    }
}

impl TryFrom<v1::RankInfo> for RankInfo {
    type Error = InvalidField;

    fn try_from(wire: v1::RankInfo) -> Result<Self, InvalidField> {
        let master_port = u16::try_from(wire.master_port)
            .map_err(|_| InvalidField::new("master_port", "must be at most 65535"))?;
        Ok(Self {
            rank: wire.rank,
            world_size: wire.world_size,
            local_rank: wire.local_rank,
            node_rank: wire.node_rank,
            nodes: wire.nodes,
            master_address: wire.master_address,
            master_port,
            awaits_port: wire.awaits_port,
        })
    }
}

impl From<&RankInfo> for v1::RankInfo {
    fn from(rank: &RankInfo) -> Self {
        Self {
            rank: rank.rank,
            world_size: rank.world_size,
            local_rank: rank.local_rank,
            node_rank: rank.node_rank,
            nodes: rank.nodes,
            master_address: rank.master_address.clone(),
            master_port: u32::from(rank.master_port),
            awaits_port: rank.awaits_port,
        }
    }
}

impl From<v1::CheckpointRef> for CheckpointRef {
    fn from(wire: v1::CheckpointRef) -> Self {
        Self {
            step: wire.step,
            path: wire.path,
        }
    }
}

impl From<&CheckpointRef> for v1::CheckpointRef {
    fn from(checkpoint: &CheckpointRef) -> Self {
        Self {
            step: checkpoint.step,
            path: checkpoint.path.clone(),
        }
    }
}

impl From<v1::StopInstruction> for StopInstruction {
    fn from(wire: v1::StopInstruction) -> Self {
        Self {
            reason: wire.reason,
            grace_ms: wire.grace_ms,
        }
    }
}

impl From<&StopInstruction> for v1::StopInstruction {
    fn from(stop: &StopInstruction) -> Self {
        Self {
            reason: stop.reason.clone(),
            grace_ms: stop.grace_ms,
        }
    }
}
