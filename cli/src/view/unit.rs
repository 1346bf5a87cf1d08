//! A unit of a job with its attempts.

use muster_model::command::StopReason;
use muster_proto::v1;
use serde::Serialize;

use crate::output::instant;
use crate::view::blame::BlameView;
use crate::view::standing::{ClaimView, StandingView};
use crate::view::word::word;

/// A unit: the whole gang, or one independent task.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct UnitView {
    pub(crate) index: u32,
    pub(crate) phase: String,
    pub(crate) attempts: u32,
    failures: u32,
    pub(crate) local_retries: u32,
    pub(crate) without_progress: u32,
    pub(crate) without_progress_max: Option<u32>,
    pub(crate) checkpoint_interval_ms: Option<u64>,
    pub(crate) restart_reason: String,
    not_before: Option<String>,
    pub(crate) attempt: Option<AttemptView>,
    pub(crate) claim: Option<ClaimView>,
    pub(crate) past: Vec<PastAttemptView>,
    pub(crate) checkpoints: Vec<CheckpointView>,
}

/// The current attempt.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct AttemptView {
    pub(crate) epoch: u64,
    pub(crate) number: u32,
    placed_at: String,
    running_at: Option<String>,
    pub(crate) barrier: Option<BarrierView>,
    pub(crate) stop_reason: Option<String>,
    pub(crate) standing: Option<StandingView>,
    pub(crate) tasks: Vec<TaskView>,
    pub(crate) vacancy: Option<VacancyView>,
}

/// A vacant place in a running gang.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct VacancyView {
    pub(crate) task: u32,
    pub(crate) host: String,
    since: String,
    not_before: String,
    reason: String,
    charged: bool,
    pub(crate) detail: String,
}

/// Barrier that the members of a gang wait for.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct BarrierView {
    master_port: Option<u32>,
    released_at: Option<String>,
}

/// One task of an attempt.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct TaskView {
    pub(crate) index: u32,
    pub(crate) epoch: Option<u64>,
    pub(crate) host: String,
    pub(crate) gpus: Vec<String>,
    pub(crate) phase: String,
    pub(crate) exit: Option<ExitView>,
    pub(crate) progress_step: Option<u64>,
}

/// End of a process.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct ExitView {
    code: Option<i32>,
    signal: Option<i32>,
    out_of_memory: bool,
    lease_expired: bool,
    memory: Option<MemoryView>,
    sender: Option<String>,
    start_error: Option<String>,
    evidence: String,
}

/// Memory usage of a task.
#[derive(Clone, Copy, Debug, Serialize)]
struct MemoryView {
    limit_bytes: u64,
    peak_bytes: u64,
}

/// An attempt that ended.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct PastAttemptView {
    epoch: u64,
    pub(crate) number: u32,
    placed_at: String,
    running_at: Option<String>,
    ended_at: String,
    pub(crate) detail: String,
    exit: Option<ExitView>,
    pub(crate) hosts: Vec<String>,
    pub(crate) blame: Option<BlameView>,
    #[serde(skip)]
    pub(crate) lasted_ms: u64,
}

/// A committed checkpoint.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct CheckpointView {
    epoch: u64,
    pub(crate) step: u64,
    pub(crate) path: String,
    size_bytes: u64,
    digest: String,
    save_ms: Option<u64>,
    pub(crate) spoiled: Option<String>,
    committed_at: String,
    #[serde(skip)]
    pub(crate) committed_at_ms: u64,
}

impl From<v1::Unit> for UnitView {
    fn from(unit: v1::Unit) -> Self {
        Self {
            index: unit.index,
            phase: word(unit.phase().as_str_name(), "UNIT_PHASE_"),
            attempts: unit.attempts,
            failures: unit.failures,
            local_retries: unit.local_retries,
            without_progress: unit.without_progress,
            without_progress_max: unit.without_progress_max,
            checkpoint_interval_ms: unit.checkpoint_interval_ms,
            restart_reason: word(unit.restart_reason().as_str_name(), "RESTART_REASON_"),
            not_before: (unit.not_before_ms > 0).then(|| instant(unit.not_before_ms)),
            attempt: unit.attempt.map(AttemptView::from),
            claim: unit.claim.map(ClaimView::from),
            past: unit.past.into_iter().map(PastAttemptView::from).collect(),
            checkpoints: unit
                .checkpoints
                .into_iter()
                .map(CheckpointView::from)
                .collect(),
        }
    }
}

