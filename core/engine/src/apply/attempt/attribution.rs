//! Attribution of failed attempts: collects the evidence in the state for `health::attribution` and applies
//! the result.

use std::collections::BTreeSet;

use muster_health::attribution::{
    self, AttributionOutcome, Ended, History, PastFailure, Signature, TaskEnd,
};
use muster_health::state::{FailedEnd, Program};
use muster_model::command::{EXIT_DO_NOT_RESTART, EXIT_RUN_AGAIN, Exit};
use muster_model::desired::RestartReason;
use muster_model::health::{Attribution, Charge, Class, Component, Finding, Measure, Severity};
use muster_model::ids::{HostId, UnitId, UnitIndex};
use muster_model::lifecycle::TaskPhase;
use muster_model::spec::ExitMeaning;
use muster_model::time::TimeMs;
use muster_model::{evidence, limits};

use crate::apply::Step;
use crate::apply::attempt::task_reports::ended_well;
use crate::apply::attempt::verdict::{self, Verdict};
use crate::apply::checkpoint::checkpoints::Damage;
use crate::apply::host::health::Place;
use crate::state::{Attempt, Job, PastAttempt, Running, State, TaskRun, Unit};

/// The rule for kernel log entries of a crash inside NCCL.
const NCCL_CRASH: &str = "nccl_segv";

/// Attribution of an end, with the record of it.
pub(in crate::apply) struct AttributedEnd {
    pub(in crate::apply) attribution: AttributionOutcome,
    end: FailedEnd,
    /// Whether it ended because something its job names is missing, which supports other reports of missing
    /// things on that host.
    names_missing_file: bool,
    place: Place,
}

impl Step<'_> {
    /// Attributes the end of a unit's attempt, whose tasks have all ended; `None` if it ended well, or before
    /// the cluster has its defaults. Marks a checkpoint that the attempt could not read.
    pub(in crate::apply) fn attribute_end(&mut self, id: UnitId) -> Option<AttributedEnd> {
        let Running { job, attempt, .. } = Running::of(self.state, id)?;
        let mut found = self.attribution_of(job, id.unit, attempt)?;
        self.mark_restored_checkpoint_unreadable(id, &mut found.attribution.attribution);
        Some(found)
    }

    /// Attributes the end of an attempt as if only one of its tasks had ended.
    pub(in crate::apply) fn attribution_of(
        &self,
        job: &Job,
        unit: UnitIndex,
        attempt: &Attempt,
    ) -> Option<AttributedEnd> {
        let (attribution, end) = attribute(self.state, job, unit, attempt)?;
        let attributed = attribution.attribution.component.as_ref();
        let host = attributed.and_then(|component| self.host_of(component));
        let is_known = |host: &HostId| self.state.host(*host).is_some();
        let host = host.or_else(|| end.hosts.iter().copied().find(is_known))?;
        let component = attributed.cloned().unwrap_or(Component::Host(host));
        let mut place = self.place_of(host, &component);
        place.belongs_to(job);
        let exit = verdict::decisive_run(attempt).and_then(|run| run.exit.as_ref());
        let names_missing_file = exit.is_some_and(Exit::is_missing_file) && !attribution.takes_back;
        Some(AttributedEnd {
            attribution,
            end,
            names_missing_file,
            place,
        })
    }

    /// Marks the checkpoint that an attempt resumed from as unreadable. Without one, the unreadable file is
    /// the job's own.
    fn mark_restored_checkpoint_unreadable(&mut self, id: UnitId, attribution: &mut Attribution) {
        if !attribution.measures.contains(&Measure::PreviousCheckpoint) {
            return;
        }
        let known = self.state.unit(id);
        let damaged = known.and_then(|known| {
            let epoch = known.attempt.as_deref()?.epoch;
            let newest = known.newest_checkpoint()?;
            // A checkpoint saved by the attempt itself was not read by it.
            (newest.epoch < epoch).then_some((epoch, newest.epoch, newest.step))
        });
        let reason = attribution.evidence.first().cloned().unwrap_or_default();
        let is_marked = damaged.is_some_and(|(reporter, epoch, step)| {
            let reason = limits::shortened(&reason);
            let damage = Damage {
                job: id.job,
                unit: id.unit,
                reporter,
                epoch,
                step,
                reason,
            };
            self.mark_checkpoint_damaged(&damage).is_ok()
        });
        if !is_marked {
            attribution.charge = Charge::User;
            attribution.measures = vec![Measure::Requeue];
        }
    }

    /// Applies the consequences for the attributed component; the attempt has released everything by now.
    pub(in crate::apply) fn apply_attribution(&mut self, found: &AttributedEnd) {
        let rules = self.state.health_rules.set.clone();
        self.report_to_health(&found.place, |health, place| {
            let effects = health.ended(&rules, &found.attribution, &found.end, place);
            if found.names_missing_file {
                health.keep_end(&found.end);
            }
            effects
        });
    }

    /// Records a successful attempt: its program runs on these GPUs, and if the attempt before it failed for
    /// an unknown reason, its hosts become suspects.
    pub(in crate::apply) fn note_ran_well(&mut self, id: UnitId, attempt: &Attempt) {
        if !self.state.has_defaults() {
            return;
        }
        let Some(job) = self.state.job(id.job) else {
            return;
        };
        let before = job.unit(id.unit).and_then(|known| known.past.last());
        let suspicions = before.map_or_else(Vec::new, |before| suspects(before, attempt));
        let now = self.state.time;
        let mut ran = Vec::new();
        for run in &attempt.tasks {
            if let [gpu, ..] = run.gpus[..] {
                ran.push((program(job, run), gpu));
            }
        }
        for (program, gpu) in ran {
            self.state.health.record_success(&program, gpu, now);
        }
        self.state.health.suspect_hosts(&suspicions, now);
    }
}

