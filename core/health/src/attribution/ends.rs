//! Attribution by exit codes, signals and output, from two tables.

use muster_model::command::{Exit, SignalSender};
use muster_model::evidence::{self, Cause};
use muster_model::health::{
    CERTAIN_PERMILLE, Charge, Class, Component, Finding, Measure, Severity, Step, with_detail,
};
use muster_model::ids::HostId;
use muster_model::spec::ExitMeaning;
use muster_model::time::MINUTE_MS;

use crate::attribution::{AttributionOutcome, Ended, LEFTOVER_MIB, TaskEnd};

/// Minimum number of users whose jobs miss files on a host within a day before the host's setup is suspected.
const MISSING_USERS_MIN: u32 = 2;
/// A driver error within this time after the start is attributed to the host.
const START_MS: u64 = MINUTE_MS;
/// Added to signal numbers by shells and engines.
const SIGNAL_BASE: i32 = 128;

/// Rules that indicate a fault of the host's files.
const STORAGE_RULES: &[&str] = &[
    "mount_missing",
    "nfs_hang",
    "fs_readonly",
    "block_io_error",
    "nvme",
    "raid",
];

/// Attribution by the decisive end; `None` if it names no cause.
pub(super) fn by_end(ended: &Ended<'_>, culprit: &TaskEnd<'_>) -> Option<AttributionOutcome> {
    let exit = culprit.exit?;
    let line = exit.evidence.lines().next().unwrap_or_default();
    let how = describe(exit);
    by_exit_rules(ended)
        .or_else(|| by_start_error(ended, culprit, exit))
        .or_else(|| by_memory(culprit, exit))
        .or_else(|| by_output(ended, culprit, &exit.evidence))
        .or_else(|| by_exit(ended, culprit, exit))
        .map(|found| found.with_evidence(line).with_evidence(how))
}

fn user(confidence_permille: u16) -> AttributionOutcome {
    AttributionOutcome::new(Step::ConclusiveEnd, Class::User, confidence_permille)
}

fn no_retry(confidence_permille: u16) -> AttributionOutcome {
    user(confidence_permille).then(&[Measure::NoRetry])
}

fn host(culprit: &TaskEnd<'_>, confidence_permille: u16) -> AttributionOutcome {
    AttributionOutcome::new(Step::ConclusiveEnd, Class::Host, confidence_permille)
        .of(Component::Host(culprit.host))
        .then(&[Measure::Requeue, Measure::Avoid])
}

/// Attribution by the job's own exit rules.
fn by_exit_rules(ended: &Ended<'_>) -> Option<AttributionOutcome> {
    match ended.meaning? {
        ExitMeaning::RetryFree | ExitMeaning::Succeed => Some(user(1_000).charged_to(Charge::None)),
        ExitMeaning::Fail => Some(no_retry(1_000)),
        ExitMeaning::Retry => None,
    }
}

/// Start error: attributed to the host while others can start. A host without the user's account is not
/// faulty, nor is one without files that the job names, unless several users miss files there.
fn by_start_error(
    ended: &Ended<'_>,
    culprit: &TaskEnd<'_>,
    exit: &Exit,
) -> Option<AttributionOutcome> {
    let error = exit.start_error.as_ref()?;
    if exit.is_missing_file() {
        return Some(not_there(ended).with_evidence(error));
    }
    if exit.is_missing_account() {
        let found =
            AttributionOutcome::new(Step::ConclusiveEnd, Class::Site, 1_000).with_evidence(error);
        return Some(found.then(&[Measure::Requeue, Measure::Avoid]));
    }
    Some(host(culprit, 700).with_evidence(error))
}

/// A file named by the job is missing: either the name is wrong, or this host lacks what others have. Another
/// host decides, and no budget is charged.
fn not_there(ended: &Ended<'_>) -> AttributionOutcome {
    let users = ended.history.users_missing;
    let found = match users < MISSING_USERS_MIN {
        true => user(CERTAIN_PERMILLE),
        false => AttributionOutcome::new(Step::ConclusiveEnd, Class::Site, CERTAIN_PERMILLE)
            .with_evidence(format!(
                "jobs of {users} users named missing files on this host"
            )),
    };
    found
        .charged_to(Charge::None)
        .then(&[Measure::Requeue, Measure::Avoid])
}

/// Lack of memory: the task's own limit is attributed to the job, the host's memory is not.
fn by_memory(culprit: &TaskEnd<'_>, exit: &Exit) -> Option<AttributionOutcome> {
    if exit.out_of_memory {
        let evidence_text = exit.memory.map(|memory| {
            const MIB: u64 = 1 << 20;
            let (limit, peak) = (memory.limit_bytes / MIB, memory.peak_bytes / MIB);
            format!("its memory limit of {limit} MiB was reached (it had {peak} MiB)")
        });
        return Some(user(900).with_evidence(evidence_text.unwrap_or_default()));
    }
    exit.was_host_out_of_memory().then(|| host(culprit, 900))
}

