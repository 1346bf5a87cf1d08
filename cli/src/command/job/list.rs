//! `muster job list`.

use std::num::NonZero;

use clap::{Args, ValueEnum};
use muster_documents::Job;
use muster_proto::v1;

use crate::command::common::list_output::show;
use crate::connection::{Moment, Options, current_user};
use crate::exit::Exit;
use crate::failure::Failure;

/// `muster job list`
#[derive(Debug, Args)]
pub(crate) struct List {
    /// Only jobs of this queue
    #[arg(long, default_value = "", hide_default_value = true)]
    queue: String,
    /// Only jobs of this user
    #[arg(long, default_value = "", hide_default_value = true)]
    user: String,
    /// Only your own jobs
    #[arg(long, conflicts_with = "user")]
    me: bool,
    /// Only jobs whose name contains this text
    #[arg(
        long,
        value_name = "TEXT",
        default_value = "",
        hide_default_value = true
    )]
    name: String,
    /// Only jobs of this pipeline
    #[arg(long, value_name = "ID")]
    pipeline: Option<u64>,
    /// Only jobs in these phases, comma separated
    #[arg(long, value_enum, value_delimiter = ',')]
    phase: Vec<Phase>,
    /// Only jobs that have not ended
    #[arg(long, conflicts_with = "phase")]
    live: bool,
    /// Show at most this many jobs
    #[arg(long, value_name = "COUNT", default_value = "100")]
    limit: NonZero<usize>,
    /// Refresh the list after every change
    #[arg(short, long, conflicts_with = "at")]
    watch: bool,
    #[command(flatten)]
    moment: Moment,
}

/// Phase of a job.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Phase {
    /// It waits
    Queued,
    /// It holds resources
    Running,
    /// It is being ended
    Cancelling,
    /// It succeeded
    Succeeded,
    /// It failed
    Failed,
    /// It was ended on request
    Cancelled,
}

impl Phase {
    const LIVE: [Self; 3] = [Self::Queued, Self::Running, Self::Cancelling];

    fn wire(self) -> v1::JobPhase {
        match self {
            Self::Queued => v1::JobPhase::Queued,
            Self::Running => v1::JobPhase::Running,
            Self::Cancelling => v1::JobPhase::Cancelling,
            Self::Succeeded => v1::JobPhase::Succeeded,
            Self::Failed => v1::JobPhase::Failed,
            Self::Cancelled => v1::JobPhase::Cancelled,
        }
    }
}

impl List {
    /// Runs the command.
    pub(crate) async fn run(self, options: &Options) -> Result<Exit, Failure> {
        let phases = if self.live {
            &Phase::LIVE[..]
        } else {
            &self.phase
        };
        let request = v1::ListJobsRequest {
            queue: self.queue,
            user: if self.me { current_user() } else { self.user },
            phases: phases.iter().map(|phase| phase.wire().into()).collect(),
            name: self.name,
            pipeline_id: self.pipeline.unwrap_or(0),
            consistency: self.moment.consistency().into(),
            ..v1::ListJobsRequest::default()
        };
        let limit = self.limit.get();
        let client = self.moment.connect(options).await?;
        show(&client, &options.screen(), self.watch, async || {
            let (revision, jobs) = client.list_jobs(request.clone(), limit).await?;
            Ok((revision, jobs.into_iter().map(Job::from).collect()))
        })
        .await
    }
}
