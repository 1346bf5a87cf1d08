//! Jobs, their specifications and the answers to requests about them.

use std::collections::BTreeMap;

use muster_job_file::JobFile;
use muster_proto::v1;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::attempt::Unit;
use crate::instant::Instant;
use crate::wire::FromWire as _;

string_enum! {
    /// Phase of a job.
    pub enum JobPhase from v1::JobPhase {
        Queued "queued",
        Running "running",
        Cancelling "cancelling",
        Succeeded "succeeded",
        Failed "failed",
        Cancelled "cancelled",
    }
}

/// A job without its units.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Job {
    pub id: u64,
    pub name: String,
    pub user: String,
    pub queue: String,
    pub priority: i32,
    /// Whether all tasks start together or not at all.
    pub gang: bool,
    pub phase: JobPhase,
    pub tasks: u64,
    pub gpus_requested: u64,
    pub gpus_held: u64,
    pub units: UnitCounts,
    pub submitted_at: Instant,
    pub finished_at: Option<Instant>,
    /// Why it failed; empty otherwise.
    pub finish_reason: String,
    pub cancel: Option<UserRequest>,
    /// While it is suspended; `phase` is unchanged.
    pub suspension: Option<UserRequest>,
    /// The pipeline that contains it.
    pub pipeline: Option<PipelineName>,
    /// Fraction of the time since its first placement that went into kept work (ETTR).
    pub kept_permille: Option<u32>,
    pub ledger: Option<Ledger>,
}

/// The pipeline that contains a job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PipelineName {
    pub id: u64,
    pub name: String,
}

documents! {
    /// Number of units in each phase.
    pub struct UnitCounts from v1::UnitCounts {
        waiting: u64,
        placed: u64,
        running: u64,
        stopping: u64,
        succeeded: u64,
        failed: u64,
        cancelled: u64,
    }

    /// Author, reason and time of a cancellation or a suspension.
    pub struct UserRequest from v1::CancelRequest {
        author: String,
        reason: String,
        at: Instant = at_ms,
    }

    /// GPU time of ended attempts by use, in milliseconds times GPUs; a unit without GPUs counts as one.
    pub struct Ledger from v1::Ledger {
        kept_gpu_ms: u64,
        /// Paused in place while the job was suspended: neither work nor lost, but included in the base of
        /// `kept_permille`.
        paused_gpu_ms: u64 = paused_gpu_ms,
        /// The first start.
        first: Loss,
        preempt: Loss,
        infra: Loss,
        user: Loss,
        admin: Loss,
    }

    /// GPU time lost to one cause.
    pub struct Loss from v1::Loss {
        queue_gpu_ms: u64,
        restart_gpu_ms: u64,
        /// Work since the last checkpoint.
        work_gpu_ms: u64,
    }
}

impl From<v1::Suspension> for UserRequest {
    fn from(suspension: v1::Suspension) -> Self {
        Self {
            author: suspension.author,
            reason: suspension.reason,
            at: Instant {
                ms: suspension.at_ms,
            },
        }
    }
}

impl From<v1::Job> for Job {
    fn from(job: v1::Job) -> Self {
        let spec = job.spec.unwrap_or_default();
        let count = |group: &v1::TaskGroup| u64::from(group.count.unwrap_or(1));
        let gpus = |group: &v1::TaskGroup| {
            let each = group.resources.as_ref().map_or(0, |needs| needs.gpus);
            count(group) * u64::from(each)
        };
        Self {
            id: job.id,
            tasks: spec.groups.iter().map(count).sum(),
            gpus_requested: spec.groups.iter().map(gpus).sum(),
            name: spec.name,
            user: spec.user,
            queue: spec.queue.unwrap_or_default(),
            priority: spec.priority,
            gang: spec.gang,
            phase: JobPhase::from_wire(job.phase),
            gpus_held: job.gpus_held,
            units: UnitCounts::from_wire(job.counts),
            submitted_at: Instant {
                ms: job.submitted_at_ms,
            },
            finished_at: job.finished_at_ms.map(|ms| Instant { ms }),
            finish_reason: job.finish_reason,
            cancel: job.cancel.map(UserRequest::from),
            suspension: job.suspension.map(UserRequest::from),
            pipeline: job.pipeline_id.map(|id| PipelineName {
                id,
                name: job.pipeline,
            }),
            kept_permille: job.kept_permille,
            ledger: job.ledger.map(Ledger::from),
        }
    }
}

/// A job, its specification and its units.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct JobDetail {
    pub revision: u64,
    #[serde(flatten)]
    pub job: Job,
    /// A job file (docs/job-file.md), which can be submitted again.
    #[schemars(with = "BTreeMap<String, Value>")]
    pub spec: JobFile,
    pub unit_list: Vec<Unit>,
    /// Whether there are more units than requested.
    pub more_units: bool,
}

impl JobDetail {
    /// A job with its units, read at a revision.
    #[must_use]
    pub fn new(revision: u64, job: v1::Job, units: Vec<v1::Unit>, more_units: bool) -> Self {
        let spec = job.spec.as_ref().map(JobFile::from);
        Self {
            revision,
            spec: spec.unwrap_or_default(),
            job: Job::from(job),
            unit_list: units.into_iter().map(Unit::from).collect(),
            more_units,
        }
    }

    /// Adds the progress reported by tasks of the running attempts.
    pub fn add_progress(&mut self, reported: &[v1::TaskProgress]) {
        let units = self.unit_list.iter_mut();
        for attempt in units.filter_map(|unit| unit.attempt.as_mut()) {
            for task in &mut attempt.tasks {
                let own = (task.index, task.epoch.unwrap_or(attempt.epoch));
                let of_task = |it: &&v1::TaskProgress| (it.task, it.epoch) == own;
                task.progress_step = reported.iter().find(of_task).map(|it| it.step);
            }
        }
    }
}

/// The answer to the submission of a job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SubmittedJob {
    /// 0 in a dry run.
    pub job: u64,
    pub name: String,
    pub revision: u64,
    /// Whether the same request was accepted before.
    pub repeated: bool,
    pub dry_run: bool,
}

/// The answer to a cancellation, a suspension or a resumption.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ChangedJob {
    pub job: u64,
    pub revision: u64,
}

/// A line of a task's output.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LogLine {
    pub job: u64,
    pub task: u32,
    pub attempt: u32,
    /// `stdout` or `stderr`.
    pub stream: String,
    pub time: Instant,
    pub text: String,
}
