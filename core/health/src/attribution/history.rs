//! Attribution by history: the same job elsewhere, other jobs on the same GPU, others with the same image.

use std::collections::{BTreeMap, BTreeSet};

use muster_model::command::Exit;
use muster_model::evidence::{self, Cause};
use muster_model::health::{Charge, Class, Component, Measure, Step};
use muster_model::ids::{GpuUuid, HostId, JobId};
use muster_model::time::TimeMs;

use crate::attribution::ends::{describe, signal};
use crate::attribution::{AttributionOutcome, Ended, Suspicion, TaskEnd};
use crate::rules::HISTORY;

/// Number of disjoint sets of hosts on which a failing job is attributed to itself.
const SETS_MIN: usize = 2;
/// Minimum number of users whose jobs must have failed on a GPU before it is attributed; the rule `history`
/// sets the number of jobs.
const USERS_MIN: usize = 2;
/// Minimum number of jobs and hosts with the same image before the image is attributed.
const SPREAD_JOBS_MIN: u32 = 3;
const SPREAD_HOSTS_MIN: u32 = 3;
/// Number of jobs with non-numeric losses on a GPU before it is suspected of wrong results.
const WRONG_NUMBERS_JOBS_MIN: usize = 3;

/// Signature of a failure, for the comparison of two failures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Signature {
    /// Exit code.
    pub code: Option<i32>,
    /// Signal.
    pub signal: Option<i32>,
    /// Cause indicated by its output.
    pub cause: Option<Cause>,
    /// Whether it could not start because a file named by the job is missing.
    pub is_not_there: bool,
}

impl Signature {
    /// Signature of an exit.
    #[must_use]
    pub fn of(exit: &Exit) -> Self {
        let signal = signal(exit);
        Self {
            code: exit.code.filter(|_| signal.is_none()),
            signal,
            cause: evidence::cause(&exit.evidence),
            is_not_there: exit.is_missing_file(),
        }
    }
}

/// An earlier attempt of the same job that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PastFailure {
    /// Hosts of the attempt.
    pub hosts: BTreeSet<HostId>,
    /// Signature of the failure.
    pub signature: Signature,
}

/// A failure on a GPU without a known cause.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnexplainedFailure {
    /// The job.
    pub job: JobId,
    /// User who owns the job.
    pub user: String,
    /// Time of the failure.
    pub at: TimeMs,
    /// Cause indicated by its output.
    pub cause: Option<Cause>,
    /// Whether the same user's image has since succeeded on other GPUs.
    pub runs_elsewhere: bool,
}

/// Spread of failures with the same image within a day.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ImageSpread {
    /// Number of jobs.
    pub jobs: u32,
    /// Number of hosts.
    pub hosts: u32,
}

/// History before an end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct History {
    /// Failures of the same job since its last checkpoint, oldest first.
    pub attempts: Vec<PastFailure>,
    /// Failures on the attempt's GPUs.
    pub gpus: BTreeMap<GpuUuid, Vec<UnexplainedFailure>>,
    /// Other failures with the same image.
    pub image: ImageSpread,
    /// Whether the user's image succeeds on other GPUs.
    pub runs_elsewhere: bool,
    /// Number of users, this one included, whose jobs missed files on the attempt's host within a day, and
    /// not on others as well.
    pub users_missing: u32,
    /// Whether the job has already had its retry on other hosts.
    pub was_retried_elsewhere: bool,
}

/// A job that fails in the same way on every host is attributed to itself, and its suspicions against others
/// are withdrawn.
pub(super) fn fails_everywhere(
    ended: &Ended<'_>,
    culprit: Option<&TaskEnd<'_>>,
) -> Option<AttributionOutcome> {
    let signature = Signature::of(culprit?.exit?);
    let mut seen: Vec<BTreeSet<HostId>> = vec![hosts(ended)];
    for past in ended.history.attempts.iter().rev() {
        let is_apart = seen.iter().all(|set| set.is_disjoint(&past.hosts));
        if past.signature == signature && is_apart {
            seen.push(past.hosts.clone());
        }
    }
    if seen.len() < SETS_MIN {
        return None;
    }
    let mut found = AttributionOutcome::new(Step::Everywhere, Class::User, 900)
        .with_evidence(format!(
            "it failed the same way on {} sets of hosts",
            seen.len()
        ))
        .then(&[Measure::BackOff]);
    if signature.is_not_there {
        // An attempt that never started costs no retry: a few in a row end the job.
        found = found.charged_to(Charge::None);
    }
    found.takes_back = true;
    Some(found)
}

