//! Jobs, units and attempts.

use std::sync::Arc;

use bytes::Bytes;
use imbl::{OrdMap, OrdSet};
use muster_engine::state::{
    Attempt, Claim, Job, PastAttempt, Pause, PipelineMark, Purpose, TaskRun, Unit,
};
use muster_model::command::TaskPlacement;
use muster_model::ids::{
    AttemptEpoch, HostId, JobId, LeadershipEpoch, PipelineId, Revision, TaskIndex, UnitId,
    UnitIndex,
};
use muster_model::job::{Barrier, StopOrder};
use muster_model::spec::JobSpec;
use muster_model::time::TimeMs;
use muster_proto::convert::{ledger_from_wire, ledger_to_wire};
use muster_proto::field::packed::{pack_gpus, unpack_gpus};
use muster_proto::field::{InvalidField, Twin, enumeration, required};

use crate::error::Field;
use crate::v1::unit_claim::Purpose as LoggedPurpose;
use crate::{claim, members, v1};

/// A job without its units.
pub(super) fn to_wire(job: &Job) -> v1::Job {
    v1::Job {
        id: job.id.get(),
        spec: Some(job.spec.as_ref().into()),
        submitted_at_ms: job.submitted_at.0,
        phase: muster_proto::v1::JobPhase::from(job.phase).into(),
        finished_at_ms: job.finished_at.map(|at| at.0),
        finish_reason: job.finish_reason.clone(),
        cancel: job.cancel.as_ref().map(Into::into),
        first_untouched: job.first_untouched.get(),
        counts: Some((&job.counts).into()),
        suspension: job.suspension.as_ref().map(Into::into),
        pipeline: job.pipeline.as_ref().map(|mark| mark.id.get()),
        pipeline_name: job
            .pipeline
            .as_ref()
            .map_or_else(String::new, |mark| mark.name.clone()),
        ledger: ledger_to_wire(&job.ledger),
    }
}

/// A job without its units.
pub(super) fn from_wire(wire: v1::Job) -> Field<Job> {
    let name = wire.pipeline_name;
    let pipeline = wire.pipeline.map(|id| PipelineMark {
        id: PipelineId(id),
        name,
    });
    Ok(Job {
        id: JobId(wire.id),
        spec: Arc::new(spec_from_wire(required("job.spec", wire.spec)?)?),
        pipeline: pipeline.map(Arc::new),
        submitted_at: TimeMs(wire.submitted_at_ms),
        phase: enumeration::<muster_proto::v1::JobPhase, _>("job.phase", wire.phase)?,
        finished_at: wire.finished_at_ms.map(TimeMs),
        finish_reason: wire.finish_reason,
        cancel: wire.cancel.map(Into::into),
        suspension: wire.suspension.map(Into::into),
        units: OrdMap::new(),
        first_untouched: UnitIndex(wire.first_untouched),
        requeued: OrdSet::new(),
        counts: required("job.counts", wire.counts)?.into(),
        ledger: ledger_from_wire(wire.ledger),
    })
}

fn spec_from_wire(wire: muster_proto::v1::JobSpec) -> Field<JobSpec> {
    JobSpec::try_from(wire).map_err(|invalid| invalid.within("job.spec"))
}

/// A unit without the tasks of its attempt or its claim.
pub(super) fn unit_to_wire(index: UnitIndex, unit: &Unit, requeued: bool) -> v1::Unit {
    v1::Unit {
        index: index.get(),
        phase: muster_proto::v1::UnitPhase::from(unit.phase).into(),
        attempts: unit.attempts,
        failures: unit.failures,
        not_before_ms: unit.not_before.0,
        restart_reason: muster_proto::v1::RestartReason::from(unit.restart_reason).into(),
        attempt: unit.attempt.as_deref().map(attempt_to_wire),
        past: unit.past.iter().map(past_to_wire).collect(),
        checkpoints: unit.checkpoints.iter().map(Into::into).collect(),
        requeued,
        claim: unit.claim.as_deref().map(claim_to_wire),
        moved_at_ms: unit.moved_at.map(|at| at.0),
        local_retries: unit.local_retries,
        without_progress: unit.without_progress,
        removals: unit.removals.iter().map(Into::into).collect(),
        swaps: unit.swaps,
    }
}

/// Some tasks of an attempt.
pub(super) fn tasks_to_wire(tasks: &[TaskRun]) -> v1::TaskRuns {
    v1::TaskRuns {
        tasks: tasks.iter().map(run_to_wire).collect(),
    }
}

/// One task of an attempt.
pub(crate) fn run_to_wire(run: &TaskRun) -> v1::TaskRun {
    v1::TaskRun {
        task: run.task.get(),
        host: run.host.get(),
        gpus: pack_gpus(&run.gpus),
        phase: muster_proto::v1::TaskPhase::from(run.phase).into(),
        exit: run.exit.as_ref().map(Into::into),
    }
}

