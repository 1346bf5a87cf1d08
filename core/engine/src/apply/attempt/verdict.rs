//! The verdict on an ended attempt: one pure function, so that all rules are in one place.

use muster_model::command::{
    EXIT_DO_NOT_RESTART, EXIT_RUN_AGAIN, Exit, GpuHealth, HostHealth, StopReason,
};
use muster_model::desired::RestartReason;
use muster_model::health::{Attribution, Charge, Measure};
use muster_model::ids::{AttemptEpoch, GpuUuid, HostId};
use muster_model::lifecycle::TaskPhase;
use muster_model::limits;
use muster_model::spec::{ExitMeaning, JobSpec};
use muster_model::time::{DAY_MS, TimeMs};

use crate::apply::attempt::task_reports::{could_not_start, ended_well, exit_code};
use crate::apply::attempt::texts::{Hosts, describe, host_name, name_of};
use crate::state::{Attempt, Job, PastAttempt, TaskRun, Unit};

/// Inputs of a verdict besides the attempt, its unit and its job.
#[derive(Debug)]
pub(in crate::apply) struct VerdictInputs<'a> {
    /// All hosts in their current state.
    pub(in crate::apply) hosts: &'a Hosts,
    /// When the attempt ended.
    pub(in crate::apply) now: TimeMs,
    /// Attribution of a failure; `None` for a success, and before the cluster has its defaults.
    pub(in crate::apply) attribution: Option<&'a Attribution>,
}

/// Next step of a unit whose attempt ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::apply) enum Verdict {
    /// All its tasks succeeded.
    Succeeded,
    /// It was cancelled.
    Cancelled,
    /// It failed permanently.
    Failed {
        /// Whether the attempt counts as a failure charged to the job.
        charged: bool,
        /// Human-readable reason.
        detail: String,
    },
    /// It waits again.
    Requeued {
        /// Reason of the next attempt.
        reason: RestartReason,
        /// Whether the attempt counts as a failure charged to the job.
        charged: bool,
        /// Back-off in milliseconds.
        delay_ms: u64,
        /// Whether the failure is the job's own, so that it may be retried in place.
        may_stay: bool,
        /// Human-readable end of the attempt.
        detail: String,
    },
}

impl Verdict {
    /// Whether the unit may be retried in place.
    pub(in crate::apply) const fn may_stay(&self) -> bool {
        matches!(self, Self::Requeued { may_stay: true, .. })
    }

    /// Extends the back-off of a failure during an incident, which may end on its own; all affected units are
    /// placed at once then. No retry in place until then.
    pub(in crate::apply) fn not_before(mut self, wait_ms: u64) -> Self {
        if let Self::Requeued {
            reason: RestartReason::Infra | RestartReason::User,
            delay_ms,
            may_stay,
            ..
        } = &mut self
        {
            *delay_ms = wait_ms.max(*delay_ms);
            *may_stay &= wait_ms == 0;
        }
        self
    }

    /// Extends the back-off of any end: unknown tasks of the unit may still run.
    pub(in crate::apply) fn held(mut self, wait_ms: u64) -> Self {
        if let Self::Requeued {
            delay_ms, may_stay, ..
        } = &mut self
        {
            *delay_ms = wait_ms.max(*delay_ms);
            *may_stay &= wait_ms == 0;
        }
        self
    }
}

