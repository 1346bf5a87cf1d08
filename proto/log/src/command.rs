//! Commands: one version byte, then a `muster.log.v1.Command`.

use muster_model::command::{
    CheckpointCommand, CheckpointCommit, Command, ConfigCommand, HostCommand, Placement,
    TaskOutcome, TaskReport,
};
use muster_model::ids::{AttemptEpoch, JobId, LeadershipEpoch, RequestKey, TaskIndex, UnitIndex};
use muster_proto::field::packed::{pack_request, unpack_request};
use muster_proto::field::{MessageTwin, port, required, twin_variants};
use prost::Message;

use crate::error::{Field, LogError, check_version};
use crate::v1::command::Kind;
use crate::v1::report_task::{Gone, Outcome, Plain, Prepared};
use crate::{access, claim, defaults, health, members, pipeline, replicas, v1};

/// The newest command format that this build reads. Content that readers of this format would miss or
/// misunderstand takes the next number.
pub const COMMAND_FORMAT: u8 = 5;
/// The oldest command format that this build reads: the first one, as 1 to 4 were never released.
pub const OLDEST_COMMAND_FORMAT: u8 = 5;

/// Appends a command's versioned bytes to `out`.
pub fn encode_command(command: &Command, out: &mut Vec<u8>) {
    let wire = v1::Command {
        kind: Some(to_wire(command)),
    };
    out.reserve(1 + wire.encoded_len());
    out.push(format_of(command));
    wire.encode_raw(out);
}

/// The oldest format whose readers understand all of a command: the level that a cluster needs before the
/// command may be proposed. Replicas of two builds work together until something new is used.
#[must_use]
pub const fn format_of(_: &Command) -> u8 {
    OLDEST_COMMAND_FORMAT
}

/// Reads a command.
///
/// # Errors
/// [`LogError::NewerVersion`] or [`LogError::OlderVersion`] if this build does not read its format,
/// [`LogError::Malformed`] if it is damaged or of a kind unknown to this build.
pub fn decode_command(bytes: &[u8]) -> Result<Command, LogError> {
    let (&version, body) = bytes
        .split_first()
        .ok_or_else(|| LogError::command("it is empty"))?;
    check_version(
        "command",
        version.into(),
        OLDEST_COMMAND_FORMAT.into()..=COMMAND_FORMAT.into(),
    )?;
    let wire = v1::Command::decode(body).map_err(LogError::command)?;
    let kind = wire
        .kind
        .ok_or_else(|| LogError::command("it is of a kind that this build does not know"))?;
    from_wire(kind).map_err(LogError::command)
}

twin_variants! {
    to_wire, from_wire: Command <=> Kind in v1 {
        LeadershipStarted { replica: replica },
        SubmitJob { request: request, spec: spec },
        CancelJob { request: request, job: job, author: author, reason: reason },
        SuspendJob { request: request, job: job, author: author, reason: reason },
        ResumeJob { request: request, job: job, author: author, reason: reason },
        StopAttempt { leader: leader, job: job, unit: unit, epoch: epoch, reason: reason },
        Block { request: request, target: target, block: block, spares_last: spares_last },
        Unblock { request: request, target: target, author: author, planned: planned },
        ExpireBlocks { leader: leader },
        Prune { leader: leader },
        ReleaseGang { leader: leader, job: job, unit: unit, epoch: epoch },
        DropClaim { leader: leader, job: job, unit: unit, reason: reason },
        SetAllocationBasis { leader: leader, job: job, unit: unit, epoch: epoch, allocation_basis: allocation_basis },
    }
    within Host(HostCommand) {
        RegisterHost { leader: leader, registration: registration },
        SetHostHealth { leader: leader, host: host, health: health, one_way: one_way },
        SetGpuHealth { leader: leader, host: host, gpu: gpu, health: health },
    }
    within Checkpoint(CheckpointCommand) {
        MarkCheckpointDamaged {
            leader: leader, job: job, unit: unit, reporter: reporter, epoch: epoch, step: step, reason: reason,
        },
    }
    within Config(ConfigCommand) {
        SetQueue { request: request, name: name, live_jobs_max: live_jobs_max },
        ConfigureQueues { request: request, author: author, tree: tree },
        SetTopology { request: request, author: author, topology: topology },
    }
    also {
        Command::SubmitPipeline { request, pipeline } =>
            Kind::SubmitPipeline(pipeline::to_wire(*request, pipeline)),
        Kind::SubmitPipeline(wire) => pipeline::from_wire(wire)?;
        Command::Place(placement) => Kind::Place(placement_to_wire(placement)),
        Kind::Place(wire) => Command::Place(placement_from_wire(wire)?);
        Command::SwapMember(swap) => Kind::SwapMember(members::swap_to_wire(swap)),
        Kind::SwapMember(wire) => Command::SwapMember(members::swap_from_wire(wire)?);
        Command::Claim(claiming) => Kind::Claim(claim::to_wire(claiming)),
        Kind::Claim(wire) => Command::Claim(claim::from_wire(wire)?);
        Command::ReportTask(report) => Kind::ReportTask(report_to_wire(report)),
        Kind::ReportTask(wire) => Command::ReportTask(report_from_wire(wire)?);
        Command::Checkpoint(CheckpointCommand::CommitCheckpoint { leader, job, unit, checkpoint }) =>
            Kind::CommitCheckpoint(checkpoint_to_wire(*leader, *job, *unit, checkpoint)),
        Kind::CommitCheckpoint(wire) => checkpoint_from_wire(wire);
        Command::Access(command) => Kind::Access(access::to_wire(command)),
        Kind::Access(wire) => Command::Access(access::from_wire(wire)?);
        Command::Health(command) => Kind::Health(health::to_wire(command)),
        Kind::Health(wire) => Command::Health(health::from_wire(wire)?);
        Command::RecordReplicas { leader, replicas } => Kind::RecordReplicas(v1::RecordReplicas {
            leader: leader.get(),
            replicas: replicas::to_wire(replicas),
        }),
        Kind::RecordReplicas(wire) => Command::RecordReplicas {
            leader: LeadershipEpoch(wire.leader),
            replicas: replicas::from_wire(wire.replicas),
        };
        Command::Config(ConfigCommand::SetJobDefaults { leader, defaults }) =>
            Kind::SetJobDefaults(v1::SetJobDefaults {
                leader: leader.get(),
                defaults: Some(defaults::to_wire(*defaults)),
            }),
        Kind::SetJobDefaults(wire) => Command::Config(ConfigCommand::SetJobDefaults {
            leader: LeadershipEpoch(wire.leader),
            defaults: defaults::from_wire(required("set_job_defaults.defaults", wire.defaults)?),
        });
    }
}

