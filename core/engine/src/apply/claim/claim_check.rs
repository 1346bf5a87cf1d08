//! Validation of claims: everything claimed is free, held by victims the unit may preempt, superseded by
//! right, or held by units that may be moved.

use std::collections::BTreeSet;

use muster_model::command::{ClaimSpec, Victim};
use muster_model::ids::{HostId, JobId, UnitId};
use muster_model::limits;
use muster_model::rejection::Rejection;

use crate::apply::attempt::placement::{check_unit, infeasible};
use crate::apply::attempt::{cell_binding, moves};
use crate::apply::job::admission::{self, AdmissionRequest};
use crate::feasibility::{self, Freed, Requester};
use crate::rights::{Preemptor, Rights, Subject};
use crate::state::{AttemptKey, BasisKind, Job, Purpose, Running, State, amounts_of};

/// Checks a claim; returns its hosts.
pub fn check_claim(state: &State, claiming: &ClaimSpec) -> Result<BTreeSet<HostId>, Rejection> {
    let ClaimSpec { job: id, unit, .. } = *claiming;
    check_unit(state, claiming.unit_id(), &claiming.tasks)?;
    let job = state.job(id).ok_or(Rejection::UnknownJob(id))?;
    let refuse = |detail: String| Rejection::ClaimInfeasible {
        job: id,
        unit,
        detail,
    };
    check_numbers(state, claiming, job).map_err(refuse)?;
    let freed = freed(state, claiming);
    let requester = Requester::for_claim(job, unit, claiming.expected_at, state.time);
    let by_host = feasibility::check(state, requester, &claiming.tasks, &freed)
        .map_err(|unfit| infeasible(id, unfit))?;
    let hosts: BTreeSet<HostId> = by_host.into_keys().collect();
    check_rights(state, claiming, job).map_err(refuse)?;
    check_admission(state, claiming, job, &freed)?;
    cell_binding::check(state, admission_request(claiming, job, &freed))?;
    moves::check_moves(state, claiming, &hosts, &freed)?;
    Ok(hosts)
}

fn check_numbers(state: &State, claiming: &ClaimSpec, job: &Job) -> Result<(), String> {
    if job
        .unit(claiming.unit)
        .is_some_and(|known| known.claim.is_some())
    {
        return Err("it has a claim already".to_owned());
    }
    let claims = state.index.claims.len() - claiming.supersedes.len().min(state.index.claims.len());
    let moves = claiming.moving.as_ref();
    if claims + moves.map_or(0, |moving| moving.moves.len()) >= limits::CLAIMS_MAX {
        return Err(format!(
            "{claims} units have claims, which is the limit (CLAIMS_MAX)"
        ));
    }
    let victims = claiming.victims.len();
    if victims > limits::VICTIMS_PER_CLAIM_MAX {
        return Err(format!(
            "{victims} victims are over the limit of {} (VICTIMS_PER_CLAIM_MAX)",
            limits::VICTIMS_PER_CLAIM_MAX
        ));
    }
    let ascend = claiming.victims.is_sorted_by(|one, other| one < other)
        && claiming.supersedes.is_sorted_by(|one, other| one < other);
    if !ascend {
        return Err("its victims and the claims that it supersedes must ascend".to_owned());
    }
    Ok(())
}

/// Returns what counts as free for a claim: the resources of its victims, of the units it moves, of stopping
/// attempts and of superseded claims; for a claim without any of these, the resources of all attempts.
fn freed(state: &State, claiming: &ClaimSpec) -> Freed {
    let moves = claiming.moving.iter().flat_map(|moving| &moving.moves);
    let mut attempts: BTreeSet<UnitId> = stopped(claiming).map(Victim::unit_id).collect();
    let is_reservation = attempts.is_empty();
    if !is_reservation {
        let tasks = moves.flat_map(|one| one.tasks.iter());
        let hosts: BTreeSet<HostId> = tasks
            .chain(claiming.tasks.iter())
            .map(|task| task.host)
            .collect();
        for host in hosts {
            attempts.extend(stopping_on(state, host));
        }
    }
    Freed {
        all_attempts: is_reservation,
        attempts,
        claims: claiming.supersedes.iter().copied().collect(),
    }
}

/// Returns the attempts that a claim stops: its victims and the ones it moves.
fn stopped(claiming: &ClaimSpec) -> impl Iterator<Item = &Victim> {
    let moves = claiming.moving.iter().flat_map(|moving| &moving.moves);
    claiming.victims.iter().chain(moves.map(|one| &one.attempt))
}

/// Returns the units on a host whose attempts are being stopped.
fn stopping_on(state: &State, host: HostId) -> impl Iterator<Item = UnitId> {
    crate::desired::units_on(state, host)
        .filter(|running| running.attempt.stop.is_some())
        .map(|running| running.unit_id())
}

