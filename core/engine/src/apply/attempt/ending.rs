//! End of an attempt: its resources are released and the unit gets its verdict.

use std::collections::BTreeMap;
use std::sync::Arc;

use muster_model::command::Placement;
use muster_model::desired::RestartReason;
use muster_model::event::EventKind;
use muster_model::health::{Attribution, Measure};
use muster_model::host::{Holder, Host};
use muster_model::ids::{HostId, UnitId, UnitIndex};
use muster_model::lifecycle::UnitPhase;
use muster_model::limits;
use muster_model::spec::JobSpec;
use muster_model::time::TimeMs;

use crate::apply::Step;
use crate::apply::attempt::retries::RetryInPlace;
use crate::apply::attempt::task_reports::could_not_start;
use crate::apply::attempt::verdict::{self, Verdict, VerdictInputs};
use crate::apply::attempt::{attribution, progress};
use crate::state::{Attempt, Job, PastAttempt, State, TaskRun, UsageKind, amounts_held};

impl Step<'_> {
    /// Ends a unit's attempt, whose tasks have all ended.
    pub(in crate::apply) fn end_attempt(&mut self, id: UnitId) {
        let found = self.attribute_end(id);
        let held_ms = self.incident_over_ms(id);
        let held_until = self.state.job(id.job).map(|job| self.state.held_until(job));
        let unknown_ms = held_until.map_or(0, |until| until.since(self.state.time));
        let (hosts, defaults) = (self.state.hosts.clone(), self.state.job_defaults);
        let attribution = found.as_ref().map(|found| &found.attribution.attribution);
        let circumstances = VerdictInputs {
            hosts: &hosts,
            now: self.state.time,
            attribution,
        };
        self.forget_attempt(id);
        let job = self.job_mut(id.job);
        let attempt = job
            .unit_mut(id.unit)
            .attempt
            .take()
            .expect("the unit was found to have an attempt");
        let (spec, known) = (Arc::clone(&job.spec), job.unit(id.unit));
        let known = known.expect("the unit was found to have a record");
        let verdict = verdict::judge(&circumstances, job, known, &attempt);
        let (verdict, without_progress) =
            progress::guard(verdict, defaults, &spec, known, &attempt);
        let verdict = verdict.not_before(held_ms).held(unknown_ms);
        job.unit_mut(id.unit).without_progress = without_progress;
        let stays = verdict.may_stay();
        let again = stays.then(|| self.placement_in_place(id, &attempt));
        let again = again.flatten();
        if matches!(verdict, Verdict::Succeeded) {
            self.note_success(&attempt);
            self.note_ran_well(id, &attempt);
        }
        self.account_for_end(id, &attempt, &verdict);
        self.release(id, &spec, &attempt);
        let hosts = attempt.hosts();
        let attribution =
            attribution.map(|attribution| Arc::new(attribution::settled(attribution, &verdict)));
        self.emit(EventKind::AttemptEnded {
            job: id.job,
            unit: id.unit,
            epoch: attempt.epoch,
            hosts: hosts.clone(),
            detail: detail_of(&verdict).to_owned(),
            attribution: attribution.clone(),
        });
        let decisive = verdict::decisive_run(&attempt);
        let culprit = decisive.filter(|run| could_not_start(run));
        let culprit = culprit.map(|run| run.host);
        let culprit = culprit.or_else(|| self.host_to_avoid(attribution.as_deref()));
        let past = PastAttempt {
            epoch: attempt.epoch,
            number: attempt.number,
            placed_at: attempt.placed_at,
            running_at: attempt.running_at,
            ended_at: self.state.time,
            detail: detail_of(&verdict).to_owned(),
            exit: decisive.and_then(|run| run.exit.clone()),
            gpus: positions_held(self.state, &attempt, &hosts),
            hosts,
            culprit,
            attribution,
            members: attempt.late_members(),
        };
        if let Some(found) = &found {
            self.apply_attribution(found);
        }
        self.carry_out(id, verdict, past, again);
    }

    /// Returns the milliseconds until the incident ends that affects a host of a unit's attempt; 0 without
    /// one.
    fn incident_over_ms(&self, id: UnitId) -> u64 {
        let (health, now) = (&self.state.health, self.state.time);
        let attempt = self.state.attempt(id);
        let hosts = attempt.into_iter().flat_map(Attempt::hosts);
        let incidents = hosts.filter_map(|host| health.incident(host, now));
        let over = incidents.map(|incident| incident.until.since(now));
        over.max().unwrap_or_default()
    }

    /// Returns the host that the next attempt should avoid.
    fn host_to_avoid(&self, attribution: Option<&Attribution>) -> Option<HostId> {
        let attribution =
            attribution.filter(|attribution| attribution.measures.contains(&Measure::Avoid))?;
        self.host_of(attribution.component.as_ref()?)
    }

    /// Returns an attempt's resources to their hosts.
    fn release(&mut self, id: UnitId, spec: &JobSpec, attempt: &Attempt) {
        let State { jobs, index, .. } = &mut *self.state;
        index.prepared_gangs.remove(&id);
        index.remove_vacancy(id, attempt);
        if let Some(job) = jobs.get(&id.job) {
            index.remove_deadline(id, job, attempt);
        }
        self.settle_histories(spec);
        let amounts = amounts_held(&self.state.hosts, spec, attempt);
        let part = UsageKind::held_by(attempt);
        self.state.index.remove_usage(spec, part, &amounts);
        self.unbind(spec, &attempt.allocation_basis);
        let allocation = &mut self.state.index.allocation;
        allocation.note(spec, (attempt.epoch, id), None);
        let mut by_host: BTreeMap<HostId, Vec<&TaskRun>> = BTreeMap::new();
        for run in &attempt.tasks {
            by_host.entry(run.host).or_default().push(run);
        }
        let (revision, places) = (self.state.revision, spec.task_weights());
        for (host, runs) in by_host {
            for run in &runs {
                self.state.index.remove_task(host, places.of(run.task));
            }
            self.edit_host(host, |host| {
                host.desired_revision = revision;
                for run in runs {
                    let holder = Holder {
                        job: id.job,
                        unit: id.unit,
                        epoch: attempt.epoch,
                        task: run.task,
                    };
                    release_task(host, run, holder, spec);
                }
            });
            self.state.index.units_on_host.remove(&(host, id));
            self.note_release(host);
        }
    }

    /// Applies the verdict to the unit; a retry in place is decided at the end of the command.
    fn carry_out(
        &mut self,
        id: UnitId,
        verdict: Verdict,
        past: PastAttempt,
        again: Option<Placement>,
    ) {
        let UnitId { job, unit } = id;
        let (time, ended) = (self.state.time, past.epoch);
        if !matches!(verdict, Verdict::Requeued { .. }) {
            self.give_up_claim(id, "its unit ended before the move");
        }
        let requeued = self.edit_job(job, |job| {
            move_unit_by_verdict(job, unit, verdict, past, time)
        });
        let Some((reason, not_before)) = requeued else {
            return;
        };
        if not_before > time {
            self.state.index.delayed.insert((not_before, id));
        }
        if let Some(again) = again {
            self.retries_in_place.push(RetryInPlace {
                again,
                ended,
                reason,
                not_before,
            });
            return;
        }
        self.emit(EventKind::UnitRequeued {
            job,
            unit,
            reason,
            not_before,
        });
    }
}

