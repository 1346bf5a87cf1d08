//! `muster job cancel`.

use std::time::Duration;

use clap::Args;
use muster_documents::ChangedJob;
use muster_model::ids::JobId;

use crate::command::job::wait::{Ended, Goal, wait_for};
use crate::connection::{Options, current_user};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::{Format, render_documents};
use crate::parse;

/// `muster job cancel`
#[derive(Debug, Args)]
pub(crate) struct Cancel {
    /// Jobs, by id
    #[arg(required = true)]
    jobs: Vec<u64>,
    /// The reason, kept with the job
    #[arg(
        long,
        value_name = "TEXT",
        default_value = "",
        hide_default_value = true
    )]
    reason: String,
    /// Wait until no task of the jobs runs
    #[arg(long)]
    wait: bool,
    /// With --wait: stop waiting after this time, with exit code 124
    #[arg(long, value_name = "DURATION", value_parser = parse::duration, requires = "wait")]
    timeout: Option<Duration>,
}

impl Cancel {
    /// Runs the command. One job's failure does not keep the others from being cancelled.
    pub(crate) async fn run(self, options: &Options) -> Result<Exit, Failure> {
        let client = options.connect().await?;
        let screen = options.screen();
        let author = current_user();
        let (mut asked, mut done) = (Vec::new(), Vec::new());
        for job in self.jobs.iter().copied().map(JobId) {
            match client.cancel_job(job, &author, &self.reason).await {
                Ok(revision) => {
                    asked.push(job);
                    match screen.format {
                        Format::Table | Format::Wide => {
                            screen.report(&format!("job {job} is being cancelled\n"))?;
                        }
                        Format::Name => screen.report(&format!("{job}\n"))?,
                        _ => done.push(ChangedJob {
                            job: job.get(),
                            revision: revision.get(),
                        }),
                    }
                }
                Err(error) => Failure::from(error).about(&format!("job {job}")).print(),
            }
        }
        if !screen.is_table() && screen.format != Format::Name {
            screen.report(&render_documents(screen.format, &done)?)?;
        }
        let exit = if asked.len() == self.jobs.len() {
            Exit::Ok
        } else {
            Exit::Error
        };
        if !self.wait || asked.is_empty() {
            return Ok(exit);
        }
        client.discover().await?;
        let ended = wait_for(&client, &screen, &asked, Goal::Finished, self.timeout).await?;
        Ok(match ended {
            Ended::TimedOut | Ended::NotPlaced => Exit::TimedOut,
            Ended::Well | Ended::Cancelled | Ended::Failed => exit,
        })
    }
}
