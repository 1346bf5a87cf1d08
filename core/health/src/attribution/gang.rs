//! Selection of the decisive task of a gang.

use muster_model::evidence::{self, Cause};
use muster_model::health::{Class, Component, Measure, Step};
use muster_model::ids::HostId;

use crate::attribution::{AttributionOutcome, Ended, Suspicion, TaskEnd};

/// Suspicion against the outlier's host in a hang, in thousandths.
const ODD_MILLI: u32 = 1_000;
/// Suspicion against each other host.
const REST_MILLI: u32 = 100;
/// A GPU above this utilization is working; one below the other bound is not.
const BUSY_PERMILLE: u16 = 900;
const IDLE_PERMILLE: u16 = 100;

/// The task that failed first: among those whose error is not a consequence, the one with the earliest error.
pub(super) fn decisive_task<'a>(tasks: &'a [TaskEnd<'a>]) -> Option<&'a TaskEnd<'a>> {
    let failed = tasks.iter().filter(|task| has_failed(task));
    failed.min_by_key(|task| {
        let text = task.exit.map_or("", |exit| exit.evidence.as_str());
        let is_consequence = evidence::cause(text) == Some(Cause::Consequence);
        // Without a time, an end with a cause is preferred to one without.
        let raised_at_s = evidence::raised_at_s(text).unwrap_or(u64::MAX);
        let has_no_cause = evidence::cause(text).is_none() && !was_killed(task);
        (is_consequence, raised_at_s, has_no_cause, task.task)
    })
}

fn has_failed(task: &TaskEnd<'_>) -> bool {
    let is_bad = |exit: &muster_model::command::Exit| exit.code != Some(0);
    task.exit.is_some_and(is_bad)
}

fn was_killed(task: &TaskEnd<'_>) -> bool {
    task.exit.is_some_and(|exit| exit.signal.is_some())
}

/// A collective operation that did not finish: the task that reports it is usually healthy. The outlier is
/// the rank with the fewest completed steps, or else the one whose GPU alone is idle, or alone is busy. No
/// component is blocked for it.
pub(super) fn hang(ended: &Ended<'_>, culprit: Option<&TaskEnd<'_>>) -> Option<AttributionOutcome> {
    let exit = culprit?.exit?;
    if evidence::cause(&exit.evidence) != Some(Cause::Hang) {
        return None;
    }
    let line = exit.evidence.lines().next().unwrap_or_default();
    let found = AttributionOutcome::new(Step::Hang, Class::Unknown, 300).with_evidence(line);
    let Some((odd, why)) = odd_one(ended.tasks) else {
        return Some(found.then(&[Measure::RetryElsewhere]));
    };
    let mut hosts: Vec<HostId> = ended.tasks.iter().map(|task| task.host).collect();
    hosts.sort_unstable();
    hosts.dedup();
    let suspicions = hosts.into_iter().map(|host| Suspicion {
        component: Component::Host(host),
        milli: if host == odd.host {
            ODD_MILLI
        } else {
            REST_MILLI
        },
    });
    let mut found = found
        .of(Component::Host(odd.host))
        .with_evidence(format!("task {} {why}", odd.task))
        .then(&[Measure::RetryElsewhere]);
    found.suspicions = suspicions.collect();
    Some(found)
}

/// The outlier, and in which respect.
fn odd_one<'a>(tasks: &'a [TaskEnd<'a>]) -> Option<(&'a TaskEnd<'a>, &'static str)> {
    let never = tasks.iter().find(|task| !task.has_begun);
    if let Some(task) = never {
        return Some((task, "never began"));
    }
    if tasks.iter().all(|task| task.step.is_some()) {
        let least = tasks.iter().min_by_key(|task| task.step)?;
        let same = tasks.iter().filter(|task| task.step == least.step);
        return (same.count() == 1).then_some((least, "completed the fewest steps"));
    }
    let busy = |task: &&TaskEnd<'_>| task.busy_permille.is_some_and(|it| it >= BUSY_PERMILLE);
    let idle = |task: &&TaskEnd<'_>| task.busy_permille.is_some_and(|it| it <= IDLE_PERMILLE);
    let count = |is: &dyn Fn(&&TaskEnd<'_>) -> bool| tasks.iter().filter(is).count();
    if tasks.len() > 2 && count(&idle) == 1 && count(&busy) == tasks.len() - 1 {
        return tasks.iter().find(idle).map(|task| (task, "alone was idle"));
    }
    if tasks.len() > 2 && count(&busy) == 1 && count(&idle) == tasks.len() - 1 {
        return tasks.iter().find(busy).map(|task| (task, "alone was busy"));
    }
    None
}