pub(in crate::apply) fn release_task(
    host: &mut Host,
    run: &TaskRun,
    holder: Holder,
    spec: &JobSpec,
) {
    for gpu in &mut host.gpus {
        if gpu.holder == Some(holder) {
            gpu.holder = None;
        }
    }
    if let Some((group, _)) = spec.group_of(run.task) {
        host.cpus_milli_used -= group.resources.cpus_milli;
        host.memory_mib_used -= group.resources.memory_mib;
    }
}

/// Moves the unit to the phase of the verdict; returns the reason and the back-off end if it waits again.
fn move_unit_by_verdict(
    job: &mut Job,
    index: UnitIndex,
    verdict: Verdict,
    past: PastAttempt,
    time: TimeMs,
) -> Option<(RestartReason, TimeMs)> {
    let unit = job.unit_mut(index);
    if unit.past.len() >= limits::ATTEMPTS_KEPT_PER_UNIT_MAX {
        unit.past.remove(0);
    }
    unit.past.push(past);
    match verdict {
        Verdict::Succeeded => job.move_unit(index, UnitPhase::Succeeded),
        Verdict::Cancelled => job.move_unit(index, UnitPhase::Cancelled),
        Verdict::Failed { charged, detail } => {
            unit.failures += u32::from(charged);
            job.move_unit(index, UnitPhase::Failed);
            if job.finish_reason.is_empty() {
                job.finish_reason = detail;
            }
        }
        Verdict::Requeued {
            reason,
            charged,
            delay_ms,
            ..
        } => {
            unit.failures += u32::from(charged);
            unit.restart_reason = reason;
            unit.not_before = time.after(delay_ms);
            let not_before = unit.not_before;
            job.move_unit(index, UnitPhase::Waiting);
            return Some((reason, not_before));
        }
    }
    None
}

fn detail_of(verdict: &Verdict) -> &str {
    match verdict {
        Verdict::Succeeded => "succeeded",
        Verdict::Cancelled => "cancelled",
        Verdict::Failed { detail, .. } | Verdict::Requeued { detail, .. } => detail,
    }
}

/// Returns the GPUs that an attempt holds on these hosts, one bit per position.
fn positions_held(state: &State, attempt: &Attempt, hosts: &[HostId]) -> Vec<u128> {
    let mut held: BTreeMap<HostId, u128> = BTreeMap::new();
    for run in &attempt.tasks {
        let known = state.host(run.host).map_or(&[][..], |host| &host.gpus);
        let position = |uuid| known.iter().position(|gpu| gpu.uuid == uuid);
        let positions = run.gpus.iter().filter_map(|uuid| position(*uuid));
        *held.entry(run.host).or_default() |= positions.fold(0, |set, at| set | bit(at));
    }
    let of_host = |id| held.get(id).copied().unwrap_or_default();
    hosts.iter().map(of_host).collect()
}

/// Returns the bit of a position, of which there are at most [`limits::GPUS_PER_HOST_MAX`]; 0 beyond that.
pub(in crate::apply) fn bit(position: usize) -> u128 {
    u32::try_from(position)
        .ok()
        .and_then(|position| 1u128.checked_shl(position))
        .unwrap_or_default()
}
