//! Whose fault an attempt's end was: a fixed order of questions, the first that has an answer decides.
//!
//! Most failures are the program's own, so the user is blamed unless there is proof. Of a gang, the earliest error counts
//! and consequences are dropped. What stays open is tried once more on other hosts.

mod ends;
mod gang;
mod hard;
mod history;


use muster_model::command::{Exit, StopReason};
use muster_model::health::{
    Blame, Charge, Class, Component, EVIDENCE_LINES_MAX, Finding, Measure, Step,
};
use muster_model::ids::{GpuUuid, HostId, JobId, TaskIndex};
use muster_model::spec::ExitMeaning;
use muster_model::time::{MINUTE_MS, TimeMs};

use crate::rules::RuleSet;

pub use self::history::{Ambiguous, History, PastFailure, Signature, Spread, suspects};

/// Findings so long before an end may explain it (Meta RSC: 10 minutes).
pub const WINDOW_BEFORE_MS: u64 = 10 * MINUTE_MS;
/// And so long after it (Meta RSC: 5 minutes).
pub const WINDOW_AFTER_MS: u64 = 5 * MINUTE_MS;
/// A GPU whose memory held more than this before a task began had leftovers of another one (NVRx: 512 MB).
const LEFTOVER_MIB: u64 = 512;

/// One task of an attempt that ended.
#[derive(Clone, Copy, Debug)]
pub struct TaskEnd<'a> {
    /// Which.
    pub task: TaskIndex,
    /// Where it ran.
    pub host: HostId,
    /// On which GPUs.
    pub gpus: &'a [GpuUuid],
    /// How it ended; none if nobody could tell because its worker is lost.
    pub exit: Option<&'a Exit>,
    /// Whether its process ever began.
    pub has_begun: bool,
    /// Milliseconds that it ran.
    pub ran_ms: u64,
    /// The training step that it last said it was at, if it told any.
    pub step: Option<u64>,
    /// How busy its GPUs were at the end, per mille, if that was read.
    pub busy_permille: Option<u16>,
    /// Memory in use on its GPUs before it began, in MiB.
    pub held_before_mib: u64,
    /// Whether the kernel reported a segmentation fault inside NCCL.
    pub crashed_in_nccl: bool,
}

/// An attempt that ended badly.
#[derive(Clone, Copy, Debug)]
pub struct Ended<'a> {
    /// Whose.
    pub job: JobId,
    /// Whose job.
    pub user: &'a str,
    /// Its tasks.
    pub tasks: &'a [TaskEnd<'a>],
    /// Why it was told to stop, if it was, before any of its tasks had failed.
    pub stop: Option<&'a StopReason>,
    /// The task that decided the end, if that is known; else the first error of its tasks counts.
    pub decisive: Option<TaskIndex>,
    /// A host whose lease ran out or that was rebooted.
    pub gone_host: Option<HostId>,
    /// A GPU of it that its worker calls unfit.
    pub unfit: Option<GpuUuid>,
    /// What the job itself says that its decisive end means.
    pub meaning: Option<ExitMeaning>,
    /// When it ended.
    pub at: TimeMs,
    /// What was found on its hosts; only what lies in the window is looked at.
    pub findings: &'a [Finding],
    /// The rules that count.
    pub rules: &'a RuleSet,
    /// What went before.
    pub history: &'a History,
}

/// A suspicion to add to a component, in thousandths.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Suspicion {
    /// Of whom.
    pub component: Component,
    /// How much: 1,000 is one failure that was certainly there.
    pub milli: u32,
}

/// Whose fault an end was, and what that means for what is remembered of hosts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attribution {
    /// Whose.
    pub blame: Blame,
    /// Who is suspected from now on.
    pub suspicions: Vec<Suspicion>,
    /// Whether all suspicion that the job has caused is taken back.
    pub takes_back: bool,
}

impl Attribution {
    fn new(step: Step, class: Class, confidence_permille: u16) -> Self {
        let charge = match class {
            Class::User | Class::Unknown => Charge::User,
            Class::Scheduler | Class::Site => Charge::None,
            Class::Software | Class::Gpu | Class::Host | Class::Nic | Class::Storage => {
                Charge::Infra
            }
        };
        Self {
            blame: Blame {
                class,
                component: None,
                confidence_permille,
                evidence: Vec::new(),
                charge,
                measures: vec![Measure::Requeue],
                step,
            },
            suspicions: Vec::new(),
            takes_back: false,
        }
    }

    fn of(mut self, component: Component) -> Self {
        self.blame.component = Some(component);
        self
    }

    fn because(mut self, evidence: impl Into<String>) -> Self {
        let evidence = evidence.into();
        let lines = &mut self.blame.evidence;
        if !evidence.is_empty() && lines.len() < EVIDENCE_LINES_MAX {
            lines.push(evidence);
        }
        self
    }

    fn then(mut self, measures: &[Measure]) -> Self {
        self.blame.measures = measures.to_vec();
        self
    }

    fn charged_to(mut self, charge: Charge) -> Self {
        self.blame.charge = charge;
        self
    }
}

/// Says whose fault an end was.
#[must_use]
pub fn attribute(ended: &Ended<'_>) -> Attribution {
    let by_rule = scheduler(ended).or_else(|| host_gone(ended));
    if let Some(found) = by_rule.or_else(|| hard::find(ended)) {
        return found;
    }
    let decisive = |of: TaskIndex| ended.tasks.iter().find(|task| task.task == of);
    let culprit = { ended.decisive.and_then(decisive) }.or_else(|| gang::culprit(ended.tasks));
    if let Some(found) = history::fails_everywhere(ended, culprit) {
        return found;
    }
    let told = culprit.and_then(|culprit| ends::told(ended, culprit));
    // What is said in a low voice gives way to what others went through.
    match told {
        Some(told) if !told.blame.is_open() => told,
        told => gang::hang(ended, culprit)
            .or_else(|| history::pattern(ended, culprit))
            .or(told)
            .unwrap_or_else(|| history::open(ended, culprit)),
    }
}

/// The scheduler's own doing: nobody pays.
fn scheduler(ended: &Ended<'_>) -> Option<Attribution> {
    let reason = ended.stop?;
    let found = || Attribution::new(Step::Scheduler, Class::Scheduler, 1_000);
    match reason {
        StopReason::Cancelled | StopReason::RunTime => {
            Some(found().then(&[]).because(reason.to_string()))
        }
        StopReason::Drain { .. }
        | StopReason::Preempted
        | StopReason::Moved
        | StopReason::Suspended
        | StopReason::Assembly => Some(found().because(reason.to_string())),
        // Their cause lies in how a member ended.
        StopReason::MemberFailed
        | StopReason::MemberLost
        | StopReason::NotSwapped
        | StopReason::HostFault { .. }
        | StopReason::GpuFault { .. } => None,
    }
}

/// A host that is gone took the attempt with it.
fn host_gone(ended: &Ended<'_>) -> Option<Attribution> {
    let is_lost = |task: &&TaskEnd<'_>| match task.exit {
        Some(exit) => exit.lease_expired,
        // What never began is lost with whoever ended first.
        None => task.has_begun,
    };
    let lost = ended.tasks.iter().find(is_lost).map(|task| task.host);
    let host = ended.gone_host.or(lost)?;
    let found = Attribution::new(Step::HostGone, Class::Host, 950).of(Component::Host(host));
    Some(
        found
            .because(format!("host {host} was lost"))
            .then(&[Measure::Requeue, Measure::Avoid]),
    )
}

#[cfg(test)]
mod tests;