/// Checks that every victim holds claimed resources and that the unit may preempt it; likewise superseded
/// claims, for which a higher priority in the same queue is enough.
fn check_rights(state: &State, claiming: &ClaimSpec, job: &Job) -> Result<(), String> {
    let amounts = amounts_of(&state.hosts, &job.spec, &claiming.tasks);
    let preemptor = Preemptor {
        job,
        unit: claiming.unit,
        allocation_basis: &claiming.basis,
        amounts: &amounts,
    };
    let mut rights = Rights::of(state, preemptor);
    let stopped = held_by_stopped(state, claiming)?;
    let victims = match claiming.moving {
        Some(_) => Vec::new(),
        None => stopped,
    };
    rights.take_all(victims).map_err(|(job, protection)| {
        format!("an attempt of job {job} cannot be preempted: {protection}")
    })?;
    let hosts: BTreeSet<HostId> = claiming.tasks.iter().map(|task| task.host).collect();
    for superseded in &claiming.supersedes {
        let unit = superseded.unit;
        let claimant = state.job(superseded.job);
        let subject = claimant.and_then(|job| Some((job, Subject::claim(job, unit)?)));
        let Some((claimant, subject)) = subject else {
            return Err(format!("{superseded} has no claim"));
        };
        let claim = claimant.unit(unit).and_then(|known| known.claim.as_deref());
        let mut tasks = claim.iter().flat_map(|claim| claim.tasks.iter());
        if !tasks.any(|task| hosts.contains(&task.host)) {
            return Err(format!("the claim of {superseded} does not obstruct it"));
        }
        // A claim for a moved unit is protected like the attempt that it left.
        let is_moved =
            claim.is_some_and(|claim| matches!(claim.purpose, Purpose::Destination { .. }));
        let outranked = !is_moved
            && claimant.spec.queue == job.spec.queue
            && claimant.spec.priority < job.spec.priority;
        if !outranked {
            rights.over(&subject).map_err(|protection| {
                format!("the claim of {superseded} cannot be superseded: {protection}")
            })?;
        }
    }
    Ok(())
}

/// Returns the attempts that a claim stops, each of which holds some of the claimed resources.
fn held_by_stopped<'a>(state: &'a State, claiming: &ClaimSpec) -> Result<Vec<Subject<'a>>, String> {
    let claimed: BTreeSet<_> = claiming.tasks.iter().flat_map(|task| &task.gpus).collect();
    let hosts: BTreeSet<HostId> = claiming.tasks.iter().map(|task| task.host).collect();
    let mut subjects = Vec::with_capacity(claiming.victims.len());
    for victim in stopped(claiming) {
        let Victim { job, unit, epoch } = victim;
        let running = Running::of(state, victim.unit_id());
        let running = running.filter(|running| running.attempt.epoch == *epoch);
        let Some(Running {
            job: record,
            attempt,
            ..
        }) = running
        else {
            return Err(format!(
                "attempt {epoch} of unit {unit} of job {job} is not the current one"
            ));
        };
        // Without claimed GPUs, room on the same host is enough.
        let gives = attempt.tasks.iter().any(|run| {
            run.gpus.iter().any(|gpu| claimed.contains(gpu))
                || (claimed.is_empty() || run.gpus.is_empty()) && hosts.contains(&run.host)
        });
        if !gives && !is_needed(state, claiming, victim.unit_id()) {
            return Err(format!(
                "unit {unit} of job {job} holds none of the claimed resources"
            ));
        }
        subjects.push(Subject::attempt(record, attempt));
    }
    Ok(subjects)
}

/// Whether the claim is impossible if a victim continues: it frees CPUs or memory, or a limit requires it.
fn is_needed(state: &State, claiming: &ClaimSpec, victim: UnitId) -> bool {
    let Some(job) = state.job(claiming.job) else {
        return false;
    };
    let mut freed = freed(state, claiming);
    freed.attempts.remove(&victim);
    let requester = Requester::for_claim(job, claiming.unit, claiming.expected_at, state.time);
    feasibility::check(state, requester, &claiming.tasks, &freed).is_err()
        || check_admission(state, claiming, job, &freed).is_err()
}

/// Checks the limits of the queues as of the end of its victims and of all stopping attempts.
fn check_admission(
    state: &State,
    claiming: &ClaimSpec,
    job: &Job,
    freed: &Freed,
) -> Result<(), Rejection> {
    let mut later = freed.clone();
    if !freed.all_attempts {
        let classes = state.index.attempts.iter();
        let stopping = classes.take_while(|(class, _)| class.basis == BasisKind::Stopping);
        let keys = stopping.flat_map(|(_, keys)| keys);
        later.attempts.extend(keys.map(AttemptKey::unit_id));
    }
    admission::check(state, admission_request(claiming, job, &later))
}

/// Returns the request of a claim, with what counts as free for it.
fn admission_request<'a>(
    claiming: &'a ClaimSpec,
    job: &'a Job,
    freed: &'a Freed,
) -> AdmissionRequest<'a> {
    AdmissionRequest {
        job,
        unit: claiming.unit,
        allocation_basis: &claiming.basis,
        tasks: &claiming.tasks,
        freed,
    }
}

/// Returns the units of a job that have claims.
pub(in crate::apply) fn units_of(state: &State, job: JobId) -> Vec<UnitId> {
    let claims = state.index.claims.range(UnitId::all_of(job));
    claims.map(|(id, _)| *id).collect()
}