impl MessageTwin<v1::RequestKey> for RequestKey {
    fn to_message(&self) -> v1::RequestKey {
        v1::RequestKey {
            id: pack_request(self.id),
            fingerprint: self.fingerprint,
        }
    }

    fn from_message(wire: v1::RequestKey) -> Field<Self> {
        Ok(Self {
            id: unpack_request("id", &wire.id)?,
            fingerprint: wire.fingerprint,
        })
    }
}

fn checkpoint_to_wire(
    leader: LeadershipEpoch,
    job: JobId,
    unit: UnitIndex,
    checkpoint: &CheckpointCommit,
) -> v1::CommitCheckpoint {
    v1::CommitCheckpoint {
        leader: leader.get(),
        job: job.get(),
        unit: unit.get(),
        epoch: checkpoint.epoch.get(),
        step: checkpoint.step,
        path: checkpoint.path.clone(),
        size_bytes: checkpoint.size_bytes,
        digest: checkpoint.digest.clone(),
        save_ms: checkpoint.save_ms,
    }
}

fn checkpoint_from_wire(wire: v1::CommitCheckpoint) -> Command {
    Command::Checkpoint(CheckpointCommand::CommitCheckpoint {
        leader: LeadershipEpoch(wire.leader),
        job: JobId(wire.job),
        unit: UnitIndex(wire.unit),
        checkpoint: CheckpointCommit {
            epoch: AttemptEpoch(wire.epoch),
            step: wire.step,
            path: wire.path,
            size_bytes: wire.size_bytes,
            digest: wire.digest,
            save_ms: wire.save_ms,
        },
    })
}

fn placement_to_wire(placement: &Placement) -> v1::Place {
    v1::Place {
        leader: placement.leader.get(),
        job: placement.job.get(),
        unit: placement.unit.get(),
        tasks: claim::tasks_to_wire(&placement.tasks),
        allocation_basis: claim::basis_to_wire(&placement.basis),
        barrier: placement.barrier,
    }
}

fn placement_from_wire(wire: v1::Place) -> Field<Placement> {
    Ok(Placement {
        leader: LeadershipEpoch(wire.leader),
        job: JobId(wire.job),
        unit: UnitIndex(wire.unit),
        tasks: claim::tasks_from_wire(wire.tasks)?.into(),
        basis: claim::basis_from_wire(wire.allocation_basis)?,
        barrier: wire.barrier,
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
        TaskOutcome::Prepared { master_port } => Outcome::Prepared(Prepared {
            master_port: master_port.map(u32::from),
        }),
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
        Outcome::Prepared(prepared) => TaskOutcome::Prepared {
            master_port: port("report_task.prepared.master_port", prepared.master_port)?,
        },
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
