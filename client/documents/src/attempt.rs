//! Units of a job, their attempts, tasks, claims and checkpoints.

use muster_model::command::StopReason;
use muster_proto::v1;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::attribution::Attribution;
use crate::instant::Instant;
use crate::wire::FromWire;

string_enum! {
    /// Phase of a unit.
    pub enum UnitPhase from v1::UnitPhase {
        Waiting "waiting",
        Placed "placed",
        Running "running",
        Stopping "stopping",
        Succeeded "succeeded",
        Failed "failed",
        Cancelled "cancelled",
    }
}

string_enum! {
    /// Phase of a task.
    pub enum TaskPhase from v1::TaskPhase {
        Assigned "assigned",
        Prepared "prepared",
        Running "running",
        Exited "exited",
        Gone "gone",
        Fenced "fenced",
    }
}

string_enum! {
    /// Cause of a start.
    pub enum RestartReason from v1::RestartReason {
        First "first",
        Preempt "preempt",
        Infra "infra",
        User "user",
        Admin "admin",
    }
}

string_enum! {
    /// Sender of a signal.
    pub enum SignalSender from v1::SignalSender {
        Supervisor "supervisor",
        Kernel "kernel",
        Other "other",
    }
}

documents! {
    /// A unit: the whole gang, or one independent task.
    pub struct Unit from v1::Unit {
        index: u32,
        phase: UnitPhase,
        attempts: u32,
        failures: u32,
        /// Consecutive attempts that were restarted in place.
        local_retries: u32,
        /// Consecutive attempts that failed without a newer checkpoint.
        without_progress: u32,
        /// The value of `without_progress` at which the unit fails; null is no limit.
        without_progress_max: Option<u32>,
        /// Recommended interval between checkpoints; null while the duration of a save is unknown.
        checkpoint_interval_ms: Option<u64>,
        restart_reason: RestartReason,
        not_before: Option<Instant> = not_before_ms,
        attempt: Option<Attempt>,
        /// Its reservation while it waits.
        claim: Option<Claim>,
        past_attempts: Vec<PastAttempt> = past,
        checkpoints: Vec<Checkpoint>,
    }

    /// The current attempt of a unit.
    pub struct Attempt from v1::Attempt {
        epoch: u64,
        number: u32,
        placed_at: Instant = placed_at_ms,
        running_at: Option<Instant> = running_at_ms,
        barrier: Option<Barrier>,
        /// Why it is stopped, for display.
        stop_reason: Option<String> = stop,
        allocation_basis: Option<AllocationBasis> = allocation_basis,
        tasks: Vec<Task>,
        vacancy: Option<Vacancy>,
    }

    /// The barrier that the members of a gang wait for.
    pub struct Barrier from v1::Barrier {
        master_port: Option<u32>,
        released_at: Option<Instant> = released_at_ms,
    }

    /// End of a process.
    pub struct Exit from v1::Exit {
        code: Option<i32>,
        signal: Option<i32>,
        out_of_memory: bool,
        lease_expired: bool,
        memory: Option<Memory>,
        sender: Option<SignalSender>,
        /// Why it did not start.
        start_error: Option<String>,
        /// The evidence line of the task's output, with the time of the error in a second line; may be empty.
        evidence: String,
    }

    /// Memory of a task.
    pub struct Memory from v1::MemoryEnd {
        limit_bytes: u64,
        peak_bytes: u64,
    }

    /// An attempt that ended.
    pub struct PastAttempt from v1::PastAttempt {
        epoch: u64,
        number: u32,
        placed_at: Instant = placed_at_ms,
        running_at: Option<Instant> = running_at_ms,
        ended_at: Instant = ended_at_ms,
        detail: String,
        exit: Option<Exit>,
        hosts: Vec<String>,
        /// Null if it succeeded.
        attribution: Option<Attribution> = attribution,
    }

    /// A committed checkpoint.
    pub struct Checkpoint from v1::Checkpoint {
        epoch: u64,
        step: u64,
        path: String,
        size_bytes: u64,
        digest: String,
        save_ms: Option<u64>,
        /// Why it cannot be read.
        damaged: Option<String> = damaged,
        committed_at: Instant = committed_at_ms,
    }

    /// Resources reserved for a waiting unit.
    pub struct Claim from v1::Claim {
        since: Instant = since_ms,
        expected_at: Option<Instant> = expected_at_ms,
        allocation_basis: Option<AllocationBasis> = allocation_basis,
        /// Attempts that were stopped for it.
        victims: Vec<AttemptName>,
        tasks: Vec<ClaimedTask>,
    }

    /// An attempt of another job.
    pub struct AttemptName from v1::Victim {
        job: u64 = job_id,
        unit: u32,
        epoch: u64,
    }

    /// Location of one task of a claim.
    pub struct ClaimedTask from v1::ClaimedTask {
        index: u32 = task,
        host: String,
        gpus: Vec<String>,
    }
}

