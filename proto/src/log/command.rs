//! Commands: one version byte, then a `muster.log.v1.Command`.

use muster_model::command::{
    CheckpointCommand, CheckpointCommit, Command, ConfigCommand, HostCommand, Placement, Standing,
    StopReason, TaskOutcome, TaskReport,
};
use muster_model::ids::{AttemptEpoch, JobId, LeadershipEpoch, TaskIndex, UnitIndex};
use muster_model::spec::{Execution, JobSpec, Layout, Lifecycle, Scheduling};
use prost::Message;

use crate::convert::{port, required, twin_variants};
use crate::log::error::{Field, LogError};
use crate::log::v1::command::Kind;
use crate::log::v1::report_task::{Gone, Outcome, Plain, Prepared};
use crate::log::{access, claim, defaults, health, members, pipeline, replicas, v1};

/// Newest format version: this build reads it and older ones. A command is written in the oldest version
/// whose readers understand all of it, so that replicas of two builds work together until something new is
/// used.
pub const COMMAND_FORMAT: u8 = 4;
/// The version before jobs had lifecycles.
const LEARNT_CELLS: u8 = 3;
/// The version before queues had guarantees.
const FLAT_QUEUES: u8 = 1;
/// The version before workers reported the topology of their hosts.
const CONFIGURED_CELLS: u8 = 2;

/// Appends a command's versioned bytes to `out`.
pub fn encode_command(command: &Command, out: &mut Vec<u8>) {
    let wire = v1::Command {
        kind: Some(to_wire(command)),
    };
    out.reserve(1 + wire.encoded_len());
    out.push(format_of(command));
    wire.encode_raw(out);
}

/// The oldest version whose readers understand all of a command: the level that a cluster needs before it
/// may be proposed.
#[must_use]
pub fn format_of(command: &Command) -> u8 {
    if tells_of_lives(command) {
        return COMMAND_FORMAT;
    }
    let has_queues = match command {
        Command::Host(HostCommand::RegisterHost { registration, .. })
            if !registration.learnt.is_empty() =>
        {
            return LEARNT_CELLS;
        }
        Command::SubmitJob { spec, .. } => asks_for_layout(spec),
        Command::Place(placement) => placement.standing != Standing::Share,
        Command::StopAttempt { reason, .. } => matches!(
            reason,
            StopReason::RunTime | StopReason::Assembly | StopReason::Moved
        ),
        Command::Config(ConfigCommand::ConfigureQueues { .. })
        | Command::Config(ConfigCommand::SetTopology { .. })
        | Command::Claim(_)
        | Command::DropClaim { .. }
        | Command::SetStanding { .. } => true,
        _ => false,
    };
    if has_queues {
        CONFIGURED_CELLS
    } else {
        FLAT_QUEUES
    }
}

/// Whether a command has content that readers of version 3 would ignore.
fn tells_of_lives(command: &Command) -> bool {
    match command {
        Command::SubmitJob { spec, .. } => says_how_it_lives(spec),
        Command::ReportTask(report) => match &report.outcome {
            TaskOutcome::Exited(exit) => exit.has_details(),
            TaskOutcome::Prepared { .. } => true,
            _ => false,
        },
        Command::Place(placement) => placement.barrier,
        Command::ReleaseGang { .. }
        | Command::SwapMember(_)
        | Command::Health(_)
        | Command::Access(_)
        | Command::SuspendJob { .. }
        | Command::ResumeJob { .. } => true,
        Command::StopAttempt { reason, .. } => {
            matches!(
                reason,
                StopReason::Suspended | StopReason::NotSwapped | StopReason::HostFault { .. }
            )
        }
        Command::Checkpoint(CheckpointCommand::CommitCheckpoint { checkpoint, .. }) => {
            checkpoint.save_ms.is_some()
        }
        Command::Host(HostCommand::SetHostHealth { one_way, .. }) => *one_way,
        Command::Block {
            block, spares_last, ..
        } => *spares_last || block.planned.is_some(),
        Command::Unblock { planned, .. } => *planned,
        Command::Checkpoint(CheckpointCommand::SpoilCheckpoint { .. })
        | Command::Config(ConfigCommand::SetJobDefaults { .. })
        | Command::RecordReplicas { .. }
        | Command::SubmitPipeline { .. } => true,
        _ => false,
    }
}

/// Whether a specification has content that readers of version 3 would ignore.
pub(super) fn says_how_it_lives(spec: &JobSpec) -> bool {
    spec.lifecycle != Lifecycle::default() || { spec.groups.iter() }
        .any(|group| group.execution != Execution::default())
}

/// Whether a specification has content that readers of version 1 would ignore.
pub(super) fn asks_for_layout(spec: &JobSpec) -> bool {
    spec.scheduling != Scheduling::default()
        || spec
            .groups
            .iter()
            .any(|group| group.layout != Layout::default())
}

/// Reads a command.
///
/// # Errors
/// [`LogError::NewerVersion`] if a newer build wrote it, [`LogError::Malformed`] if it is damaged or of a
/// kind unknown to this build.
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

twin_variants! {
    to_wire, from_wire: Command <=> Kind in v1 {
        LeaderBegan { replica: replica },
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
        SetStanding { leader: leader, job: job, unit: unit, epoch: epoch, standing: standing },
    }
    within Host(HostCommand) {
        RegisterHost { leader: leader, registration: registration },
        SetHostHealth { leader: leader, host: host, health: health, one_way: one_way },
        SetGpuHealth { leader: leader, host: host, gpu: gpu, health: health },
    }
    within Checkpoint(CheckpointCommand) {
        SpoilCheckpoint {
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
        standing: claim::standing_to_wire(&placement.standing),
        barrier: placement.barrier,
    }
}

fn placement_from_wire(wire: v1::Place) -> Field<Placement> {
    Ok(Placement {
        leader: LeadershipEpoch(wire.leader),
        job: JobId(wire.job),
        unit: UnitIndex(wire.unit),
        tasks: claim::tasks_from_wire(wire.tasks)?.into(),
        standing: claim::standing_from_wire(wire.standing)?,
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