/// Attributes the end of an attempt of which all tasks, or one task, have ended; `None` if it ended well, or
/// before the cluster has its defaults.
fn attribute(
    state: &State,
    job: &Job,
    unit: UnitIndex,
    attempt: &Attempt,
) -> Option<(AttributionOutcome, FailedEnd)> {
    if !state.has_defaults() {
        return None;
    }
    let stop = attempt.stop.as_ref().map(|order| &order.reason);
    if attempt.runs().all(|run| ended_well(&job.spec, stop, run)) {
        return None;
    }
    let unit = job.unit(unit)?;
    let findings = findings(state, attempt);
    let tasks = ends_with_evidence(state.time, attempt, &findings);
    let end = failed_end(state, job, attempt);
    let since_saved = attempts_since_saved(unit);
    let history = History {
        attempts: since_saved.iter().filter_map(past_failure).collect(),
        was_retried_elsewhere: since_saved.iter().any(was_sent_elsewhere),
        ..state.health.history(&end)
    };
    let decisive_exit = verdict::decisive_run(attempt).and_then(|run| run.exit.as_ref());
    let mut runs = attempt.runs();
    let fenced = runs.find(|run| run.phase == TaskPhase::Fenced);
    let attribution = attribution::attribute(&Ended {
        job: job.id,
        user: &job.spec.user,
        tasks: &tasks,
        stop,
        decisive: attempt.decisive,
        gone_host: fenced.map(|run| run.host),
        unfit: verdict::unfit_gpu(&state.hosts, attempt),
        meaning: decisive_exit.and_then(|exit| meaning(job, exit)),
        at: state.time,
        findings: &findings,
        rules: &state.health_rules.set,
        history: &history,
    });
    Some((attribution, end))
}

