//! Commands: one version byte, then a `muster.log.v1.Command`.

use std::sync::Arc;

use muster_core::command::{
    CheckpointCommit, Command, Placement, TaskOutcome, TaskPlacement, TaskReport,
};
use muster_core::ids::{
    AttemptEpoch, HostId, JobId, LeadershipEpoch, ReplicaId, TaskIndex, UnitIndex,
};
use prost::Message;

use super::error::{Field, LogError};
use super::packed::{pack_gpu, pack_gpus, pack_request, unpack_gpu, unpack_gpus, unpack_request};
use super::v1;
use super::v1::command::Kind;
use super::v1::report_task::{Gone, Outcome, Plain};
use crate::convert::{enumeration, required};

/// Format version that this build writes; it reads this one and older ones.
pub const COMMAND_FORMAT: u8 = 1;

/// Appends a command's versioned bytes to `out`.
pub fn encode_command(command: &Command, out: &mut Vec<u8>) {
    let wire = v1::Command {
        kind: Some(to_wire(command)),
    };
    out.reserve(1 + wire.encoded_len());
    out.push(COMMAND_FORMAT);
    wire.encode_raw(out);
}

/// Reads a command.
///
/// # Errors
/// [`LogError::NewerVersion`] if a newer build wrote it, [`LogError::Malformed`] if it is damaged or of a
/// kind that this build does not know.
pub fn decode_command(bytes: &[u8]) -> Result<Command, LogError> {
    let (&version, body) = bytes
        .split_first()
        .ok_or_else(|| LogError::command("it is empty"))?;
    if version > COMMAND_FORMAT {
        return Err(LogError::NewerVersion {
            what: "command",
            found: version.into(),
            supported: COMMAND_FORMAT.into(),
        });
    }
    if version == 0 {
        return Err(LogError::command("format version 0 does not exist"));
    }
    let wire = v1::Command::decode(body).map_err(LogError::command)?;
    let kind = wire
        .kind
        .ok_or_else(|| LogError::command("it is of a kind that this build does not know"))?;
    from_wire(kind).map_err(LogError::command)
}

fn to_wire(command: &Command) -> Kind {
    match command {
        Command::LeaderBegan { replica } => Kind::LeaderBegan(v1::LeaderBegan {
            replica: replica.get(),
        }),
        Command::SubmitJob { request, spec } => Kind::SubmitJob(v1::SubmitJob {
            request: pack_request(*request),
            spec: Some(spec.as_ref().into()),
        }),
        Command::CancelJob {
            request,
            job,
            author,
            reason,
        } => Kind::CancelJob(v1::CancelJob {
            request: pack_request(*request),
            job: job.get(),
            author: author.clone(),
            reason: reason.clone(),
        }),
        Command::RegisterHost {
            leader,
            registration,
        } => Kind::RegisterHost(v1::RegisterHost {
            leader: leader.get(),
            registration: Some(registration.as_ref().into()),
        }),
        Command::SetHostHealth {
            leader,
            host,
            health,
        } => Kind::SetHostHealth(v1::SetHostHealth {
            leader: leader.get(),
            host: host.get(),
            health: crate::v1::HostHealth::from(*health).into(),
        }),
        Command::SetGpuHealth {
            leader,
            host,
            gpu,
            health,
        } => Kind::SetGpuHealth(v1::SetGpuHealth {
            leader: leader.get(),
            host: host.get(),
            gpu: pack_gpu(*gpu),
            health: Some(health.into()),
        }),
        Command::Place(placement) => Kind::Place(placement_to_wire(placement)),
        Command::ReportTask(report) => Kind::ReportTask(report_to_wire(report)),
        Command::StopAttempt {
            leader,
            job,
            unit,
            epoch,
            reason,
        } => Kind::StopAttempt(v1::StopAttempt {
            leader: leader.get(),
            job: job.get(),
            unit: unit.get(),
            epoch: epoch.get(),
            reason: Some(reason.into()),
        }),
        Command::Block {
            request,
            target,
            block,
        } => Kind::Block(v1::Block {
            request: pack_request(*request),
            target: Some(target.into()),
            block: Some(block.into()),
        }),
        Command::Unblock {
            request,
            target,
            author,
        } => Kind::Unblock(v1::Unblock {
            request: pack_request(*request),
            target: Some(target.into()),
            author: author.clone(),
        }),
        Command::ExpireBlocks { leader } => Kind::ExpireBlocks(v1::ExpireBlocks {
            leader: leader.get(),
        }),
        Command::CommitCheckpoint {
            leader,
            job,
            unit,
            checkpoint,
        } => Kind::CommitCheckpoint(v1::CommitCheckpoint {
            leader: leader.get(),
            job: job.get(),
            unit: unit.get(),
            epoch: checkpoint.epoch.get(),
            step: checkpoint.step,
            path: checkpoint.path.clone(),
            size_bytes: checkpoint.size_bytes,
            digest: checkpoint.digest.clone(),
        }),
        Command::SetQueue {
            request,
            name,
            live_jobs_max,
        } => Kind::SetQueue(v1::SetQueue {
            request: pack_request(*request),
            name: name.clone(),
            live_jobs_max: *live_jobs_max,
        }),
        Command::Prune { leader } => Kind::Prune(v1::Prune {
            leader: leader.get(),
        }),
    }
}