impl From<v1::Attempt> for AttemptView {
    fn from(attempt: v1::Attempt) -> Self {
        let stop_reason = attempt.stop.as_ref().and_then(|stop| stop.reason.as_ref());
        Self {
            epoch: attempt.epoch,
            number: attempt.number,
            placed_at: instant(attempt.placed_at_ms),
            running_at: attempt.running_at_ms.map(instant),
            barrier: attempt.barrier.map(BarrierView::from),
            stop_reason: stop_reason.map(describe_stop),
            standing: attempt.standing.as_ref().map(StandingView::from),
            tasks: attempt.tasks.into_iter().map(TaskView::from).collect(),
            vacancy: attempt.vacancy.map(VacancyView::from),
        }
    }
}

impl From<v1::Vacancy> for VacancyView {
    fn from(vacancy: v1::Vacancy) -> Self {
        let reason = word(vacancy.reason().as_str_name(), "RESTART_REASON_");
        let run = vacancy.run.unwrap_or_default();
        Self {
            task: run.task,
            host: run.host,
            since: instant(vacancy.since_ms),
            not_before: instant(vacancy.not_before_ms),
            reason,
            charged: vacancy.charged,
            detail: vacancy.detail,
        }
    }
}

impl From<v1::Barrier> for BarrierView {
    fn from(barrier: v1::Barrier) -> Self {
        Self {
            master_port: barrier.master_port,
            released_at: barrier.released_at_ms.map(instant),
        }
    }
}

impl AttemptView {
    /// Progress of its gang as text: `3 of 8 members are prepared`; `None` if they begin one by one, or
    /// already ran.
    pub(crate) fn assembly(&self) -> Option<String> {
        let barrier = self
            .barrier
            .as_ref()
            .filter(|_| self.running_at.is_none())?;
        let all = self.tasks.len();
        let count = |words: &[&str]| {
            let tasks = self.tasks.iter();
            tasks.filter(|task| words.contains(&&*task.phase)).count()
        };
        Some(match &barrier.released_at {
            None => format!("{} of {all} members are prepared", count(&["prepared"])),
            Some(_) => {
                let begun = all - count(&["assigned", "prepared"]);
                format!("all members are prepared, {begun} of {all} have begun")
            }
        })
    }
}

impl From<v1::TaskRun> for TaskView {
    fn from(task: v1::TaskRun) -> Self {
        Self {
            index: task.task,
            epoch: task.epoch,
            phase: word(task.phase().as_str_name(), "TASK_PHASE_"),
            host: task.host,
            gpus: task.gpus,
            exit: task.exit.map(ExitView::from),
            progress_step: None,
        }
    }
}

impl From<v1::Exit> for ExitView {
    fn from(exit: v1::Exit) -> Self {
        let sender = match exit.sender() {
            v1::SignalSender::Unspecified => None,
            sender => Some(word(sender.as_str_name(), "SIGNAL_SENDER_")),
        };
        Self {
            code: exit.code,
            signal: exit.signal,
            out_of_memory: exit.out_of_memory,
            lease_expired: exit.lease_expired,
            memory: exit.memory.map(|memory| MemoryView {
                limit_bytes: memory.limit_bytes,
                peak_bytes: memory.peak_bytes,
            }),
            sender,
            start_error: exit.start_error,
            evidence: exit.evidence,
        }
    }
}

impl From<v1::PastAttempt> for PastAttemptView {
    fn from(past: v1::PastAttempt) -> Self {
        Self {
            epoch: past.epoch,
            number: past.number,
            placed_at: instant(past.placed_at_ms),
            running_at: past.running_at_ms.map(instant),
            ended_at: instant(past.ended_at_ms),
            lasted_ms: past.ended_at_ms.saturating_sub(past.placed_at_ms),
            detail: past.detail,
            exit: past.exit.map(ExitView::from),
            hosts: past.hosts,
            blame: past.blame.map(BlameView::from),
        }
    }
}

impl From<v1::Checkpoint> for CheckpointView {
    fn from(checkpoint: v1::Checkpoint) -> Self {
        Self {
            epoch: checkpoint.epoch,
            step: checkpoint.step,
            path: checkpoint.path,
            size_bytes: checkpoint.size_bytes,
            digest: checkpoint.digest,
            save_ms: checkpoint.save_ms,
            spoiled: checkpoint.spoiled,
            committed_at: instant(checkpoint.committed_at_ms),
            committed_at_ms: checkpoint.committed_at_ms,
        }
    }
}