/// Returns the ends of tasks that carry evidence. Tasks lost while the others are stopping carry none, unless
/// the attempt ended because of them.
fn ends_with_evidence<'a>(
    now: TimeMs,
    attempt: &'a Attempt,
    findings: &[Finding],
) -> Vec<TaskEnd<'a>> {
    let has_evidence = |run: &&TaskRun| run.exit.is_some() || Some(run.task) == attempt.decisive;
    let ended = attempt.runs().filter(|run| run.phase.is_terminal());
    ended
        .filter(has_evidence)
        .map(|run| task_end(now, attempt, run, findings))
        .collect()
}

/// Collects the facts about a failure.
fn failed_end(state: &State, job: &Job, attempt: &Attempt) -> FailedEnd {
    let culprit = verdict::decisive_run(attempt);
    let exit = culprit.and_then(|culprit| culprit.exit.as_ref());
    if let Some(run) = culprit.filter(|_| exit.is_some_and(Exit::is_missing_file)) {
        return FailedEnd::missing_file(state.time, job.id, &job.spec.user, run.host);
    }
    FailedEnd {
        at: state.time,
        job: job.id,
        program: culprit.map_or_else(|| user_of(job), |run| program(job, run)),
        hosts: attempt.hosts(),
        gpus: culprit.map_or_else(Vec::new, |culprit| culprit.gpus.clone()),
        cause: exit.and_then(|exit| evidence::cause(&exit.evidence)),
    }
}

/// Returns the meaning of an exit by the job's rules or the general exit codes.
fn meaning(job: &Job, exit: &Exit) -> Option<ExitMeaning> {
    match exit.code {
        Some(EXIT_RUN_AGAIN) => Some(ExitMeaning::RetryFree),
        Some(EXIT_DO_NOT_RESTART) => Some(ExitMeaning::Fail),
        _ => job.spec.lifecycle.meaning(exit),
    }
}

fn task_end<'a>(
    now: TimeMs,
    attempt: &Attempt,
    run: &'a TaskRun,
    findings: &[Finding],
) -> TaskEnd<'a> {
    let is_nccl_crash =
        |it: &Finding| it.rule == NCCL_CRASH && it.component == Component::Host(run.host);
    let ended_itself = |exit: &Exit| exit.start_error.is_none();
    let seen = run
        .exit
        .as_ref()
        .and_then(|exit| exit.last_measurements.as_deref().copied());
    let seen = seen.unwrap_or_default();
    TaskEnd {
        task: run.task,
        host: run.host,
        gpus: &run.gpus,
        exit: run.exit.as_ref(),
        has_begun: attempt.running_at.is_some() || run.exit.as_ref().is_some_and(ended_itself),
        ran_ms: attempt.running_at.map_or(0, |at| now.since(at)),
        step: seen.step,
        busy_permille: seen.busy_permille,
        held_before_mib: seen.leftover_mib.unwrap_or_default(),
        crashed_in_nccl: findings.iter().any(is_nccl_crash),
    }
}

/// Returns the recent findings on an attempt's hosts since it began: earlier ones were handled before the
/// placement.
fn findings(state: &State, attempt: &Attempt) -> Vec<Finding> {
    let hosts: BTreeSet<HostId> = attempt.hosts().into_iter().collect();
    let is_near = |finding: &&Finding| {
        let span = state.time.since(finding.at);
        let is_recent = span <= attribution::WINDOW_BEFORE_MS && finding.at >= attempt.placed_at;
        is_recent && finding.severity > Severity::Healthy
    };
    let is_there = |finding: &&Finding| match &finding.component {
        Component::Gpu(gpu) => state
            .gpu_hosts
            .get(gpu)
            .is_some_and(|it| hosts.contains(it)),
        Component::Host(host) | Component::Nic { host, .. } => hosts.contains(host),
        Component::Rack(_) => false,
    };
    let near = state.health.findings().filter(is_near);
    near.filter(is_there).cloned().collect()
}

