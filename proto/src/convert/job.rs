//! Jobs, units and attempts in the client interface.

use muster_engine::state::{
    Attempt, Barrier, CancelRequest, Checkpoint, Job, PastAttempt, State, StopOrder, Suspension,
    TaskRun, Unit, UnitCounts, Vacancy,
};
use muster_model::command::{StopCause, StopReason};
use muster_model::health::Blame;
use muster_model::ids::{AttemptEpoch, HostId, TaskIndex, UnitIndex};
use muster_model::time::TimeMs;

use crate::convert::claim::{claim_to_wire, standing_to_wire};
use crate::convert::health::place_of;
use crate::convert::ledger::ledger_to_wire;
use crate::convert::{InvalidField, required};
use crate::v1;

/// A job without its units.
#[must_use]
pub fn job_to_wire(job: &Job) -> v1::Job {
    v1::Job {
        id: job.id.get(),
        spec: Some(job.spec.as_ref().into()),
        submitted_at_ms: job.submitted_at.0,
        phase: v1::JobPhase::from(job.phase).into(),
        finished_at_ms: job.finished_at.map(|at| at.0),
        finish_reason: job.finish_reason.clone(),
        cancel: job.cancel.as_ref().map(Into::into),
        counts: Some((&job.counts).into()),
        gpus_held: gpus_held(job),
        suspension: job.suspension.as_ref().map(Into::into),
        pipeline_id: job.pipeline.as_ref().map(|mark| mark.id.get()),
        pipeline: job
            .pipeline
            .as_ref()
            .map_or_else(String::new, |mark| mark.name.clone()),
        skipped: job.is_skipped(),
        ledger: ledger_to_wire(&job.ledger),
        kept_permille: (job.ledger.kept_permille()).and_then(|part| u32::try_from(part).ok()),
    }
}

/// Number of GPUs currently held by a job's units.
///
/// Scans the units only if one of them holds resources; such a unit holds what its tasks request.
#[must_use]
pub fn gpus_held(job: &Job) -> u64 {
    if job.counts.active() == 0 {
        return 0;
    }
    job.units
        .values()
        .filter_map(|unit| unit.attempt.as_deref())
        .flat_map(|attempt| &attempt.tasks)
        .map(|task| task.gpus.len() as u64)
        .sum()
}

/// A unit of a job with its attempts; host names are taken from `state`.
#[must_use]
pub fn unit_to_wire(state: &State, job: &Job, index: UnitIndex, unit: &Unit) -> v1::Unit {
    v1::Unit {
        index: index.get(),
        phase: v1::UnitPhase::from(unit.phase).into(),
        attempts: unit.attempts,
        failures: unit.failures,
        not_before_ms: unit.not_before.0,
        restart_reason: v1::RestartReason::from(unit.restart_reason).into(),
        attempt: unit
            .attempt
            .as_deref()
            .map(|attempt| attempt_to_wire(state, attempt)),
        past: unit
            .past
            .iter()
            .map(|past| past_to_wire(state, past))
            .collect(),
        checkpoints: unit.checkpoints.iter().map(Into::into).collect(),
        claim: unit
            .claim
            .as_deref()
            .map(|claim| claim_to_wire(state, claim)),
        local_retries: unit.local_retries,
        without_progress: unit.without_progress,
        without_progress_max: unit.without_progress_max(&job.spec, state.job_defaults),
        checkpoint_interval_ms: state.reliability.advice_ms(unit, hosts_of(unit)),
    }
}

/// Number of hosts of a unit's current attempt, or of its last one.
fn hosts_of(unit: &Unit) -> usize {
    let current = unit.attempt.as_deref().map(|attempt| attempt.hosts().len());
    let last = || unit.past.last().map(|past| past.hosts.len());
    current.or_else(last).unwrap_or(1)
}

