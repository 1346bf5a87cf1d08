//! `muster pipeline`.

use std::num::NonZero;
use std::time::Duration;

use clap::{Args, Subcommand};
use muster_client::{PipelineDetail, new_request_id};
use muster_documents::{CancelledPipeline, Pipeline, SubmittedPipeline};
use muster_job_file::read_pipeline;
use muster_job_file::strict_yaml::FileError;
use muster_model::ids::{JobId, PipelineId};
use muster_model::limits::PIPELINE_BYTES_MAX;
use muster_proto::v1;

use crate::command::common::configuration::read_file;
use crate::command::common::list_output::show;
use crate::command::job::{Ended, Goal, wait_for};
use crate::connection::{Moment, Options, current_user};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::{Format, render_document, render_documents};
use crate::parse;
use crate::view::pipeline;

/// Largest pipeline file: the largest pipeline with comments.
const FILE_BYTES_MAX: u64 = 4 * PIPELINE_BYTES_MAX as u64;

/// Commands of `muster pipeline`.
#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Submit the jobs of a file as one object: all or none
    Submit(Submit),
    /// Show pipelines, newest first
    List(List),
    /// Show a pipeline as a tree of its jobs
    Get(Get),
    /// Cancel all jobs of pipelines
    Cancel(Cancel),
    /// Wait until all jobs of a pipeline have ended; the exit code shows how
    Wait(Wait),
}

/// `muster pipeline submit`
#[derive(Debug, Args)]
#[command(
    after_help = "muster pipeline submit nightly.yaml --wait    (docs/pipelines.md describes the file)"
)]
pub(crate) struct Submit {
    /// A pipeline file in YAML or JSON, `-` for standard input
    #[arg(value_name = "FILE")]
    file: String,
    /// Idempotency key: within 24 hours the same key is the same pipeline
    #[arg(long, value_name = "KEY")]
    request_id: Option<String>,
    /// Check everything, on the cluster too, and submit nothing
    #[arg(long, conflicts_with = "wait")]
    dry_run: bool,
    /// Wait until all of its jobs have ended
    #[arg(long)]
    wait: bool,
}

/// `muster pipeline list`
#[derive(Debug, Args)]
pub(crate) struct List {
    /// Only pipelines of this user
    #[arg(long, default_value = "", hide_default_value = true)]
    user: String,
    /// Only your own pipelines
    #[arg(long, conflicts_with = "user")]
    me: bool,
    /// Only pipelines whose name contains this text
    #[arg(
        long,
        value_name = "TEXT",
        default_value = "",
        hide_default_value = true
    )]
    name: String,
    /// Show at most this many pipelines
    #[arg(long, value_name = "COUNT", default_value = "100")]
    limit: NonZero<usize>,
    /// Refresh the list after every change
    #[arg(short, long, conflicts_with = "at")]
    watch: bool,
    #[command(flatten)]
    moment: Moment,
}

/// `muster pipeline get`
#[derive(Debug, Args)]
pub(crate) struct Get {
    /// The pipeline, by id
    pipeline: u64,
    #[command(flatten)]
    moment: Moment,
}

/// `muster pipeline cancel`
#[derive(Debug, Args)]
pub(crate) struct Cancel {
    /// Pipelines, by id
    #[arg(required = true)]
    pipelines: Vec<u64>,
    /// The reason, kept with each job
    #[arg(
        long,
        value_name = "TEXT",
        default_value = "",
        hide_default_value = true
    )]
    reason: String,
}

/// `muster pipeline wait`
#[derive(Debug, Args)]
#[command(
    after_help = "Exit codes: 0 succeeded, 3 failed, 4 cancelled, 124 not ended within --timeout"
)]
pub(crate) struct Wait {
    /// The pipeline, by id
    pipeline: u64,
    /// Stop waiting after this time
    #[arg(long, value_name = "DURATION", value_parser = parse::duration)]
    timeout: Option<Duration>,
}

impl Verb {
    /// Runs the command.
    pub(crate) async fn run(self, options: &Options) -> Result<Exit, Failure> {
        match self {
            Self::Submit(submit) => submit.run(options).await,
            Self::List(list) => list.run(options).await,
            Self::Get(get) => get.run(options).await,
            Self::Cancel(cancel) => cancel.run(options).await,
            Self::Wait(wait) => wait.run(options).await,
        }
    }
}

/// The answer to a submission, as text.
fn sentence(submitted: &SubmittedPipeline) -> String {
    let SubmittedPipeline {
        pipeline,
        name,
        jobs,
        repeated,
        dry_run,
        ..
    } = submitted;
    if *dry_run {
        return format!("{name} is valid (dry run, nothing was submitted)\n");
    }
    let done = if *repeated {
        "was already submitted"
    } else {
        "submitted"
    };
    let ids = match jobs.as_slice() {
        [one] => format!("job {one}"),
        [first, .., last] => format!("jobs {first} to {last}"),
        [] => "no jobs".to_owned(),
    };
    format!("pipeline {pipeline} ({name}) {done}: {ids}\n")
}

/// The document of a pipeline with its jobs.
fn document(detail: PipelineDetail) -> muster_documents::PipelineDetail {
    let revision = detail.revision.get();
    muster_documents::PipelineDetail::new(revision, detail.pipeline, detail.jobs)
}