/// One task of an attempt.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Task {
    pub index: u32,
    /// Null unless it replaced another member of the gang.
    pub epoch: Option<u64>,
    pub host: String,
    pub gpus: Vec<String>,
    pub phase: TaskPhase,
    pub exit: Option<Exit>,
    /// Last reported training step of a running task.
    pub progress_step: Option<u64>,
}

impl From<v1::TaskRun> for Task {
    fn from(task: v1::TaskRun) -> Self {
        Self {
            index: task.task,
            epoch: task.epoch,
            phase: TaskPhase::from_wire(task.phase),
            host: task.host,
            gpus: task.gpus,
            exit: task.exit.map(Exit::from),
            progress_step: None,
        }
    }
}

from_wire!(Task, v1::TaskRun);

/// A vacant place in a running gang.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Vacancy {
    pub task: u32,
    pub host: String,
    pub since: Instant,
    /// Earliest time of a replacement.
    pub not_before: Instant,
    pub reason: RestartReason,
    /// Whether the end of the member counts as a failure of the job.
    pub charged: bool,
    pub detail: String,
}

impl From<v1::Vacancy> for Vacancy {
    fn from(vacancy: v1::Vacancy) -> Self {
        let run = vacancy.run.unwrap_or_default();
        Self {
            task: run.task,
            host: run.host,
            since: Instant {
                ms: vacancy.since_ms,
            },
            not_before: Instant {
                ms: vacancy.not_before_ms,
            },
            reason: RestartReason::from_wire(vacancy.reason),
            charged: vacancy.charged,
            detail: vacancy.detail,
        }
    }
}

from_wire!(Vacancy, v1::Vacancy);

/// Why an attempt may hold its resources.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AllocationBasis {
    pub kind: BasisKind,
    /// Cells of the queue's virtual cluster.
    pub cells: Vec<String>,
}

string_enum! {
    /// Kind of an allocation basis.
    pub enum BasisKind {
        Share "share",
        Cells "cells",
        Opportunistic "opportunistic",
    }
}

impl From<v1::AllocationBasis> for AllocationBasis {
    fn from(allocation_basis: v1::AllocationBasis) -> Self {
        use v1::allocation_basis::Kind;
        let (kind, cells) = match allocation_basis.kind {
            Some(Kind::Cells(cells)) => {
                let names = cells.cells.into_iter().map(|cell| cell.name);
                (BasisKind::Cells, names.collect())
            }
            Some(Kind::Opportunistic(_)) => (BasisKind::Opportunistic, Vec::new()),
            Some(Kind::Share(_)) | None => (BasisKind::Share, Vec::new()),
        };
        Self { kind, cells }
    }
}

from_wire!(AllocationBasis, v1::AllocationBasis);

impl AllocationBasis {
    /// As text: `opportunistic`, `cells pod-1/rack-07, node07:4`.
    #[must_use]
    pub fn text(&self) -> String {
        if self.cells.is_empty() {
            return self.kind.to_string();
        }
        format!("{} {}", self.kind, self.cells.join(", "))
    }
}

impl Exit {
    /// As text: `exit code 1`, `signal 9 of the kernel, out of memory (limit 32 MiB, peak 32 MiB)`.
    #[must_use]
    pub fn text(&self) -> String {
        let mut text = match (&self.start_error, self.code, self.signal) {
            (Some(error), _, _) => format!("not started: {error}"),
            (None, Some(code), _) => format!("exit code {code}"),
            (None, None, Some(signal)) => format!("signal {signal}{}", self.sender_text()),
            (None, None, None) => "unknown end".to_owned(),
        };
        if self.out_of_memory {
            text.push_str(", out of memory");
            if let Some(memory) = &self.memory {
                let mib = |bytes: u64| bytes >> 20;
                let (limit, peak) = (mib(memory.limit_bytes), mib(memory.peak_bytes));
                text.push_str(&format!(" (limit {limit} MiB, peak {peak} MiB)"));
            }
        }
        if self.lease_expired {
            text.push_str(", lease expired");
        }
        if let Some(evidence) = self.evidence.lines().next() {
            text.push_str(": ");
            text.push_str(evidence);
        }
        text
    }

    /// Sender of the signal, as far as known.
    const fn sender_text(&self) -> &'static str {
        match self.sender {
            Some(SignalSender::Supervisor) => " of its supervisor",
            Some(SignalSender::Kernel) => " of the kernel",
            Some(SignalSender::Other | SignalSender::Unknown) => " of itself or another process",
            None => "",
        }
    }
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
    let joint = known.map_or(": ", |reason| reason.separator());
    format!("{why}{joint}{}", reason.detail)
}

impl FromWire<v1::StopOrder> for String {
    fn from_wire(order: v1::StopOrder) -> Self {
        describe_stop(&order.reason.unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_exit_names_the_sender_of_its_signal_and_the_peak_memory() {
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
            Exit::from(killed).text(),
            "signal 9 of the kernel, out of memory (limit 32 MiB, peak 31 MiB)"
        );
        let old = v1::Exit {
            signal: Some(15),
            ..v1::Exit::default()
        };
        assert_eq!(Exit::from(old).text(), "signal 15");
    }

    #[test]
    fn a_stop_reason_names_its_origin_and_host() {
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