fn attempt_to_wire(state: &State, attempt: &Attempt) -> v1::Attempt {
    v1::Attempt {
        epoch: attempt.epoch.get(),
        number: attempt.number,
        placed_at_ms: attempt.placed_at.0,
        running_at_ms: attempt.running_at.map(|at| at.0),
        stop: attempt.stop.as_ref().map(|stop| stop_to_wire(state, stop)),
        tasks: attempt
            .tasks
            .iter()
            .map(|task| {
                let joined = attempt.joined(task.task);
                let epoch = joined.map(|joined| joined.epoch.get());
                v1::TaskRun {
                    epoch,
                    ..task_to_wire(state, task)
                }
            })
            .collect(),
        standing: Some(standing_to_wire(state, &attempt.standing)),
        barrier: attempt.barrier.map(Into::into),
        vacancy: attempt
            .vacancy()
            .map(|vacancy| vacancy_to_wire(state, vacancy)),
    }
}

/// A stop order, with its host by name.
fn stop_to_wire(state: &State, stop: &StopOrder) -> v1::StopOrder {
    let mut wire = v1::StopOrder::from(stop);
    let host = match stop.reason {
        StopReason::Drain { host } | StopReason::HostFault { host } => state.host(host),
        _ => None,
    };
    if let (Some(reason), Some(host)) = (&mut wire.reason, host) {
        reason.host = host.name.to_string();
    }
    wire
}

fn vacancy_to_wire(state: &State, vacancy: &Vacancy) -> v1::Vacancy {
    v1::Vacancy {
        run: Some(v1::TaskRun {
            epoch: Some(vacancy.epoch.get()),
            ..task_to_wire(state, &vacancy.run)
        }),
        since_ms: vacancy.since.0,
        not_before_ms: vacancy.not_before.0,
        reason: v1::RestartReason::from(vacancy.reason).into(),
        charged: vacancy.charged,
        detail: vacancy.detail.clone(),
    }
}

fn task_to_wire(state: &State, task: &TaskRun) -> v1::TaskRun {
    v1::TaskRun {
        task: task.task.get(),
        host_id: task.host.get(),
        host: host_name(state, task.host),
        gpus: task.gpus.iter().map(ToString::to_string).collect(),
        phase: v1::TaskPhase::from(task.phase).into(),
        exit: task.exit.as_ref().map(Into::into),
        epoch: None,
    }
}

fn past_to_wire(state: &State, past: &PastAttempt) -> v1::PastAttempt {
    v1::PastAttempt {
        epoch: past.epoch.get(),
        number: past.number,
        placed_at_ms: past.placed_at.0,
        running_at_ms: past.running_at.map(|at| at.0),
        ended_at_ms: past.ended_at.0,
        detail: past.detail.clone(),
        exit: past.exit.as_ref().map(Into::into),
        host_ids: past.hosts.iter().map(|host| host.get()).collect(),
        hosts: past
            .hosts
            .iter()
            .map(|host| host_name(state, *host))
            .collect(),
        culprit_id: past.culprit.map(HostId::get),
        members: late_members(past),
        blame: past
            .blame
            .as_deref()
            .map(|blame| blame_to_wire(state, blame)),
        gpu_sets: Vec::new(),
    }
}

fn blame_to_wire(state: &State, blame: &Blame) -> v1::Blame {
    let component = blame.component.as_ref();
    v1::Blame {
        host: component.map_or_else(String::new, |it| place_of(state, it).0),
        ..blame.into()
    }
}

/// Replacement members of an attempt.
pub(crate) fn late_members(past: &PastAttempt) -> Vec<v1::LateMember> {
    let members = past.members.iter();
    let to_wire = |(task, epoch): &(TaskIndex, AttemptEpoch)| v1::LateMember {
        task: task.get(),
        epoch: epoch.get(),
    };
    members.map(to_wire).collect()
}

/// Name of a host; empty if it is gone.
pub(super) fn host_name(state: &State, host: HostId) -> String {
    state
        .host(host)
        .map_or_else(String::new, |host| host.name.to_string())
}

impl From<&CancelRequest> for v1::CancelRequest {
    fn from(cancel: &CancelRequest) -> Self {
        Self {
            author: cancel.author.clone(),
            reason: cancel.reason.clone(),
            at_ms: cancel.at.0,
        }
    }
}