impl ExitView {
    /// As text: `exit code 1`, `signal 9 of the kernel, out of memory (limit 32 MiB, peak 32 MiB)`.
    pub(crate) fn text(&self) -> String {
        let mut text = match (&self.start_error, self.code, self.signal) {
            (Some(error), _, _) => format!("not started: {error}"),
            (None, Some(code), _) => format!("exit code {code}"),
            (None, None, Some(signal)) => format!("signal {signal}{}", self.sender_text()),
            (None, None, None) => "unknown end".to_owned(),
        };
        if self.out_of_memory {
            text.push_str(", out of memory");
            if let Some(memory) = self.memory {
                let mib = |bytes: u64| bytes >> 20;
                let (limit, peak) = (mib(memory.limit_bytes), mib(memory.peak_bytes));
                text.push_str(&format!(" (limit {limit} MiB, peak {peak} MiB)"));
            }
        }
        if self.lease_expired {
            text.push_str(", lease expired");
        }
        if let Some(telling) = self.evidence.lines().next() {
            text.push_str(": ");
            text.push_str(telling);
        }
        text
    }
}

impl ExitView {
    /// Sender of the signal, as far as known.
    fn sender_text(&self) -> &'static str {
        match self.sender.as_deref() {
            Some("supervisor") => " of its supervisor",
            Some("kernel") => " of the kernel",
            Some(_) => " of itself or another process",
            None => "",
        }
    }
}

/// End of a process as text.
pub(crate) fn describe_exit(exit: v1::Exit) -> String {
    ExitView::from(exit).text()
}

/// Reason why an attempt is stopped as text, with its evidence.
pub(crate) fn describe_stop(reason: &v1::StopReason) -> String {
    use v1::stop_reason::Kind;
    let host = |id: u32| match &*reason.host {
        "" => format!("host #{id}"),
        name => format!("host {name}"),
    };
    let why = match &reason.kind {
        Some(Kind::Cancelled(_)) => "the job was cancelled".to_owned(),
        Some(Kind::MemberFailed(_)) => "a task of the gang failed".to_owned(),
        Some(Kind::MemberLost(_)) => "a task of the gang was lost".to_owned(),
        Some(Kind::GpuFault(gpu)) => format!("{gpu} is unfit"),
        Some(Kind::HostFaultId(id)) => format!("{} cannot work", host(*id)),
        Some(Kind::DrainHostId(id)) => format!("{} is drained", host(*id)),
        Some(Kind::Preempted(_)) => "a higher priority needs the resources".to_owned(),
        Some(Kind::RunTime(_)) => "time limit reached".to_owned(),
        Some(Kind::Assembly(_)) => "its members did not all start in time".to_owned(),
        Some(Kind::Moved(_)) => "moved to make contiguous room".to_owned(),
        Some(Kind::Suspended(_)) => "the job was suspended".to_owned(),
        Some(Kind::NotSwapped(_)) => "a vacancy was not filled in time".to_owned(),
        None => "a reason that this version does not know".to_owned(),
    };
    if reason.detail.is_empty() {
        return why;
    }
    let known = StopReason::try_from(reason.clone());
    let joint = known.map_or(": ", |reason| reason.joint());
    format!("{why}{joint}{}", reason.detail)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_says_whose_signal_it_was_and_what_the_memory_came_to() {
        let killed = v1::Exit {
            signal: Some(9),
            out_of_memory: true,
            memory: Some(v1::MemoryEnd {
                limit_bytes: 32 << 20,
                peak_bytes: 31 << 20,
            }),
            sender: v1::SignalSender::Kernel.into(),
            ..v1::Exit::default()
        };
        assert_eq!(
            describe_exit(killed),
            "signal 9 of the kernel, out of memory (limit 32 MiB, peak 31 MiB)"
        );
        let old = v1::Exit {
            signal: Some(15),
            ..v1::Exit::default()
        };
        assert_eq!(describe_exit(old), "signal 15");
    }

    #[test]
    fn a_stop_says_who_wanted_it_and_names_its_host() {
        use v1::stop_reason::{Kind, Plain};
        let drained = v1::StopReason {
            kind: Some(Kind::DrainHostId(7)),
            detail: "by grace: a new disk".to_owned(),
            host: "node-0007".to_owned(),
        };
        assert_eq!(
            describe_stop(&drained),
            "host node-0007 is drained by grace: a new disk"
        );
        let preempted = v1::StopReason {
            kind: Some(Kind::Preempted(Plain {})),
            detail: "job 30 (urgent), unit 0, of queue research with priority 5".to_owned(),
            ..v1::StopReason::default()
        };
        assert_eq!(
            describe_stop(&preempted),
            "a higher priority needs the resources: job 30 (urgent), unit 0, of queue research with priority 5"
        );
        let old = v1::StopReason {
            kind: Some(Kind::HostFaultId(7)),
            ..v1::StopReason::default()
        };
        assert_eq!(describe_stop(&old), "host #7 cannot work");
    }
}