/// One task of an attempt.
pub(crate) fn run_from_wire(wire: v1::TaskRun) -> Field<TaskRun> {
    Ok(TaskRun {
        task: TaskIndex(wire.task),
        host: HostId(wire.host),
        gpus: unpack_gpus("tasks.gpus", &wire.gpus)?,
        phase: enumeration::<muster_proto::v1::TaskPhase, _>("tasks.phase", wire.phase)?,
        exit: wire.exit.map(Into::into),
    })
}

/// A unit whose tasks are still being read.
pub(super) struct OpenUnit {
    index: UnitIndex,
    requeued: bool,
    unit: Unit,
    attempt: Option<Attempt>,
    claim: Option<OpenClaim>,
}

/// A claim whose tasks are still being read.
struct OpenClaim {
    claim: Claim,
    tasks: Vec<TaskPlacement>,
}

impl OpenUnit {
    pub(super) fn begin(wire: v1::Unit) -> Field<Self> {
        let unit = Unit {
            phase: enumeration::<muster_proto::v1::UnitPhase, _>("unit.phase", wire.phase)?,
            attempts: wire.attempts,
            failures: wire.failures,
            not_before: TimeMs(wire.not_before_ms),
            restart_reason: enumeration::<muster_proto::v1::RestartReason, _>(
                "unit.restart_reason",
                wire.restart_reason,
            )?,
            attempt: None,
            claim: None,
            past: wire
                .past
                .into_iter()
                .map(past_from_wire)
                .collect::<Result<_, _>>()?,
            checkpoints: wire.checkpoints.into_iter().map(Into::into).collect(),
            moved_at: wire.moved_at_ms.map(TimeMs),
            local_retries: wire.local_retries,
            without_progress: wire.without_progress,
            removals: wire.removals.into_iter().map(Into::into).collect(),
            swaps: wire.swaps,
        };
        Ok(Self {
            index: UnitIndex(wire.index),
            requeued: wire.requeued,
            unit,
            attempt: wire.attempt.map(attempt_from_wire).transpose()?,
            claim: wire.claim.map(claim_from_wire).transpose()?,
        })
    }

    pub(super) fn add_tasks(&mut self, wire: v1::TaskRuns) -> Field<()> {
        let attempt = self
            .attempt
            .as_mut()
            .ok_or_else(|| InvalidField::new("tasks", "must follow a unit with an attempt"))?;
        for task in wire.tasks {
            attempt.tasks.push(run_from_wire(task)?);
        }
        Ok(())
    }

    pub(super) fn add_claimed_tasks(&mut self, wire: v1::ClaimedTasks) -> Field<()> {
        let open = self
            .claim
            .as_mut()
            .ok_or_else(|| InvalidField::new("claimed_tasks", "must follow a unit with a claim"))?;
        open.tasks.extend(claim::tasks_from_wire(wire.tasks)?);
        Ok(())
    }

    /// Returns the unit with its tasks, and whether it is requeued.
    pub(super) fn close(self) -> (UnitIndex, Unit, bool) {
        let unit = Unit {
            attempt: self.attempt.map(Arc::new),
            claim: self.claim.map(|open| {
                Arc::new(Claim {
                    tasks: open.tasks.into(),
                    ..open.claim
                })
            }),
            ..self.unit
        };
        (self.index, unit, self.requeued)
    }
}

fn attempt_to_wire(attempt: &Attempt) -> v1::Attempt {
    v1::Attempt {
        epoch: attempt.epoch.get(),
        leader: attempt.leader.get(),
        number: attempt.number,
        placed_at_ms: attempt.placed_at.0,
        running_at_ms: attempt.running_at.map(|at| at.0),
        stop: attempt.stop.as_ref().map(Into::into),
        decisive: attempt.decisive.map(TaskIndex::get),
        allocation_basis: claim::basis_to_wire(&attempt.allocation_basis),
        barrier: attempt.barrier.map(Into::into),
        membership: attempt.membership.as_deref().map(members::to_wire),
        pauses: pauses_to_wire(&attempt.pauses),
    }
}

fn attempt_from_wire(wire: v1::Attempt) -> Field<Attempt> {
    Ok(Attempt {
        epoch: AttemptEpoch(wire.epoch),
        leader: LeadershipEpoch(wire.leader),
        number: wire.number,
        placed_at: TimeMs(wire.placed_at_ms),
        running_at: wire.running_at_ms.map(TimeMs),
        stop: wire.stop.map(StopOrder::try_from).transpose()?,
        tasks: Vec::new(),
        decisive: wire.decisive.map(TaskIndex),
        barrier: wire.barrier.map(Barrier::try_from).transpose()?,
        membership: wire
            .membership
            .map(members::from_wire)
            .transpose()?
            .map(Box::new),
        pauses: pauses_from_wire(&wire.pauses),
        allocation_basis: claim::basis_from_wire(wire.allocation_basis)?,
    })
}

fn pauses_to_wire(pauses: &[Pause]) -> Vec<v1::Pause> {
    let wire = |pause: &Pause| v1::Pause {
        from_ms: pause.from.0,
        until_ms: pause.until.0,
    };
    pauses.iter().map(wire).collect()
}