/// Judges an attempt whose tasks have all ended. The first rule that applies decides:
///
/// 1. A cancelled job's unit is cancelled, whatever its exits.
/// 2. All exits 0 (and those that the job counts as success) are success, even while being stopped: a task
///    that wants to run again exits with 75.
/// 3. Any exit 93 fails the unit permanently.
/// 4. Causes outside the program, in the order of [`judge_causes_outside`].
/// 5. The task whose failure was committed first, in the order of [`judge_decisive`].
/// 6. An attempt that no task decided was stopped, and is run again at once.
pub(in crate::apply) fn judge(
    circumstances: &VerdictInputs<'_>,
    job: &Job,
    unit: &Unit,
    attempt: &Attempt,
) -> Verdict {
    if job.cancel.is_some() {
        return Verdict::Cancelled;
    }
    let stop = attempt.stop.as_ref().map(|order| &order.reason);
    let is_well = |run: &TaskRun| ended_well(&job.spec, stop, run);
    if attempt.runs().all(is_well) {
        return Verdict::Succeeded;
    }
    let refuses = |run: &&TaskRun| exit_code(run) == Some(EXIT_DO_NOT_RESTART);
    if let Some(run) = attempt.runs().find(refuses) {
        return Verdict::Failed {
            charged: true,
            detail: describe(run, circumstances.hosts),
        };
    }
    let delay_ms = again_delay_ms(circumstances, unit, attempt);
    if let Some(verdict) = judge_causes_outside(circumstances.hosts, attempt, delay_ms) {
        return verdict;
    }
    match decisive_run(attempt) {
        Some(run) => judge_decisive(circumstances, job, unit, attempt, run, delay_ms),
        None => infrastructure("it was stopped".to_owned(), 0),
    }
}

/// Judges an attempt by causes outside its program, whichever task ended first; `None` if there are none:
///
/// 1. Attempts stopped for a drain, a preemption or an unfit GPU are run again, uncharged.
/// 2. An expired lease is an infrastructure failure: the others of a gang often notice a dead host before the
///    leader does.
/// 3. An attempt that reached its time limit is not run again; one that was not assembled in time waits again.
/// 4. A GPU that is unfit by now is an infrastructure failure, whatever the tasks reported: they die of their
///    GPU before the fault is detected.
fn judge_causes_outside(hosts: &Hosts, attempt: &Attempt, delay_ms: u64) -> Option<Verdict> {
    if let Some((reason, detail)) = stopped_from_outside(attempt, hosts) {
        if reason == RestartReason::Infra {
            return Some(infrastructure(detail, delay_ms));
        }
        return Some(Verdict::Requeued {
            reason,
            charged: false,
            delay_ms: 0,
            may_stay: false,
            detail,
        });
    }
    if let Some(run) = attempt.runs().find(|run| lease_ran_out(run)) {
        return Some(infrastructure(describe(run, hosts), delay_ms));
    }
    let stop = attempt.stop.as_ref().map(|order| &order.reason);
    stopped_for_time(stop, delay_ms).or_else(|| {
        let gpu = unfit_gpu(hosts, attempt)?;
        Some(infrastructure(format!("{gpu} is unfit"), delay_ms))
    })
}

/// Judges an attempt by the task that decided its end:
///
/// 1. A lost member is never charged, nor one that the kernel killed because its host was out of memory.
/// 2. A task that could not be started is retried a bounded number of times.
/// 3. A task that asks to run again is run again, uncharged.
/// 4. A failure that is attributed to something else than the program is not charged.
/// 5. Other exits are judged by the job's rules and its retries.
fn judge_decisive(
    circumstances: &VerdictInputs<'_>,
    job: &Job,
    unit: &Unit,
    attempt: &Attempt,
    run: &TaskRun,
    delay_ms: u64,
) -> Verdict {
    let hosts = circumstances.hosts;
    let stop = attempt.stop.as_ref();
    let is_loss = stop.is_some_and(|order| order.reason == StopReason::MemberLost);
    if is_loss || was_lost_to_infrastructure(run) {
        return infrastructure(describe(run, hosts), delay_ms);
    }
    if could_not_start(run) {
        return judge_start_error(circumstances, run, unit, delay_ms);
    }
    if exit_code(run) == Some(EXIT_RUN_AGAIN) {
        return Verdict::Requeued {
            reason: RestartReason::User,
            charged: false,
            delay_ms,
            may_stay: false,
            detail: describe(run, hosts),
        };
    }
    match excused(circumstances, run, unit) {
        Some(detail) => infrastructure(detail, delay_ms),
        None => judge_exit(circumstances, run, unit, attempt, &job.spec),
    }
}

