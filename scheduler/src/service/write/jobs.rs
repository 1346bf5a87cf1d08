//! Submissions of jobs and pipelines, and orders to jobs.

use muster_engine::state::Answer;
use muster_model::command::Command;
use muster_model::ids::JobId;
use muster_model::rejection::Rejection;
use muster_model::spec::{DEFAULT_QUEUE, JobSpec, Violation, check_submission};
use muster_proto::convert::{
    cancel_command, resume_command, submit_command, submit_pipeline_command, suspend_command,
};
use muster_proto::{status, v1};
use muster_tracing::now_ns;
use tokio::time::Instant;
use tonic::Status;

use crate::audit_log::Record;
use crate::service::context::Context;
use crate::service::gate::{Method, Scope};
use crate::service::write::propose::{Proposal, check_level, propose, rehearse};
use crate::service::write::request::{Reply, WriteRequest, plain_write};
use crate::spans;

impl WriteRequest for v1::SubmitJobRequest {
    const METHOD: Method = Method::of_jobs("SubmitJob");

    type Order = Proposal;

    fn authors(&mut self) -> Vec<&mut String> {
        self.spec.iter_mut().map(|spec| &mut spec.user).collect()
    }

    fn scope(&self) -> Scope<'_> {
        Scope::Queues(self.spec.iter().map(queue).collect())
    }

    fn record(&self) -> Record {
        let describe = |spec: &v1::JobSpec| format!("name {}, queue {}", spec.name, queue(spec));
        let subject = self.spec.as_ref().map_or_else(String::new, describe);
        Record {
            dry_run: self.validate_only,
            ..Record::about(&self.request_id, subject)
        }
    }

    fn order(self) -> Result<Proposal, Status> {
        Proposal::new(self.validate_only, submit_command(self))
    }

    async fn execute(order: Proposal, context: &Context, _: Instant) -> Reply<Self> {
        check_specs(context, &order.command)?;
        check_level(context, &order.command)?;
        if order.is_dry_run {
            let (state, _) = rehearse(context, &order.command)?;
            return Ok(v1::SubmitJobResponse {
                revision: state.revision.get(),
                ..v1::SubmitJobResponse::default()
            });
        }
        let began_ns = now_ns();
        let (revision, answer) = propose(context, order.command).await?;
        let Answer::Job(JobId(job_id)) = answer else {
            return Err(Status::internal("unexpected outcome of a submission"));
        };
        // A job's id is the revision of its submission.
        let repeated = job_id != revision.get();
        let response = v1::SubmitJobResponse {
            job_id,
            revision: revision.get(),
            repeated,
        };
        spans::proposed(began_ns, context.config.replica_id, &response);
        Ok(response)
    }

    fn complete(record: Record, response: &v1::SubmitJobResponse) -> Record {
        created("job", response.job_id, record).at_revision(response.revision)
    }
}

/// A checked submission of a pipeline.
pub(crate) struct PipelineOrder {
    proposal: Proposal,
    jobs: usize,
}

impl WriteRequest for v1::SubmitPipelineRequest {
    const METHOD: Method = Method::of_jobs("SubmitPipeline");

    type Order = PipelineOrder;

    fn authors(&mut self) -> Vec<&mut String> {
        let jobs = self.spec.iter_mut().flat_map(|spec| &mut spec.jobs);
        let specs = jobs.filter_map(|job| job.spec.as_mut());
        specs.map(|spec| &mut spec.user).collect()
    }

