//! Pipelines and their jobs.

use std::collections::BTreeMap;

use muster_proto::v1;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::instant::Instant;
use crate::job::JobPhase;
use crate::wire::FromWire as _;

string_enum! {
    /// The end of another job that a job waits for.
    pub enum Condition from v1::Condition {
        Succeeded "after_ok",
        Ended "after_any",
        Failed "after_failed",
    }
}

documents! {
    /// A pipeline without its jobs.
    pub struct Pipeline from v1::Pipeline {
        id: u64,
        name: String,
        user: String,
        phase: JobPhase,
        jobs: PipelineCounts = counts,
        submitted_at: Instant = submitted_at_ms,
        finished_at: Option<Instant> = finished_at_ms,
    }

    /// Number of a pipeline's jobs in each phase.
    pub struct PipelineCounts from v1::PipelineCounts {
        queued: u32,
        running: u32,
        succeeded: u32,
        failed: u32,
        cancelled: u32,
        skipped: u32,
    }
}

/// A pipeline with its jobs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PipelineDetail {
    pub revision: u64,
    #[serde(flatten)]
    pub pipeline: Pipeline,
    pub job_list: Vec<PipelineJob>,
}

/// A job of a pipeline.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PipelineJob {
    pub id: u64,
    pub name: String,
    /// Phase of the job, or `skipped` if it was never placed because its dependencies did not end as required.
    pub phase: String,
    pub finish_reason: String,
    pub after: Vec<PipelineDependency>,
}

/// A dependency of a job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PipelineDependency {
    pub job: u64,
    /// Null if it does not belong to this pipeline.
    pub name: Option<String>,
    pub when: Condition,
}

impl PipelineDetail {
    /// A pipeline with its jobs, read at a revision.
    #[must_use]
    pub fn new(revision: u64, pipeline: v1::Pipeline, jobs: Vec<v1::Job>) -> Self {
        let name = |job: &v1::Job| job.spec.as_ref().map_or("", |spec| &spec.name).to_owned();
        let names: BTreeMap<u64, String> = jobs.iter().map(|job| (job.id, name(job))).collect();
        Self {
            revision,
            pipeline: Pipeline::from(pipeline),
            job_list: jobs
                .into_iter()
                .map(|job| PipelineJob::new(job, &names))
                .collect(),
        }
    }
}

impl PipelineJob {
    fn new(job: v1::Job, names: &BTreeMap<u64, String>) -> Self {
        let phase = match job.skipped {
            true => "skipped",
            false => JobPhase::from_wire(job.phase).as_str(),
        };
        let spec = job.spec.unwrap_or_default();
        let after = spec
            .lifecycle
            .unwrap_or_default()
            .after
            .into_iter()
            .map(|dependency| PipelineDependency {
                job: dependency.job_id,
                name: names.get(&dependency.job_id).cloned(),
                when: Condition::from_wire(dependency.when),
            });
        Self {
            id: job.id,
            name: spec.name,
            phase: phase.to_owned(),
            finish_reason: job.finish_reason,
            after: after.collect(),
        }
    }
}

/// The answer to the submission of a pipeline.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SubmittedPipeline {
    /// 0 in a dry run.
    pub pipeline: u64,
    pub name: String,
    pub jobs: Vec<u64>,
    pub revision: u64,
    /// Whether the same request was accepted before.
    pub repeated: bool,
    pub dry_run: bool,
}

/// The answer to the cancellation of a pipeline.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CancelledPipeline {
    pub pipeline: u64,
    /// Jobs that are being cancelled.
    pub jobs: Vec<u64>,
}
