//! Jobs, units and attempts.

use muster_engine::state::{Attempt, Job, PastAttempt, State, TaskRun, Unit, Vacancy};
use muster_model::command::StopReason;
use muster_model::health::Attribution;
use muster_model::ids::{HostId, UnitIndex};
use muster_model::job::StopOrder;
use muster_proto::convert::ledger_to_wire;
use muster_proto::v1;

use crate::view::claim::{basis_to_wire, claim_to_wire};
use crate::view::health::place_of;
use crate::view::host_name;

/// A job without its units.
pub(crate) fn job_to_wire(job: &Job) -> v1::Job {
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
fn gpus_held(job: &Job) -> u64 {
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
pub(crate) fn unit_to_wire(state: &State, job: &Job, index: UnitIndex, unit: &Unit) -> v1::Unit {
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
        allocation_basis: Some(basis_to_wire(state, &attempt.allocation_basis)),
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
        members: past
            .members
            .iter()
            .map(|(task, epoch)| v1::LateMember {
                task: task.get(),
                epoch: epoch.get(),
            })
            .collect(),
        attribution: past
            .attribution
            .as_deref()
            .map(|attribution| attribution_to_wire(state, attribution)),
        gpu_sets: Vec::new(),
    }
}

fn attribution_to_wire(state: &State, attribution: &Attribution) -> v1::Attribution {
    let component = attribution.component.as_ref();
    v1::Attribution {
        host: component.map_or_else(String::new, |it| place_of(state, it).0),
        ..attribution.into()
    }
}