    fn scope(&self) -> Scope<'_> {
        let jobs = self.spec.iter().flat_map(|spec| &spec.jobs);
        Scope::Queues(
            jobs.filter_map(|job| job.spec.as_ref())
                .map(queue)
                .collect(),
        )
    }

    fn record(&self) -> Record {
        let (name, jobs) = match &self.spec {
            Some(spec) => (spec.name.as_str(), spec.jobs.len()),
            None => ("", 0),
        };
        Record {
            dry_run: self.validate_only,
            ..Record::about(&self.request_id, format!("pipeline {name} of {jobs} jobs"))
        }
    }

    fn order(self) -> Result<PipelineOrder, Status> {
        let jobs = self.spec.as_ref().map_or(0, |spec| spec.jobs.len());
        let proposal = Proposal::new(self.validate_only, submit_pipeline_command(self))?;
        Ok(PipelineOrder { proposal, jobs })
    }

    async fn execute(order: PipelineOrder, context: &Context, _: Instant) -> Reply<Self> {
        let PipelineOrder { proposal, jobs } = order;
        check_specs(context, &proposal.command)?;
        check_level(context, &proposal.command)?;
        if proposal.is_dry_run {
            let (state, _) = rehearse(context, &proposal.command)?;
            return Ok(v1::SubmitPipelineResponse {
                revision: state.revision.get(),
                ..v1::SubmitPipelineResponse::default()
            });
        }
        let (revision, answer) = propose(context, proposal.command).await?;
        let Answer::Pipeline(pipeline) = answer else {
            return Err(Status::internal("unexpected outcome of a submission"));
        };
        // The command takes one revision for the pipeline and one for every job, and these are their ids.
        let job_ids: Vec<u64> = (pipeline.get() + 1..).take(jobs).collect();
        let repeated = job_ids.last() != Some(&revision.get());
        Ok(v1::SubmitPipelineResponse {
            pipeline_id: pipeline.get(),
            job_ids,
            revision: revision.get(),
            repeated,
        })
    }

    fn complete(record: Record, response: &v1::SubmitPipelineResponse) -> Record {
        created("pipeline", response.pipeline_id, record).at_revision(response.revision)
    }
}

plain_write! {
    CancelJobRequest => CancelJobResponse, Method::of_jobs("CancelJob"),
    cancel_command, by [author],
    record |it| order_to_job(it.job_id, &it.reason, &it.request_id),
    scope |it| Scope::Job(JobId(it.job_id)),
}

plain_write! {
    SuspendJobRequest => SuspendJobResponse, Method::of_jobs("SuspendJob"),
    suspend_command, by [author],
    record |it| order_to_job(it.job_id, &it.reason, &it.request_id),
    scope |it| Scope::Job(JobId(it.job_id)),
}

plain_write! {
    ResumeJobRequest => ResumeJobResponse, Method::of_jobs("ResumeJob"),
    resume_command, by [author],
    record |it| order_to_job(it.job_id, &it.reason, &it.request_id),
    scope |it| Scope::Job(JobId(it.job_id)),
}

/// Queue to which a job is submitted.
fn queue(spec: &v1::JobSpec) -> &str {
    spec.queue.as_deref().unwrap_or(DEFAULT_QUEUE)
}

fn order_to_job(job: u64, reason: &str, request_id: &str) -> Record {
    Record {
        why: reason.to_owned(),
        ..Record::about(request_id, format!("job {job}"))
    }
}

/// Adds the id of what was submitted to the subject; a dry run submits nothing.
fn created(noun: &str, id: u64, record: Record) -> Record {
    if id == 0 {
        return record;
    }
    Record {
        subject: format!("{noun} {id}, {}", record.subject),
        ..record
    }
}

/// Checks rules for new jobs beyond those of `apply`. The heartbeat interval of this cluster is too long for a
/// shorter lease: every attempt would be fenced at once.
fn check_specs(context: &Context, command: &Command) -> Result<(), Status> {
    let timings = context.config.timings;
    let least_ms = timings.partition_grace_ms_min();
    let specs: Vec<(String, &JobSpec)> = match command {
        Command::SubmitJob { spec, .. } => vec![(String::new(), spec.as_ref())],
        Command::SubmitPipeline { pipeline, .. } => {
            let jobs = pipeline.jobs.iter().enumerate();
            jobs.map(|(position, job)| (format!("jobs[{position}]."), job.spec.as_ref()))
                .collect()
        }
        _ => Vec::new(),
    };
    let mut violations = Vec::new();
    for (at, spec) in specs {
        let mut of_job = check_submission(spec);
        if spec.partition_grace_ms < least_ms {
            of_job.push(Violation {
                field: "partition_grace_ms".to_owned(),
                rule: format!(
                    "must be at least {least_ms} in this cluster with a heartbeat interval of {} ms",
                    timings.heartbeat_ms
                ),
            });
        }
        violations.extend(of_job.into_iter().map(|rule| Violation {
            field: format!("{at}{}", rule.field),
            ..rule
        }));
    }
    if violations.is_empty() {
        return Ok(());
    }
    Err(status::status_of(&Rejection::InvalidSpec(violations)))
}
