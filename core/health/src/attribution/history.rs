//! What went before: the same job elsewhere, others on the same GPU, others with the same image.

use std::collections::{BTreeMap, BTreeSet};

use muster_model::command::Exit;
use muster_model::evidence::{self, Cause};
use muster_model::health::{Charge, Class, Component, Measure, Step};
use muster_model::ids::{GpuUuid, HostId, JobId};
use muster_model::time::TimeMs;

use crate::attribution::ends::{describe, signal};
use crate::attribution::{Attribution, Ended, Suspicion, TaskEnd};
use crate::rules::HISTORY;

/// Disjoint sets of hosts on which a job that fails is to blame itself.
const SETS_MIN: usize = 2;
/// Users whose jobs must have failed on a GPU before it is blamed; how many jobs, the rule `history` says.
const USERS_MIN: usize = 2;
/// Jobs and hosts with the same image before that is blamed.
const SPREAD_JOBS_MIN: u32 = 3;
const SPREAD_HOSTS_MIN: u32 = 3;
/// Jobs whose losses were no numbers on a GPU before it is suspected to calculate wrongly.
const WRONG_NUMBERS_JOBS_MIN: usize = 3;

/// How an attempt failed, so far as two can be compared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Signature {
    /// Exit code.
    pub code: Option<i32>,
    /// Signal.
    pub signal: Option<i32>,
    /// What its last words were about.
    pub cause: Option<Cause>,
    /// Whether it could not be started for want of what its job names.
    pub is_not_there: bool,
}

impl Signature {
    /// Of an end.
    #[must_use]
    pub fn of(exit: &Exit) -> Self {
        let signal = signal(exit);
        Self {
            code: exit.code.filter(|_| signal.is_none()),
            signal,
            cause: evidence::cause(&exit.evidence),
            is_not_there: exit.names_what_is_not_there(),
        }
    }
}

/// An earlier attempt of the same job that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PastFailure {
    /// Where it ran.
    pub hosts: BTreeSet<HostId>,
    /// How it failed.
    pub signature: Signature,
}

/// A failure on a GPU that nobody could explain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ambiguous {
    /// Whose.
    pub job: JobId,
    /// Whose job.
    pub user: String,
    /// When.
    pub at: TimeMs,
    /// What its last words were about.
    pub cause: Option<Cause>,
    /// Whether the same user's image has since run well on other GPUs.
    pub runs_elsewhere: bool,
}

/// How far failures with the same image are spread, within a day.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spread {
    /// Jobs.
    pub jobs: u32,
    /// Hosts.
    pub hosts: u32,
}

/// What went before an end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct History {
    /// Failures of the same job since it last saved anything, oldest first.
    pub attempts: Vec<PastFailure>,
    /// Failures on the attempt's GPUs.
    pub gpus: BTreeMap<GpuUuid, Vec<Ambiguous>>,
    /// Others with the same image.
    pub image: Spread,
    /// Whether the user's image runs well on other GPUs.
    pub runs_elsewhere: bool,
    /// Users, this one included, whose jobs missed something on the attempt's host within a day, and not on others as well.
    pub users_missing: u32,
    /// Whether the job has had its one retry on other hosts.
    pub was_retried_elsewhere: bool,
}

/// A job that fails the same way wherever it runs is to blame itself, and takes back what it has cast on others.
pub(super) fn fails_everywhere(
    ended: &Ended<'_>,
    culprit: Option<&TaskEnd<'_>>,
) -> Option<Attribution> {
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
    let mut found = Attribution::new(Step::Everywhere, Class::User, 900)
        .because(format!(
            "it failed the same way on {} sets of hosts",
            seen.len()
        ))
        .then(&[Measure::BackOff]);
    if signature.is_not_there {
        // What never began costs no retry: a few starts in a row end it.
        found = found.charged_to(Charge::None);
    }
    found.takes_back = true;
    Some(found)
}

/// Others failed on the same GPU, or with the same image.
pub(super) fn pattern(ended: &Ended<'_>, culprit: Option<&TaskEnd<'_>>) -> Option<Attribution> {
    let culprit = culprit?;
    on_gpu(ended, culprit).or_else(|| {
        let Spread { jobs, hosts } = ended.history.image;
        if jobs < SPREAD_JOBS_MIN || hosts < SPREAD_HOSTS_MIN {
            return None;
        }
        let told = format!("{jobs} jobs with this image failed on {hosts} hosts");
        let found = Attribution::new(Step::Pattern, Class::Software, 600);
        Some(
            found
                .because(told)
                .charged_to(Charge::User)
                .then(&[Measure::BackOff]),
        )
    })
}

fn on_gpu(ended: &Ended<'_>, culprit: &TaskEnd<'_>) -> Option<Attribution> {
    let cause = culprit
        .exit
        .and_then(|exit| evidence::cause(&exit.evidence));
    let often = ended.rules.often_or_usual(HISTORY);
    culprit.gpus.iter().find_map(|gpu| {
        let past = ended.history.gpus.get(gpu).map_or(&[][..], Vec::as_slice);
        let recent = past
            .iter()
            .filter(|it| ended.at.since(it.at) <= often.span_ms);
        let recent: Vec<&Ambiguous> = recent.collect();
        let mut jobs: BTreeSet<JobId> = recent.iter().map(|it| it.job).collect();
        let mut users: BTreeSet<&str> = recent.iter().map(|it| it.user.as_str()).collect();
        jobs.insert(ended.job);
        users.insert(ended.user);
        let told = || {
            let (jobs, users) = (jobs.len(), users.len());
            let span = often.span();
            format!("{jobs} jobs of {users} users failed on {gpu} within {span}")
        };
        let found = |confidence| {
            let found = Attribution::new(Step::Pattern, Class::Gpu, confidence);
            found.of(Component::Gpu(*gpu)).because(told())
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
        // The users' programs run well where the GPU is another one: otherwise they may share a fault.
        let run_well = ended.history.runs_elsewhere && recent.iter().all(|it| it.runs_elsewhere);
        if users.len() < USERS_MIN || !run_well {
            let measures = [next_try(ended), Measure::CheckIdle];
            return Some(found(400).charged_to(Charge::User).then(&measures));
        }
        let measures = [Measure::Requeue, Measure::Avoid, Measure::BlockForCheck];
        Some(found(700).then(&measures))
    })
}

/// Nothing tells: the user pays, and one retry on other hosts decides.
pub(super) fn open(ended: &Ended<'_>, culprit: Option<&TaskEnd<'_>>) -> Attribution {
    let how = culprit.and_then(|culprit| culprit.exit).map(describe);
    Attribution::new(Step::Open, Class::Unknown, 200)
        .because(how.unwrap_or_default())
        .then(&[next_try(ended)])
}

/// The first retry of what nobody can explain is on other hosts.
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

/// Whom an attempt suspects that ran well where the one before it failed for no known reason: the hosts of the first one, if
/// none of them was used again. The one that stood out is suspected whole, each other one of its share.
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