impl From<v1::CancelRequest> for CancelRequest {
    fn from(wire: v1::CancelRequest) -> Self {
        Self {
            author: wire.author,
            reason: wire.reason,
            at: TimeMs(wire.at_ms),
        }
    }
}

impl From<&Suspension> for v1::Suspension {
    fn from(suspension: &Suspension) -> Self {
        Self {
            author: suspension.author.clone(),
            reason: suspension.reason.clone(),
            at_ms: suspension.at.0,
        }
    }
}

impl From<v1::Suspension> for Suspension {
    fn from(wire: v1::Suspension) -> Self {
        Self {
            author: wire.author,
            reason: wire.reason,
            at: TimeMs(wire.at_ms),
        }
    }
}

impl From<&UnitCounts> for v1::UnitCounts {
    fn from(counts: &UnitCounts) -> Self {
        Self {
            waiting: counts.waiting,
            placed: counts.placed,
            running: counts.running,
            stopping: counts.stopping,
            succeeded: counts.succeeded,
            failed: counts.failed,
            cancelled: counts.cancelled,
        }
    }
}

impl From<v1::UnitCounts> for UnitCounts {
    fn from(wire: v1::UnitCounts) -> Self {
        Self {
            waiting: wire.waiting,
            placed: wire.placed,
            running: wire.running,
            stopping: wire.stopping,
            succeeded: wire.succeeded,
            failed: wire.failed,
            cancelled: wire.cancelled,
        }
    }
}

impl From<Barrier> for v1::Barrier {
    fn from(barrier: Barrier) -> Self {
        Self {
            master_port: barrier.master_port.map(u32::from),
            released_at_ms: barrier.released_at.map(|at| at.0),
        }
    }
}

impl TryFrom<v1::Barrier> for Barrier {
    type Error = InvalidField;

    fn try_from(wire: v1::Barrier) -> Result<Self, InvalidField> {
        Ok(Self {
            master_port: port("master_port", wire.master_port)?,
            released_at: wire.released_at_ms.map(TimeMs),
        })
    }
}

/// Port number, if present.
pub(crate) fn port(field: &str, number: Option<u32>) -> Result<Option<u16>, InvalidField> {
    let port = number.map(u16::try_from).transpose();
    port.map_err(|_| InvalidField::new(field, "must be at most 65535"))
}

impl From<&StopOrder> for v1::StopOrder {
    fn from(stop: &StopOrder) -> Self {
        Self {
            reason: Some((&stop.cause()).into()),
            at_ms: stop.at.0,
            grace_ms: stop.grace_ms,
        }
    }
}

impl TryFrom<v1::StopOrder> for StopOrder {
    type Error = InvalidField;

    fn try_from(wire: v1::StopOrder) -> Result<Self, InvalidField> {
        let cause: StopCause = required("reason", wire.reason)?.try_into()?;
        Ok(Self::new(cause, TimeMs(wire.at_ms), wire.grace_ms))
    }
}

impl From<&Checkpoint> for v1::Checkpoint {
    fn from(checkpoint: &Checkpoint) -> Self {
        Self {
            epoch: checkpoint.epoch.get(),
            step: checkpoint.step,
            path: checkpoint.path.clone(),
            size_bytes: checkpoint.size_bytes,
            digest: checkpoint.digest.clone(),
            committed_at_ms: checkpoint.committed_at.0,
            save_ms: checkpoint.save_ms,
            spoiled: checkpoint.spoiled.clone(),
            spoiled_by: checkpoint.spoiled_by.map_or(0, AttemptEpoch::get),
        }
    }
}

impl From<v1::Checkpoint> for Checkpoint {
    fn from(wire: v1::Checkpoint) -> Self {
        Self {
            epoch: AttemptEpoch(wire.epoch),
            step: wire.step,
            path: wire.path,
            size_bytes: wire.size_bytes,
            digest: wire.digest,
            committed_at: TimeMs(wire.committed_at_ms),
            save_ms: wire.save_ms,
            spoiled: wire.spoiled,
            spoiled_by: (wire.spoiled_by > 0).then_some(AttemptEpoch(wire.spoiled_by)),
        }
    }
}