/// Returns the task that decided an attempt's end.
pub(in crate::apply) fn decisive_run(attempt: &Attempt) -> Option<&TaskRun> {
    attempt.run_of(attempt.decisive?)
}

/// Returns the reason if a failure is not charged to the job because of its attribution. Attribution by a
/// task's own report alone excuses a job that saves nothing in between a few times a day.
fn excused(circumstances: &VerdictInputs<'_>, run: &TaskRun, unit: &Unit) -> Option<String> {
    let VerdictInputs { hosts, now, .. } = *circumstances;
    let attribution = circumstances.attribution?;
    let goes_back = attribution.measures.contains(&Measure::PreviousCheckpoint);
    if attribution.charge != Charge::Infra && !goes_back {
        return None;
    }
    let newest = unit.newest_checkpoint().map(|checkpoint| checkpoint.epoch);
    let excused_before = unit.past.iter().filter(|past| {
        let attribution = past.attribution.as_deref();
        newest.is_none_or(|newest| past.epoch > newest)
            && now.since(past.ended_at) <= DAY_MS
            && attribution.is_some_and(|it| it.charge == Charge::Infra && !it.is_proven())
    });
    if !attribution.is_proven() && excused_before.count() >= limits::UNCHARGED_ENDS_PER_DAY_MAX {
        return None;
    }
    let detail = describe(run, hosts);
    Some(match &attribution.component {
        Some(component) => format!("{detail}; {} is to blame", name_of(component, hosts)),
        None => detail,
    })
}

/// Judges an exit of the job's own: the job's rules apply first, then its retries. A gang that has no retry
/// left, and failed for an unknown reason, is tried once more on other hosts if there are any.
fn judge_exit(
    circumstances: &VerdictInputs<'_>,
    run: &TaskRun,
    unit: &Unit,
    attempt: &Attempt,
    spec: &JobSpec,
) -> Verdict {
    let JobSpec {
        retry, lifecycle, ..
    } = spec;
    let detail = describe(run, circumstances.hosts);
    let meaning = run.exit.as_ref().and_then(|exit| lifecycle.meaning(exit));
    if meaning == Some(ExitMeaning::RetryFree) {
        return Verdict::Requeued {
            reason: RestartReason::User,
            charged: false,
            delay_ms: free_delay_ms(unit, spec),
            may_stay: true,
            detail,
        };
    }
    let is_over = unit.failures >= retry.retries_max;
    if is_over && meaning.is_none() && may_try_elsewhere(circumstances, attempt) {
        // No retry is used up.
        return Verdict::Requeued {
            reason: RestartReason::User,
            charged: false,
            delay_ms: retry.backoff_ms,
            may_stay: false,
            detail: format!("{detail}; cause unknown, retried once on other hosts"),
        };
    }
    if is_over || meaning == Some(ExitMeaning::Fail) {
        return Verdict::Failed {
            charged: true,
            detail,
        };
    }
    Verdict::Requeued {
        reason: RestartReason::User,
        charged: true,
        delay_ms: doubled(retry.backoff_ms, u64::from(unit.failures)),
        may_stay: true,
        detail,
    }
}

/// Whether an attempt on several hosts failed for an unknown reason for the first time, and as many other
/// hosts are up.
fn may_try_elsewhere(circumstances: &VerdictInputs<'_>, attempt: &Attempt) -> bool {
    let asks = |attribution: &Attribution| {
        attribution.charge == Charge::User
            && attribution.measures.contains(&Measure::RetryElsewhere)
    };
    let used = attempt.hosts();
    // If a member is judged alone, the others continue.
    let is_whole = attempt.runs().all(|run| run.phase.is_terminal());
    if used.len() < 2 || !is_whole || !circumstances.attribution.is_some_and(asks) {
        return false;
    }
    let others = circumstances.hosts.values().filter(|host| {
        host.health == HostHealth::Up && host.accepts_work() && !used.contains(&host.id)
    });
    others.take(used.len()).count() == used.len()
}

