//! Attribution by components that report themselves as broken.

use std::cmp::Reverse;

use muster_model::command::StopReason;
use muster_model::health::{
    Charge, Class, Component, Finding, Measure, Scope, Severity, Step, Weight, with_detail,
};
use muster_model::ids::{GpuUuid, HostId};
use muster_model::time::MINUTE_MS;

use crate::attribution::{AttributionOutcome, Ended, WINDOW_AFTER_MS, WINDOW_BEFORE_MS};
use crate::rules::{TaskAction, XidPolicy};

/// Findings within this span of each other began together: their rank decides the attribution.
const TOGETHER_MS: u64 = 5_000;
/// An NVLink error within this span of another fault of the host is a consequence of it.
const FOLLOWS_MS: u64 = MINUTE_MS;
/// NVLink errors: a dead GPU makes its peers report them.
const NVLINK: u32 = 74;

/// Attribution if anything on the attempt's hosts reports itself as broken.
pub(super) fn find(ended: &Ended<'_>) -> Option<AttributionOutcome> {
    let mut hard: Vec<&Finding> = ended
        .findings
        .iter()
        .filter(|finding| is_in_window(ended, finding) && concerns(ended, &finding.component))
        .filter(|finding| is_hard(ended, finding))
        .collect();
    drop_consequences(&mut hard);
    let first = hard.iter().map(|finding| finding.at).min();
    let Some(first) = first else {
        return unfit(ended);
    };
    let together = hard.iter().filter(|it| it.at.since(first) <= TOGETHER_MS);
    let guilty = together.min_by_key(|it| (Reverse(rank(it)), it.at, it.sequence))?;
    let class = match guilty.component {
        Component::Gpu(_) => Class::Gpu,
        Component::Nic { .. } => Class::Nic,
        Component::Host(_) | Component::Rack(_) => Class::Host,
    };
    let mut found = AttributionOutcome::new(Step::Hard, class, 950)
        .of(guilty.component.clone())
        .with_evidence(with_detail(&guilty.rule, &guilty.evidence))
        .then(&[Measure::Requeue, Measure::Avoid])
        .charged_to(Charge::Infra);
    for other in hard
        .iter()
        .filter(|other| other.sequence != guilty.sequence)
    {
        found = found.with_evidence(with_detail(&other.rule, &other.evidence));
    }
    Some(found)
}

/// Attribution to a GPU or host of the attempt that is unusable, for whatever reason.
fn unfit(ended: &Ended<'_>) -> Option<AttributionOutcome> {
    let (class, component) = match (ended.stop, ended.unfit) {
        (Some(StopReason::GpuFault { gpu }), _) => (Class::Gpu, Component::Gpu(*gpu)),
        (Some(StopReason::HostFault { host }), _) => (Class::Host, Component::Host(*host)),
        (_, Some(gpu)) => (Class::Gpu, Component::Gpu(gpu)),
        _ => return None,
    };
    let reason = format!("{component} is unfit");
    let found = AttributionOutcome::new(Step::Hard, class, 950).of(component);
    Some(
        found
            .with_evidence(reason)
            .then(&[Measure::Requeue, Measure::Avoid]),
    )
}

fn is_in_window(ended: &Ended<'_>, finding: &Finding) -> bool {
    ended.at.since(finding.at) <= WINDOW_BEFORE_MS && finding.at.since(ended.at) <= WINDOW_AFTER_MS
}

/// Whether a component was used by the attempt.
fn concerns(ended: &Ended<'_>, component: &Component) -> bool {
    let has_host = |host: HostId| ended.tasks.iter().any(|task| task.host == host);
    match component {
        Component::Gpu(gpu) => has_gpu(ended, *gpu),
        Component::Nic { host, .. } | Component::Host(host) => has_host(*host),
        Component::Rack(_) => false,
    }
}

fn has_gpu(ended: &Ended<'_>, gpu: GpuUuid) -> bool {
    ended.tasks.iter().any(|task| task.gpus.contains(&gpu))
}

/// Whether a finding proves a fault: its rule blocks with hard evidence, and an XID is one of the hardware.
fn is_hard(ended: &Ended<'_>, finding: &Finding) -> bool {
    let Some(rule) = ended.rules.rule(&finding.rule) else {
        return false;
    };
    if finding.severity < Severity::Degraded || rule.weight != Weight::Hard {
        return false;
    }
    let policy = finding.code.and_then(|code| ended.rules.codes.xid(code));
    match (rule.id == "xid", policy) {
        (true, Some(policy)) => {
            finding.severity == Severity::Fatal && !is_shared(policy) || killed_its_task(policy)
        }
        (true, None) => finding.severity == Severity::Fatal,
        (false, _) => {
            finding.severity == Severity::Fatal && rule.block(Severity::Fatal) != Scope::None
        }
    }
}

/// Whether a fatal XID can also be caused by the program: it then counts once it was repeated.
const fn is_shared(policy: &XidPolicy) -> bool {
    policy.infra_if_repeated
}

/// Whether an XID that leaves the GPU usable ends the affected task: a contained memory error.
fn killed_its_task(policy: &XidPolicy) -> bool {
    policy.charge == Charge::Infra
        && !policy.infra_if_repeated
        && matches!(policy.task, TaskAction::Restart | TaskAction::Kill)
}

/// Drops NVLink errors that are consequences of another fault.
fn drop_consequences(hard: &mut Vec<&Finding>) {
    let others: Vec<_> = hard
        .iter()
        .filter(|it| it.code != Some(NVLINK))
        .map(|it| it.at)
        .collect();
    hard.retain(|it| {
        let follows = |at| it.at.since(at) <= FOLLOWS_MS && at.since(it.at) <= FOLLOWS_MS;
        it.code != Some(NVLINK) || !others.iter().copied().any(follows)
    });
}

/// Rank as the cause among simultaneous findings; higher is more likely.
const fn rank(finding: &Finding) -> u32 {
    match finding.code {
        Some(79) => 4,
        Some(48 | 64 | 95) => 3,
        Some(119 | 120) => 2,
        Some(NVLINK) => 0,
        _ => 1,
    }
}
