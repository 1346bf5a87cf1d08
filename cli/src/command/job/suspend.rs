//! `muster job suspend` and `muster job resume`.

use clap::Args;
use muster_client::Client;
use muster_documents::ChangedJob;
use muster_model::ids::{JobId, Revision};

use crate::connection::{Options, current_user};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::{Format, render_documents};

/// `muster job suspend`, `muster job resume`
#[derive(Debug, Args)]
pub(crate) struct Suspend {
    /// Jobs, by id
    #[arg(required = true)]
    jobs: Vec<u64>,
    /// The reason, shown in the job's events, and with the job while it is suspended
    #[arg(long, value_name = "TEXT")]
    reason: String,
}

/// Requested state of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RequestedState {
    /// Suspended.
    Suspended,
    /// Resumed.
    Resumed,
}

impl Suspend {
    /// Runs the command. One job's failure does not affect the others.
    pub(crate) async fn run(
        self,
        wanted: RequestedState,
        options: &Options,
    ) -> Result<Exit, Failure> {
        let client = options.connect().await?;
        let screen = options.screen();
        let (mut done, mut exit) = (Vec::new(), Exit::Ok);
        for job in self.jobs.iter().copied().map(JobId) {
            match ask(&client, wanted, job, &self.reason).await {
                Ok(revision) => match screen.format {
                    Format::Table | Format::Wide => {
                        let text = match wanted {
                            RequestedState::Suspended => format!("job {job} suspended\n"),
                            RequestedState::Resumed => format!("job {job} resumed\n"),
                        };
                        screen.report(&text)?;
                    }
                    Format::Name => screen.report(&format!("{job}\n"))?,
                    _ => done.push(ChangedJob {
                        job: job.get(),
                        revision: revision.get(),
                    }),
                },
                Err(failure) => {
                    failure.about(&format!("job {job}")).print();
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

async fn ask(
    client: &Client,
    wanted: RequestedState,
    job: JobId,
    reason: &str,
) -> Result<Revision, Failure> {
    let author = current_user();
    let asked = match wanted {
        RequestedState::Suspended => client.suspend_job(job, &author, reason).await,
        RequestedState::Resumed => client.resume_job(job, &author, reason).await,
    };
    Ok(asked?)
}