/// Attribution by other failures on the same GPU, or with the same image.
pub(super) fn pattern(
    ended: &Ended<'_>,
    culprit: Option<&TaskEnd<'_>>,
) -> Option<AttributionOutcome> {
    let culprit = culprit?;
    on_gpu(ended, culprit).or_else(|| {
        let ImageSpread { jobs, hosts } = ended.history.image;
        if jobs < SPREAD_JOBS_MIN || hosts < SPREAD_HOSTS_MIN {
            return None;
        }
        let evidence_text = format!("{jobs} jobs with this image failed on {hosts} hosts");
        let found = AttributionOutcome::new(Step::Pattern, Class::Software, 600);
        Some(
            found
                .with_evidence(evidence_text)
                .charged_to(Charge::User)
                .then(&[Measure::BackOff]),
        )
    })
}

fn on_gpu(ended: &Ended<'_>, culprit: &TaskEnd<'_>) -> Option<AttributionOutcome> {
    let cause = culprit
        .exit
        .and_then(|exit| evidence::cause(&exit.evidence));
    let often = ended.rules.often_or_usual(HISTORY);
    culprit.gpus.iter().find_map(|gpu| {
        let past = ended.history.gpus.get(gpu).map_or(&[][..], Vec::as_slice);
        let recent: Vec<&UnexplainedFailure> = past
            .iter()
            .filter(|it| ended.at.since(it.at) <= often.span_ms)
            .collect();
        let mut jobs: BTreeSet<JobId> = recent.iter().map(|it| it.job).collect();
        let mut users: BTreeSet<&str> = recent.iter().map(|it| it.user.as_str()).collect();
        jobs.insert(ended.job);
        users.insert(ended.user);
        let evidence_text = || {
            let (jobs, users) = (jobs.len(), users.len());
            let span = often.span();
            format!("{jobs} jobs of {users} users failed on {gpu} within {span}")
        };
        let found = |confidence| {
            let found = AttributionOutcome::new(Step::Pattern, Class::Gpu, confidence);
            found
                .of(Component::Gpu(*gpu))
                .with_evidence(evidence_text())
        };
        let wrong: BTreeSet<JobId> = recent
            .iter()
            .filter(|it| it.cause == Some(Cause::Numbers))
            .map(|it| it.job)
            .collect();
        if cause == Some(Cause::Numbers) {
            let is_suspect =
                wrong.len() + usize::from(!wrong.contains(&ended.job)) >= WRONG_NUMBERS_JOBS_MIN;
            let measures = [Measure::Requeue, Measure::Avoid, Measure::CheckIdle];
            return is_suspect.then(|| found(500).then(&measures));
        }
        if jobs.len() < often.times as usize {
            return None;
        }
        // The users' programs succeed on other GPUs: otherwise they may share a fault.
        let run_well = ended.history.runs_elsewhere && recent.iter().all(|it| it.runs_elsewhere);
        if users.len() < USERS_MIN || !run_well {
            let measures = [next_try(ended), Measure::CheckIdle];
            return Some(found(400).charged_to(Charge::User).then(&measures));
        }
        let measures = [Measure::Requeue, Measure::Avoid, Measure::BlockForCheck];
        Some(found(700).then(&measures))
    })
}

/// No cause found: the user is charged, and one retry on other hosts decides.
pub(super) fn open(ended: &Ended<'_>, culprit: Option<&TaskEnd<'_>>) -> AttributionOutcome {
    let how = culprit.and_then(|culprit| culprit.exit).map(describe);
    AttributionOutcome::new(Step::Open, Class::Unknown, 200)
        .with_evidence(how.unwrap_or_default())
        .then(&[next_try(ended)])
}

/// The first retry after an unexplained failure is on other hosts.
const fn next_try(ended: &Ended<'_>) -> Measure {
    if ended.history.was_retried_elsewhere {
        Measure::BackOff
    } else {
        Measure::RetryElsewhere
    }
}

fn hosts(ended: &Ended<'_>) -> BTreeSet<HostId> {
    ended.tasks.iter().map(|task| task.host).collect()
}

/// Suspicions after an attempt that succeeded where the previous one failed for no known reason: against the
/// hosts of the previous one, if none of them was used again. The outlier is suspected fully, each other host
/// for its share.
#[must_use]
pub fn suspects(
    first: &BTreeSet<HostId>,
    ran_well_on: &BTreeSet<HostId>,
    odd: Option<HostId>,
) -> Vec<Suspicion> {
    if !first.is_disjoint(ran_well_on) {
        return Vec::new();
    }
    let share = 1_000 / u32::try_from(first.len().max(1)).unwrap_or(u32::MAX);
    let suspicion = |host: &HostId| Suspicion {
        component: Component::Host(*host),
        milli: if odd == Some(*host) { 1_000 } else { share },
    };
    first.iter().map(suspicion).collect()
}