/// Returns the back-off of a failure that costs no retry; it grows with the consecutive ones.
fn free_delay_ms(unit: &Unit, spec: &JobSpec) -> u64 {
    let is_free = |past: &&PastAttempt| {
        let exit = past.exit.as_ref();
        exit.and_then(|exit| spec.lifecycle.meaning(exit)) == Some(ExitMeaning::RetryFree)
    };
    let in_a_row = unit.past.iter().rev().take_while(is_free).count();
    let first_ms = spec.retry.backoff_ms.max(limits::START_BACKOFF_MS);
    doubled(first_ms, in_a_row as u64)
}

/// Judges a task that could not be started: it is retried with a growing back-off, elsewhere if there is
/// room, and a bounded number of times.
fn judge_start_error(
    circumstances: &VerdictInputs<'_>,
    run: &TaskRun,
    unit: &Unit,
    delay_ms: u64,
) -> Verdict {
    let hosts = circumstances.hosts;
    let detail = describe(run, hosts);
    let in_a_row = 1 + unit.start_errors().count();
    let (max, name) = if is_one_hosts(hosts, run.host, unit) {
        (
            limits::START_ERRORS_OF_ONE_HOST_MAX,
            "START_ERRORS_OF_ONE_HOST_MAX",
        )
    } else if names_missing_file(run, unit) {
        (limits::MISSING_FILE_STARTS_MAX, "MISSING_FILE_STARTS_MAX")
    } else {
        (limits::START_ERRORS_MAX, "START_ERRORS_MAX")
    };
    if in_a_row >= max {
        return Verdict::Failed {
            charged: false,
            detail: format!("{detail} ({in_a_row} times in a row, {name})"),
        };
    }
    infrastructure(detail, delay_ms)
}

/// Whether something that the job names was missing at each of the consecutive start errors.
fn names_missing_file(run: &TaskRun, unit: &Unit) -> bool {
    let of_past = unit.start_errors().filter_map(|past| past.exit.as_ref());
    let mut exits = run.exit.iter().chain(of_past);
    exits.all(Exit::is_missing_file)
}

/// Whether all consecutive start errors were on this host while another suitable host is up.
fn is_one_hosts(hosts: &Hosts, culprit: HostId, unit: &Unit) -> bool {
    let is_other = |host: &HostId| *host != culprit;
    let mut up = hosts
        .values()
        .filter(|host| host.health == HostHealth::Up)
        .map(|host| host.id);
    !unit.hosts_with_start_errors().iter().any(is_other) && up.any(|host| is_other(&host))
}

/// Returns the back-off of an attempt that ended without charge to the job: whatever keeps a unit from
/// running or making progress must not keep the cluster busy.
///
/// Attempts that ended before they ran wait, longer with each consecutive one; those that ran only briefly
/// and saved nothing are run again at once the first time, and wait from the second consecutive time on.
fn again_delay_ms(circumstances: &VerdictInputs<'_>, unit: &Unit, attempt: &Attempt) -> u64 {
    let newest_first = unit.past.iter().rev();
    let Some(running_at) = attempt.running_at else {
        let never_ran = newest_first.take_while(|past| past.running_at.is_none());
        return doubled(limits::START_BACKOFF_MS, never_ran.count() as u64);
    };
    let now = circumstances.now;
    let failed_before = matches!(
        unit.restart_reason,
        RestartReason::Infra | RestartReason::User
    );
    if !failed_before || !got_nowhere(unit, attempt.epoch, running_at, now) {
        return 0;
    }
    let in_a_row = newest_first.take_while(|past| {
        let began_at = past.running_at.unwrap_or(past.ended_at);
        got_nowhere(unit, past.epoch, began_at, past.ended_at)
    });
    let further = in_a_row.count().checked_sub(1);
    further.map_or(0, |times| {
        doubled(limits::NO_PROGRESS_BACKOFF_MS, times as u64)
            .min(limits::NO_PROGRESS_BACKOFF_MS_MAX)
    })
}