/// Returns the program of a task.
fn program(job: &Job, run: &TaskRun) -> Program {
    let group = job.spec.group_of(run.task);
    let container = group.and_then(|(group, _)| group.execution.container.as_ref());
    Program {
        image: container.map_or_else(String::new, |container| container.image.clone()),
        ..user_of(job)
    }
}

fn user_of(job: &Job) -> Program {
    Program {
        user: job.spec.user.clone(),
        image: String::new(),
    }
}

/// Returns a unit's attempts since it last saved, oldest first.
fn attempts_since_saved(unit: &Unit) -> &[PastAttempt] {
    let newest = unit.newest_checkpoint().map(|checkpoint| checkpoint.epoch);
    let from = unit
        .past
        .iter()
        .position(|past| newest.is_none_or(|it| past.epoch > it));
    from.map_or(&[], |from| &unit.past[from..])
}

/// Returns a past failure that was charged to the job.
fn past_failure(past: &PastAttempt) -> Option<PastFailure> {
    let exit = past.exit.as_ref().filter(|exit| exit.code != Some(0))?;
    // A name in the job that is missing on several hosts may still be mistyped: a run elsewhere shows that.
    let is_sites =
        |attribution: &Attribution| attribution.class == Class::Site && !exit.is_missing_file();
    let is_others = |attribution: &Attribution| {
        let is_schedulers = attribution.class == Class::Scheduler;
        attribution.charge == Charge::Infra || is_schedulers || is_sites(attribution)
    };
    let is_own = !past.attribution.as_deref().is_some_and(is_others);
    is_own.then(|| PastFailure {
        hosts: past.hosts.iter().copied().collect(),
        signature: Signature::of(exit),
    })
}

fn was_sent_elsewhere(past: &PastAttempt) -> bool {
    let attribution = past.attribution.as_deref();
    attribution.is_some_and(|attribution| attribution.measures.contains(&Measure::RetryElsewhere))
}

/// Returns the components suspected because an attempt ended well after one that failed elsewhere.
fn suspects(before: &PastAttempt, attempt: &Attempt) -> Vec<attribution::Suspicion> {
    if !was_sent_elsewhere(before) {
        return Vec::new();
    }
    let first = before.hosts.iter().copied().collect();
    let ran_well_on = attempt.hosts().into_iter().collect();
    let odd = before
        .attribution
        .as_deref()
        .and_then(|attribution| match attribution.component {
            Some(Component::Host(host)) => Some(host),
            _ => None,
        });
    attribution::suspects(&first, &ran_well_on, odd)
}

/// Returns the attribution to keep: with the charge and consequence of the verdict, which may have had further
/// reasons.
pub(in crate::apply) fn settled(attribution: &Attribution, verdict: &Verdict) -> Attribution {
    let (is_again, is_charged) = match verdict {
        Verdict::Requeued { charged, .. } => (true, *charged),
        Verdict::Failed { charged, .. } => (false, *charged),
        Verdict::Succeeded | Verdict::Cancelled => (false, false),
    };
    let is_infra = matches!(
        verdict,
        Verdict::Requeued {
            reason: RestartReason::Infra,
            ..
        }
    );
    let charge = match attribution.charge {
        _ if is_charged => Charge::User,
        Charge::User if is_infra => Charge::Infra,
        Charge::User => Charge::None,
        other => other,
    };
    let runs_again = |it: &Measure| {
        matches!(
            it,
            Measure::Requeue
                | Measure::BackOff
                | Measure::RetryElsewhere
                | Measure::Avoid
                | Measure::PreviousCheckpoint
        )
    };
    let mut measures = attribution.measures.clone();
    measures.retain(|it| *it != Measure::NoRetry && (is_again || !runs_again(it)));
    if !measures.iter().any(runs_again) {
        let next = if is_again {
            Measure::Requeue
        } else {
            Measure::NoRetry
        };
        measures.insert(0, next);
    }
    Attribution {
        charge,
        measures,
        ..attribution.clone()
    }
}