fn pauses_from_wire(wire: &[v1::Pause]) -> Vec<Pause> {
    let pause = |wire: &v1::Pause| Pause {
        from: TimeMs(wire.from_ms),
        until: TimeMs(wire.until_ms),
    };
    wire.iter().map(pause).collect()
}

fn claim_to_wire(claim: &Claim) -> v1::UnitClaim {
    let victims = claim.victims.iter();
    v1::UnitClaim {
        revision: claim.revision.get(),
        since_ms: claim.since.0,
        allocation_basis: Some((&claim.allocation_basis).into()),
        victims: victims.map(|victim| (*victim).into()).collect(),
        expected_at_ms: claim.expected_at.map(|at| at.0),
        purpose: purpose_to_wire(&claim.purpose),
    }
}

fn purpose_to_wire(purpose: &Purpose) -> Option<LoggedPurpose> {
    match purpose {
        Purpose::Ordinary => None,
        Purpose::Gathered {
            moved,
            cost_gpu_ms,
            gain_gpu_ms,
        } => Some(LoggedPurpose::Gathered(muster_proto::v1::Gathered {
            moved: moved.iter().map(|one| (*one).into()).collect(),
            cost_gpu_ms: *cost_gpu_ms,
            gain_gpu_ms: *gain_gpu_ms,
        })),
        Purpose::Destination { job, unit } => {
            Some(LoggedPurpose::Destination(UnitId::new(*job, *unit).into()))
        }
    }
}

fn purpose_from_wire(wire: Option<LoggedPurpose>) -> Purpose {
    match wire {
        None => Purpose::Ordinary,
        Some(LoggedPurpose::Gathered(gathered)) => Purpose::Gathered {
            moved: gathered.moved.into_iter().map(Into::into).collect(),
            cost_gpu_ms: gathered.cost_gpu_ms,
            gain_gpu_ms: gathered.gain_gpu_ms,
        },
        Some(LoggedPurpose::Destination(unit)) => {
            let UnitId { job, unit } = unit.into();
            Purpose::Destination { job, unit }
        }
    }
}

fn claim_from_wire(wire: v1::UnitClaim) -> Field<OpenClaim> {
    let claim = Claim {
        revision: Revision(wire.revision),
        since: TimeMs(wire.since_ms),
        tasks: Arc::default(),
        allocation_basis: claim::basis_from_wire(wire.allocation_basis)?,
        victims: wire.victims.into_iter().map(Into::into).collect(),
        expected_at: wire.expected_at_ms.map(TimeMs),
        purpose: purpose_from_wire(wire.purpose),
    };
    Ok(OpenClaim {
        claim,
        tasks: Vec::new(),
    })
}

fn past_to_wire(past: &PastAttempt) -> muster_proto::v1::PastAttempt {
    muster_proto::v1::PastAttempt {
        epoch: past.epoch.get(),
        number: past.number,
        placed_at_ms: past.placed_at.0,
        running_at_ms: past.running_at.map(|at| at.0),
        ended_at_ms: past.ended_at.0,
        detail: past.detail.clone(),
        exit: past.exit.as_ref().map(Into::into),
        host_ids: past.hosts.iter().map(|host| host.get()).collect(),
        hosts: Vec::new(),
        culprit_id: past.culprit.map(HostId::get),
        members: past
            .members
            .iter()
            .map(|(task, epoch)| muster_proto::v1::LateMember {
                task: task.get(),
                epoch: epoch.get(),
            })
            .collect(),
        attribution: past.attribution.to_wire(),
        gpu_sets: past
            .gpus
            .iter()
            .map(|set| Bytes::copy_from_slice(&set.to_le_bytes()))
            .collect(),
    }
}

fn past_from_wire(wire: muster_proto::v1::PastAttempt) -> Result<PastAttempt, InvalidField> {
    Ok(PastAttempt {
        epoch: AttemptEpoch(wire.epoch),
        number: wire.number,
        placed_at: TimeMs(wire.placed_at_ms),
        running_at: wire.running_at_ms.map(TimeMs),
        ended_at: TimeMs(wire.ended_at_ms),
        detail: wire.detail,
        exit: wire.exit.map(Into::into),
        hosts: wire.host_ids.into_iter().map(HostId).collect(),
        culprit: wire.culprit_id.map(HostId),
        members: wire
            .members
            .into_iter()
            .map(|member| (TaskIndex(member.task), AttemptEpoch(member.epoch)))
            .collect(),
        attribution: Twin::from_wire("attribution", wire.attribution)?,
        gpus: wire
            .gpu_sets
            .iter()
            .map(gpu_set)
            .collect::<Result<_, _>>()?,
    })
}

/// Set of GPUs, one bit for each GPU of a host.
fn gpu_set(wire: &Bytes) -> Result<u128, InvalidField> {
    let bytes = <[u8; size_of::<u128>()]>::try_from(&**wire);
    let bytes = bytes.map_err(|_| {
        let rule = format!("must have {} bytes, not {}", size_of::<u128>(), wire.len());
        InvalidField::new("gpu_sets", rule)
    })?;
    Ok(u128::from_le_bytes(bytes))
}