impl Submit {
    async fn run(self, options: &Options) -> Result<Exit, Failure> {
        let spec = self.read()?;
        let screen = options.screen();
        let client = options.connect().await?;
        let accepted = self.send(&client, spec).await?;
        screen.report(&match screen.format {
            Format::Table | Format::Wide => sentence(&accepted),
            Format::Name => format!("{}\n", accepted.pipeline),
            format => render_document(format, &accepted)?,
        })?;
        if !self.wait {
            return Ok(Exit::Ok);
        }
        client.discover().await?;
        let jobs: Vec<JobId> = accepted.jobs.iter().copied().map(JobId).collect();
        wait_for(&client, &screen, &jobs, Goal::Finished, None).await?;
        let pipeline = PipelineId(accepted.pipeline);
        let consistency = v1::Consistency::Linearizable;
        let detail = client.get_pipeline(pipeline, consistency).await?;
        Ok(exit_of(detail.pipeline.phase()))
    }

    fn read(&self) -> Result<v1::PipelineSpec, Failure> {
        let (name, text) = read_file(&self.file, FILE_BYTES_MAX)?;
        read_pipeline(&name, &text, &current_user()).map_err(|errors| {
            let lines = errors.iter().map(FileError::to_string).collect();
            Failure::list(lines)
                .help("nothing was submitted; docs/pipelines.md describes the format")
                .exiting(Exit::Usage)
        })
    }

    async fn send(
        &self,
        client: &muster_client::Client,
        spec: v1::PipelineSpec,
    ) -> Result<SubmittedPipeline, Failure> {
        let name = spec.name.clone();
        if self.dry_run {
            let validated = client.validate_pipeline(spec).await;
            validated.map_err(|error| Failure::from(error).about(&self.file))?;
            return Ok(SubmittedPipeline {
                pipeline: 0,
                name,
                jobs: Vec::new(),
                revision: 0,
                repeated: false,
                dry_run: true,
            });
        }
        // Created here, so that the user can repeat an unanswered request.
        let request_id = self.request_id.clone().unwrap_or_else(new_request_id);
        let submitted = client.submit_pipeline(Some(request_id.clone()), spec);
        let submitted = submitted
            .await
            .map_err(|error| Failure::of_submission(error, &request_id).about(&self.file))?;
        Ok(SubmittedPipeline {
            pipeline: submitted.pipeline.get(),
            name,
            jobs: submitted.jobs.iter().map(|job| job.get()).collect(),
            revision: submitted.revision.get(),
            repeated: submitted.repeated,
            dry_run: false,
        })
    }
}

impl List {
    async fn run(self, options: &Options) -> Result<Exit, Failure> {
        let request = v1::ListPipelinesRequest {
            user: if self.me { current_user() } else { self.user },
            name: self.name,
            consistency: self.moment.consistency().into(),
            ..v1::ListPipelinesRequest::default()
        };
        let limit = self.limit.get();
        let client = self.moment.connect(options).await?;
        show(&client, &options.screen(), self.watch, async || {
            let (revision, pipelines) = client.list_pipelines(request.clone(), limit).await?;
            let rows = pipelines.into_iter().map(Pipeline::from).collect();
            Ok((revision, rows))
        })
        .await
    }
}

impl Get {
    async fn run(self, options: &Options) -> Result<Exit, Failure> {
        let client = self.moment.connect(options).await?;
        let screen = options.screen();
        let consistency = self.moment.consistency();
        let detail = client.get_pipeline(PipelineId(self.pipeline), consistency);
        screen.data(&pipeline::shown(&document(detail.await?), &screen)?)?;
        Ok(Exit::Ok)
    }
}

impl Cancel {
    /// One pipeline's failure does not keep the others from being cancelled.
    async fn run(self, options: &Options) -> Result<Exit, Failure> {
        let client = options.connect().await?;
        let screen = options.screen();
        let author = current_user();
        let (mut done, mut exit) = (Vec::new(), Exit::Ok);
        for id in self.pipelines {
            let pipeline = PipelineId(id);
            match client
                .cancel_pipeline(pipeline, &author, &self.reason)
                .await
            {
                Ok(jobs) => match screen.format {
                    Format::Table | Format::Wide => {
                        let what = match jobs.len() {
                            1 => "1 job is".to_owned(),
                            count => format!("{count} jobs are"),
                        };
                        screen.report(&format!("pipeline {id}: {what} being cancelled\n"))?;
                    }
                    Format::Name => screen.report(&format!("{id}\n"))?,
                    _ => done.push(CancelledPipeline {
                        pipeline: id,
                        jobs: jobs.iter().map(|job| job.get()).collect(),
                    }),
                },
                Err(error) => {
                    Failure::from(error)
                        .about(&format!("pipeline {id}"))
                        .print();
                    exit = Exit::Error;
                }
            }
        }
        if !screen.is_table() && screen.format != Format::Name {
            screen.report(&render_documents(screen.format, &done)?)?;
        }
        Ok(exit)
    }
}

impl Wait {
    async fn run(self, options: &Options) -> Result<Exit, Failure> {
        let screen = options.screen();
        let client = options.connect_to_follow().await?;
        let pipeline = PipelineId(self.pipeline);
        let consistency = v1::Consistency::Linearizable;
        let detail = client.get_pipeline(pipeline, consistency).await?;
        let jobs: Vec<JobId> = detail.jobs.iter().map(|job| JobId(job.id)).collect();
        let ended = wait_for(&client, &screen, &jobs, Goal::Finished, self.timeout).await?;
        let detail = client.get_pipeline(pipeline, consistency).await?;
        let phase = detail.pipeline.phase();
        screen.report(&pipeline::shown(&document(detail), &screen)?)?;
        Ok(match ended {
            Ended::TimedOut | Ended::NotPlaced => Exit::TimedOut,
            Ended::Well | Ended::Cancelled | Ended::Failed => exit_of(phase),
        })
    }
}

/// Exit code of a command that waited for a pipeline.
fn exit_of(phase: v1::JobPhase) -> Exit {
    match phase {
        v1::JobPhase::Failed => Exit::JobFailed,
        v1::JobPhase::Cancelled => Exit::JobCancelled,
        _ => Exit::Ok,
    }
}