/// Whether an attempt ran only briefly and saved nothing.
fn got_nowhere(unit: &Unit, epoch: AttemptEpoch, began_at: TimeMs, ended_at: TimeMs) -> bool {
    ended_at.since(began_at) < limits::NO_PROGRESS_MS_MAX && !unit.has_progressed_in(epoch)
}

const fn infrastructure(detail: String, delay_ms: u64) -> Verdict {
    Verdict::Requeued {
        reason: RestartReason::Infra,
        charged: false,
        delay_ms,
        may_stay: false,
        detail,
    }
}

/// Whether a task was ended by the infrastructure: its worker lost it, or its host was out of memory.
pub(in crate::apply) fn was_lost_to_infrastructure(run: &TaskRun) -> bool {
    run.exit.as_ref().is_none_or(Exit::was_host_out_of_memory)
}

/// Returns an unfit GPU of an attempt.
pub(in crate::apply) fn unfit_gpu(hosts: &Hosts, attempt: &Attempt) -> Option<GpuUuid> {
    attempt.tasks.iter().find_map(|run| {
        let host = hosts.get(&run.host)?;
        let is_unfit = |uuid: &&GpuUuid| {
            let of_host = host.gpus.iter().find(|gpu| gpu.uuid == **uuid);
            of_host.is_some_and(|gpu| gpu.health != GpuHealth::Healthy)
        };
        run.gpus.iter().find(is_unfit).copied()
    })
}

fn lease_ran_out(run: &TaskRun) -> bool {
    let expired = run.exit.as_ref().is_some_and(|exit| exit.lease_expired);
    expired || run.phase == TaskPhase::Fenced
}

/// Doubles a back-off `times` times, up to `BACKOFF_MS_MAX`.
pub(in crate::apply) fn doubled(backoff_ms: u64, times: u64) -> u64 {
    let factor = 1u64 << times.min(62);
    backoff_ms
        .saturating_mul(factor)
        .min(limits::BACKOFF_MS_MAX)
}

/// Returns the reason, with its evidence, if the attempt was stopped by neither its own member nor a user.
fn stopped_from_outside(attempt: &Attempt, hosts: &Hosts) -> Option<(RestartReason, String)> {
    let order = attempt.stop.as_ref()?;
    let (reason, what) = match &order.reason {
        StopReason::Drain { host } => {
            let host = host_name(*host, hosts);
            (RestartReason::Admin, format!("host {host} was drained"))
        }
        StopReason::Preempted => (RestartReason::Preempt, "preempted".to_owned()),
        StopReason::Defragmented => (
            RestartReason::Preempt,
            "moved to make contiguous room".to_owned(),
        ),
        StopReason::Suspended => (RestartReason::Preempt, "its job was suspended".to_owned()),
        StopReason::GpuFault { gpu } => (RestartReason::Infra, format!("{gpu} is unfit")),
        StopReason::HostFault { host } => {
            let host = host_name(*host, hosts);
            (RestartReason::Infra, format!("host {host} cannot work"))
        }
        StopReason::Cancelled
        | StopReason::MemberFailed
        | StopReason::MemberLost
        | StopReason::TimeLimit
        | StopReason::AssemblyTimeout
        | StopReason::NotSwapped => return None,
    };
    Some((reason, order.explained(&what)))
}

/// Returns the verdict on an attempt that reached its time limit or its assembly limit.
fn stopped_for_time(stop: Option<&StopReason>, delay_ms: u64) -> Option<Verdict> {
    match stop? {
        StopReason::TimeLimit => Some(Verdict::Failed {
            charged: false,
            detail: "time limit reached (run_time_ms_max)".to_owned(),
        }),
        StopReason::AssemblyTimeout => {
            let detail = "its members did not all start in time (assembly_ms_max)".to_owned();
            Some(infrastructure(detail, delay_ms))
        }
        _ => None,
    }
}
