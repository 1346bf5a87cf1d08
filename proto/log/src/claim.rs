//! Placements, claims and allocation bases in the log and the state.

use muster_model::command::{AllocationBasis, ClaimSpec, Move, Moving, TaskPlacement};
use muster_model::ids::{HostId, JobId, LeadershipEpoch, TaskIndex, UnitIndex};
use muster_model::time::TimeMs;
use muster_proto::field::packed::{pack_gpus, unpack_gpus};
use muster_proto::field::required;

use crate::error::Field;
use crate::v1;

pub(super) fn to_wire(claiming: &ClaimSpec) -> v1::Claim {
    let victims = claiming.victims.iter();
    v1::Claim {
        leader: claiming.leader.get(),
        job: claiming.job.get(),
        unit: claiming.unit.get(),
        tasks: tasks_to_wire(&claiming.tasks),
        allocation_basis: Some((&claiming.basis).into()),
        victims: victims.map(|victim| (*victim).into()).collect(),
        supersedes: claiming
            .supersedes
            .iter()
            .map(|unit| (*unit).into())
            .collect(),
        expected_at_ms: claiming.expected_at.map(|at| at.0),
        moving: claiming.moving.as_ref().map(moving_to_wire),
    }
}

fn moving_to_wire(moving: &Moving) -> v1::Moving {
    let moves = moving.moves.iter().map(|one| v1::Move {
        attempt: Some(one.attempt.into()),
        tasks: tasks_to_wire(&one.tasks),
    });
    v1::Moving {
        moves: moves.collect(),
        gain_gpu_ms: moving.gain_gpu_ms,
    }
}

fn moving_from_wire(wire: v1::Moving) -> Field<Moving> {
    let moves = wire.moves.into_iter().map(|one| {
        Ok(Move {
            attempt: required("moving.moves.attempt", one.attempt)?.into(),
            tasks: tasks_from_wire(one.tasks)?.into(),
        })
    });
    Ok(Moving {
        moves: moves.collect::<Field<_>>()?,
        gain_gpu_ms: wire.gain_gpu_ms,
    })
}

pub(super) fn from_wire(wire: v1::Claim) -> Field<ClaimSpec> {
    Ok(ClaimSpec {
        leader: LeadershipEpoch(wire.leader),
        job: JobId(wire.job),
        unit: UnitIndex(wire.unit),
        tasks: tasks_from_wire(wire.tasks)?.into(),
        basis: basis_from_wire(wire.allocation_basis)?,
        victims: wire.victims.into_iter().map(Into::into).collect(),
        supersedes: wire.supersedes.into_iter().map(Into::into).collect(),
        expected_at: wire.expected_at_ms.map(TimeMs),
        moving: wire.moving.map(moving_from_wire).transpose()?,
    })
}

pub(super) fn tasks_to_wire(tasks: &[TaskPlacement]) -> Vec<v1::TaskPlacement> {
    let tasks = tasks.iter().map(|task| v1::TaskPlacement {
        task: task.task.get(),
        host: task.host.get(),
        gpus: pack_gpus(&task.gpus),
    });
    tasks.collect()
}

pub(super) fn tasks_from_wire(wire: Vec<v1::TaskPlacement>) -> Field<Vec<TaskPlacement>> {
    let tasks = wire.into_iter().map(|task| {
        Ok(TaskPlacement {
            task: TaskIndex(task.task),
            host: HostId(task.host),
            gpus: unpack_gpus("tasks.gpus", &task.gpus)?,
        })
    });
    tasks.collect()
}

/// Absent for the ordinary basis, as in bytes older than this field.
pub(super) fn basis_to_wire(
    allocation_basis: &AllocationBasis,
) -> Option<muster_proto::v1::AllocationBasis> {
    (*allocation_basis != AllocationBasis::Share).then(|| allocation_basis.into())
}

pub(super) fn basis_from_wire(
    wire: Option<muster_proto::v1::AllocationBasis>,
) -> Field<AllocationBasis> {
    wire.map_or(Ok(AllocationBasis::Share), |allocation_basis| {
        AllocationBasis::try_from(allocation_basis)
            .map_err(|invalid| invalid.within("allocation_basis"))
    })
}