fn from_wire(kind: Kind) -> Field<Command> {
    Ok(match kind {
        Kind::LeaderBegan(wire) => Command::LeaderBegan {
            replica: ReplicaId(wire.replica),
        },
        Kind::SubmitJob(wire) => Command::SubmitJob {
            request: unpack_request("submit_job.request", &wire.request)?,
            spec: Arc::new(required("submit_job.spec", wire.spec)?.into()),
        },
        Kind::CancelJob(wire) => Command::CancelJob {
            request: unpack_request("cancel_job.request", &wire.request)?,
            job: JobId(wire.job),
            author: wire.author,
            reason: wire.reason,
        },
        Kind::RegisterHost(wire) => Command::RegisterHost {
            leader: LeadershipEpoch(wire.leader),
            registration: Arc::new(
                required("register_host.registration", wire.registration)?.try_into()?,
            ),
        },
        Kind::SetHostHealth(wire) => Command::SetHostHealth {
            leader: LeadershipEpoch(wire.leader),
            host: HostId(wire.host),
            health: enumeration::<crate::v1::HostHealth, _>("set_host_health.health", wire.health)?,
        },
        Kind::SetGpuHealth(wire) => Command::SetGpuHealth {
            leader: LeadershipEpoch(wire.leader),
            host: HostId(wire.host),
            gpu: unpack_gpu("set_gpu_health.gpu", &wire.gpu)?,
            health: required("set_gpu_health.health", wire.health)?.into(),
        },
        Kind::Place(wire) => Command::Place(placement_from_wire(wire)?),
        Kind::ReportTask(wire) => Command::ReportTask(report_from_wire(wire)?),
        Kind::StopAttempt(wire) => Command::StopAttempt {
            leader: LeadershipEpoch(wire.leader),
            job: JobId(wire.job),
            unit: UnitIndex(wire.unit),
            epoch: AttemptEpoch(wire.epoch),
            reason: required("stop_attempt.reason", wire.reason)?.try_into()?,
        },
        Kind::Block(wire) => Command::Block {
            request: unpack_request("block.request", &wire.request)?,
            target: required("block.target", wire.target)?.try_into()?,
            block: required("block.block", wire.block)?.into(),
        },
        Kind::Unblock(wire) => Command::Unblock {
            request: unpack_request("unblock.request", &wire.request)?,
            target: required("unblock.target", wire.target)?.try_into()?,
            author: wire.author,
        },
        Kind::ExpireBlocks(wire) => Command::ExpireBlocks {
            leader: LeadershipEpoch(wire.leader),
        },
        Kind::CommitCheckpoint(wire) => Command::CommitCheckpoint {
            leader: LeadershipEpoch(wire.leader),
            job: JobId(wire.job),
            unit: UnitIndex(wire.unit),
            checkpoint: CheckpointCommit {
                epoch: AttemptEpoch(wire.epoch),
                step: wire.step,
                path: wire.path,
                size_bytes: wire.size_bytes,
                digest: wire.digest,
            },
        },
        Kind::SetQueue(wire) => Command::SetQueue {
            request: unpack_request("set_queue.request", &wire.request)?,
            name: wire.name,
            live_jobs_max: wire.live_jobs_max,
        },
        Kind::Prune(wire) => Command::Prune {
            leader: LeadershipEpoch(wire.leader),
        },
    })
}

fn placement_to_wire(placement: &Placement) -> v1::Place {
    let tasks = placement.tasks.iter().map(|task| v1::TaskPlacement {
        task: task.task.get(),
        host: task.host.get(),
        gpus: pack_gpus(&task.gpus),
    });
    v1::Place {
        leader: placement.leader.get(),
        job: placement.job.get(),
        unit: placement.unit.get(),
        tasks: tasks.collect(),
    }
}

fn placement_from_wire(wire: v1::Place) -> Field<Placement> {
    let tasks = wire
        .tasks
        .into_iter()
        .map(|task| {
            Ok(TaskPlacement {
                task: TaskIndex(task.task),
                host: HostId(task.host),
                gpus: unpack_gpus("place.tasks.gpus", &task.gpus)?,
            })
        })
        .collect::<Field<Arc<[_]>>>()?;
    Ok(Placement {
        leader: LeadershipEpoch(wire.leader),
        job: JobId(wire.job),
        unit: UnitIndex(wire.unit),
        tasks,
    })
}

fn report_to_wire(report: &TaskReport) -> v1::ReportTask {
    let outcome = match &report.outcome {
        TaskOutcome::Started => Outcome::Started(Plain {}),
        TaskOutcome::Exited(exit) => Outcome::Exited(exit.into()),
        TaskOutcome::Gone { detail } => Outcome::Gone(Gone {
            detail: detail.clone(),
        }),
        TaskOutcome::Fenced => Outcome::Fenced(Plain {}),
    };
    v1::ReportTask {
        leader: report.leader.get(),
        job: report.job.get(),
        unit: report.unit.get(),
        epoch: report.epoch.get(),
        task: report.task.get(),
        outcome: Some(outcome),
    }
}

fn report_from_wire(wire: v1::ReportTask) -> Field<TaskReport> {
    let outcome = match required("report_task.outcome", wire.outcome)? {
        Outcome::Started(_) => TaskOutcome::Started,
        Outcome::Exited(exit) => TaskOutcome::Exited(exit.into()),
        Outcome::Gone(gone) => TaskOutcome::Gone {
            detail: gone.detail,
        },
        Outcome::Fenced(_) => TaskOutcome::Fenced,
    };
    Ok(TaskReport {
        leader: LeadershipEpoch(wire.leader),
        job: JobId(wire.job),
        unit: UnitIndex(wire.unit),
        epoch: AttemptEpoch(wire.epoch),
        task: TaskIndex(wire.task),
        outcome,
    })
}