/// Table of output patterns.
fn by_output(ended: &Ended<'_>, culprit: &TaskEnd<'_>, text: &str) -> Option<AttributionOutcome> {
    let found = |class, confidence| AttributionOutcome::new(Step::ConclusiveEnd, class, confidence);
    Some(match evidence::cause(text)? {
        Cause::Gpu => match culprit.gpus {
            [gpu] => found(Class::Gpu, 900).of(Component::Gpu(*gpu)),
            _ => found(Class::Gpu, 800).of(Component::Host(culprit.host)),
        }
        .then(&[Measure::Requeue, Measure::Avoid, Measure::CheckIdle]),
        // A broken GPU causes the same texts: other failures on it are consulted first.
        Cause::Kernel => user(600),
        Cause::Driver if culprit.ran_ms <= START_MS => host(culprit, 900),
        Cause::Driver => host(culprit, 500).charged_to(Charge::User),
        Cause::GpuMemory if culprit.held_before_mib > LEFTOVER_MIB => {
            let gpu = culprit.gpus.first().copied();
            let component = gpu.map_or(Component::Host(culprit.host), Component::Gpu);
            let held = format!(
                "{} MiB were in use before it began",
                culprit.held_before_mib
            );
            found(Class::Gpu, 900)
                .of(component)
                .with_evidence(held)
                .then(&[Measure::Requeue, Measure::Avoid])
        }
        Cause::GpuMemory => user(900),
        Cause::Numbers => user(300),
        Cause::Consequence | Cause::Hang | Cause::Cuda | Cause::Other => return None,
        Cause::Network => found(Class::Nic, 500).of(Component::Host(culprit.host)),
        Cause::Program => match storage_at(ended, culprit.host) {
            Some(finding) => storage(finding),
            None => no_retry(900),
        },
        Cause::DiskFull if text.contains("quota") => user(900),
        Cause::DiskFull => host(culprit, 900),
        Cause::Storage => found(Class::Storage, 900).then(&[Measure::BackOff]),
        Cause::SharedMemory => match storage_at(ended, culprit.host) {
            Some(finding) => storage(finding),
            None => user(700),
        },
        Cause::Checkpoint => found(Class::Storage, 900)
            .charged_to(Charge::None)
            .then(&[Measure::PreviousCheckpoint]),
        Cause::Rendezvous => {
            let missing = ended.tasks.iter().find(|task| !task.has_begun)?;
            host(missing, 700).with_evidence(format!("task {} never began", missing.task))
        }
    })
}

/// Table of codes and signals, for ends without a matching output.
fn by_exit(ended: &Ended<'_>, culprit: &TaskEnd<'_>, exit: &Exit) -> Option<AttributionOutcome> {
    let found = |class, confidence| AttributionOutcome::new(Step::ConclusiveEnd, class, confidence);
    if culprit.crashed_in_nccl {
        return Some(found(Class::Software, 800).with_evidence("segmentation fault in NCCL"));
    }
    let by_supervisor = exit.sender == Some(SignalSender::Supervisor);
    Some(match signal(exit) {
        // Asked to stop, and no other reason is known.
        Some(9 | 15) if by_supervisor => found(Class::Scheduler, 900),
        Some(4) => user(600),
        Some(7) => match storage_at(ended, culprit.host) {
            Some(finding) => storage(finding),
            None => user(700),
        },
        Some(8) => user(800),
        Some(11) => user(600),
        Some(_) => return None,
        None => match exit.code? {
            2 | 126 | 127 => no_retry(900),
            _ => return None,
        },
    })
}

fn storage(finding: &Finding) -> AttributionOutcome {
    AttributionOutcome::new(Step::ConclusiveEnd, Class::Storage, 800)
        .of(finding.component.clone())
        .with_evidence(with_detail(&finding.rule, &finding.evidence))
        .then(&[Measure::Requeue, Measure::Avoid])
}

/// Finding that indicates a fault of a host's files.
fn storage_at<'a>(ended: &Ended<'a>, host: HostId) -> Option<&'a Finding> {
    ended.findings.iter().find(|finding| {
        STORAGE_RULES.contains(&finding.rule.as_str())
            && finding.component == Component::Host(host)
            && finding.severity >= Severity::Degraded
            && ended.at.since(finding.at) <= super::WINDOW_BEFORE_MS
            && finding.at.since(ended.at) <= super::WINDOW_AFTER_MS
    })
}

/// The signal that killed it, also if encoded by a shell.
pub(super) fn signal(exit: &Exit) -> Option<i32> {
    let by_code = exit
        .code
        .filter(|code| (SIGNAL_BASE + 1..SIGNAL_BASE + 65).contains(code));
    exit.signal
        .or_else(|| by_code.map(|code| code - SIGNAL_BASE))
}

/// Describes an exit, for users.
pub(super) fn describe(exit: &Exit) -> String {
    match (signal(exit), exit.code) {
        (Some(signal), _) => format!("signal {signal}"),
        (None, Some(code)) => format!("exit code {code}"),
        (None, None) => "no exit code".to_owned(),
    }
}
