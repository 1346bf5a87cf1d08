//! Attribution of attempts' ends: a fixed order of steps, of which the first with an answer decides.
//!
//! Most failures are caused by the program, so the user is charged unless there is proof. In a gang, the
//! earliest error counts and consequences are dropped. An unexplained end is retried once on other hosts.

mod ends;
mod gang;
mod hard;
mod history;

use muster_model::command::{Exit, StopReason};
use muster_model::health::{
    Attribution, Charge, Class, Component, EVIDENCE_LINES_MAX, Finding, Measure, Step,
};
use muster_model::ids::{GpuUuid, HostId, JobId, TaskIndex};
use muster_model::spec::ExitMeaning;
use muster_model::time::{MINUTE_MS, TimeMs};

use crate::rules::RuleSet;

pub use self::history::{
    History, ImageSpread, PastFailure, Signature, UnexplainedFailure, suspects,
};

/// Findings up to this long before an end may explain it (Meta RSC: 10 minutes).
pub const WINDOW_BEFORE_MS: u64 = 10 * MINUTE_MS;
/// And up to this long after it (Meta RSC: 5 minutes).
pub const WINDOW_AFTER_MS: u64 = 5 * MINUTE_MS;
/// GPU memory in use before a task starts above which another task has left memory behind (NVRx: 512 MB).
const LEFTOVER_MIB: u64 = 512;

/// One task of an ended attempt.
#[derive(Clone, Copy, Debug)]
pub struct TaskEnd<'a> {
    /// Index of the task within its job.
    pub task: TaskIndex,
    /// Host of the task.
    pub host: HostId,
    /// Its GPUs.
    pub gpus: &'a [GpuUuid],
    /// Its exit; `None` if unknown because its worker is lost.
    pub exit: Option<&'a Exit>,
    /// Whether its process ever started.
    pub has_begun: bool,
    /// Run time in milliseconds.
    pub ran_ms: u64,
    /// Last training step it reported, if any.
    pub step: Option<u64>,
    /// Utilization of its GPUs at the end, per mille, if measured.
    pub busy_permille: Option<u16>,
    /// Memory in use on its GPUs before its start, in MiB.
    pub held_before_mib: u64,
    /// Whether the kernel reported a segmentation fault inside NCCL.
    pub crashed_in_nccl: bool,
}

/// An attempt that ended in failure.
#[derive(Clone, Copy, Debug)]
pub struct Ended<'a> {
    /// The job.
    pub job: JobId,
    /// User who owns the job.
    pub user: &'a str,
    /// Its tasks.
    pub tasks: &'a [TaskEnd<'a>],
    /// Reason of a stop requested before any of its tasks had failed, if any.
    pub stop: Option<&'a StopReason>,
    /// The task that decided the end, if known; otherwise the first error of its tasks counts.
    pub decisive: Option<TaskIndex>,
    /// A host whose lease expired or that was rebooted.
    pub gone_host: Option<HostId>,
    /// A GPU of it that its worker reports as unusable.
    pub unfit: Option<GpuUuid>,
    /// Meaning of its decisive end by the job's own rules.
    pub meaning: Option<ExitMeaning>,
    /// Time of the end.
    pub at: TimeMs,
    /// Findings on its hosts; only those within the window are considered.
    pub findings: &'a [Finding],
    /// The rules in force.
    pub rules: &'a RuleSet,
    /// History before the end.
    pub history: &'a History,
}

/// A suspicion to add to a component.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Suspicion {
    /// The component.
    pub component: Component,
    /// Weight in thousandths: 1,000 is one certain failure.
    pub milli: u32,
}

/// Attribution of an end, and the resulting changes of host records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttributionOutcome {
    /// Attributed component, confidence and charge.
    pub attribution: Attribution,
    /// New suspicions.
    pub suspicions: Vec<Suspicion>,
    /// Whether all suspicions caused by the job are withdrawn.
    pub takes_back: bool,
}

impl AttributionOutcome {
    fn new(step: Step, class: Class, confidence_permille: u16) -> Self {
        let charge = match class {
            Class::User | Class::Unknown => Charge::User,
            Class::Scheduler | Class::Site => Charge::None,
            Class::Software | Class::Gpu | Class::Host | Class::Nic | Class::Storage => {
                Charge::Infra
            }
        };
        Self {
            attribution: Attribution {
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
        self.attribution.component = Some(component);
        self
    }

    fn with_evidence(mut self, evidence: impl Into<String>) -> Self {
        let evidence = evidence.into();
        let lines = &mut self.attribution.evidence;
        if !evidence.is_empty() && lines.len() < EVIDENCE_LINES_MAX {
            lines.push(evidence);
        }
        self
    }

    fn then(mut self, measures: &[Measure]) -> Self {
        self.attribution.measures = measures.to_vec();
        self
    }

    fn charged_to(mut self, charge: Charge) -> Self {
        self.attribution.charge = charge;
        self
    }
}

/// Attributes an end.
#[must_use]
pub fn attribute(ended: &Ended<'_>) -> AttributionOutcome {
    let by_rule = scheduler(ended).or_else(|| host_gone(ended));
    if let Some(found) = by_rule.or_else(|| hard::find(ended)) {
        return found;
    }
    let task_of = |of: TaskIndex| ended.tasks.iter().find(|task| task.task == of);
    let decisive = ended.decisive.and_then(task_of);
    let culprit = decisive.or_else(|| gang::decisive_task(ended.tasks));
    if let Some(found) = history::fails_everywhere(ended, culprit) {
        return found;
    }
    let by_end = culprit.and_then(|culprit| ends::by_end(ended, culprit));
    // A result of low confidence yields to the history of others.
    match by_end {
        Some(by_end) if !by_end.attribution.is_open() => by_end,
        by_end => gang::hang(ended, culprit)
            .or_else(|| history::pattern(ended, culprit))
            .or(by_end)
            .unwrap_or_else(|| history::open(ended, culprit)),
    }
}

/// Ended by the scheduler: no budget is charged.
fn scheduler(ended: &Ended<'_>) -> Option<AttributionOutcome> {
    let reason = ended.stop?;
    let found = || AttributionOutcome::new(Step::Scheduler, Class::Scheduler, 1_000);
    match reason {
        StopReason::Cancelled | StopReason::TimeLimit => {
            Some(found().then(&[]).with_evidence(reason.to_string()))
        }
        StopReason::Drain { .. }
        | StopReason::Preempted
        | StopReason::Defragmented
        | StopReason::Suspended
        | StopReason::AssemblyTimeout => Some(found().with_evidence(reason.to_string())),
        // The cause is in the end of a member.
        StopReason::MemberFailed
        | StopReason::MemberLost
        | StopReason::NotSwapped
        | StopReason::HostFault { .. }
        | StopReason::GpuFault { .. } => None,
    }
}

/// A lost host ended the attempt.
fn host_gone(ended: &Ended<'_>) -> Option<AttributionOutcome> {
    let is_lost = |task: &&TaskEnd<'_>| match task.exit {
        Some(exit) => exit.lease_expired,
        // A task that never started is lost with the first task that ended.
        None => task.has_begun,
    };
    let lost = ended.tasks.iter().find(is_lost).map(|task| task.host);
    let host = ended.gone_host.or(lost)?;
    let found = AttributionOutcome::new(Step::HostGone, Class::Host, 950).of(Component::Host(host));
    Some(
        found
            .with_evidence(format!("host {host} was lost"))
            .then(&[Measure::Requeue, Measure::Avoid]),
    )
}

#[cfg(test)]
mod tests;
