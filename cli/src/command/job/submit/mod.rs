//! `muster job submit`.

mod container_flags;
mod execution_flags;
mod flags;
mod lifecycle_flags;
mod scheduling_flags;

use std::time::Duration;

use clap::{Args, ValueEnum};
use muster_client::{Client, ClientError, new_request_id};
use muster_documents::SubmittedJob;
use muster_job_file::strict_yaml::FileError;
use muster_job_file::{NamedSpec, read_jobs};
use muster_model::ids::JobId;
use muster_model::limits::SPEC_BYTES_MAX;

use self::flags::SpecFlags;
use crate::command::common::configuration::read_file;
use crate::command::job::wait::{Goal, wait_for};
use crate::connection::{Options, current_user};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::{Format, Screen, render_document, to_json_line};
use crate::parse;

/// Largest job file: room for hundreds of the largest specifications.
const FILE_BYTES_MAX: u64 = 256 * SPEC_BYTES_MAX as u64;

/// `muster job submit`
#[derive(Debug, Args)]
#[command(after_help = "\
muster job submit --gpus 2 --tasks 4 --gang -- python train.py
muster job submit -f job.yaml --wait")]
pub(crate) struct Submit {
    /// Job files in YAML or JSON, `-` for standard input; a file may hold several jobs
    #[arg(short, long, value_name = "FILE")]
    file: Vec<String>,
    #[command(flatten)]
    flags: SpecFlags,
    /// Idempotency key: within 24 hours the same key is the same job, and with several jobs in files the same jobs
    #[arg(long, value_name = "KEY")]
    request_id: Option<String>,
    /// Check everything, on the cluster too, and submit nothing
    #[arg(long)]
    dry_run: bool,
    /// Wait until the jobs have finished, or with --wait=running only until they run
    #[arg(long, value_name = "GOAL", num_args = 0..=1, default_missing_value = "finished", require_equals = true)]
    wait: Option<Awaited>,
    /// With --wait: stop waiting after this time (exit code 2 if a job was not placed, else 124)
    #[arg(long, value_name = "DURATION", value_parser = parse::duration, requires = "wait")]
    timeout: Option<Duration>,
}

/// Goal of `--wait`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Awaited {
    /// Until all tasks of the job run
    Running,
    /// Until the job has ended
    Finished,
}

impl Submit {
    /// Runs the command.
    pub(crate) async fn run(self, options: &Options) -> Result<Exit, Failure> {
        let jobs = self.read()?;
        let screen = options.screen();
        let client = options.connect().await?;
        // Created here, so that the user can repeat an unanswered request.
        let key = self.request_id.clone().unwrap_or_else(new_request_id);
        self.check(&client, &jobs, &key).await?;
        let mut accepted = Vec::new();
        for (position, job) in jobs.into_iter().enumerate() {
            let answer = self.send(&client, job, &key, position).await;
            match answer {
                Ok(answer) => accepted.push(answer),
                Err(failure) => {
                    print(&screen, &accepted)?;
                    return Err(failure);
                }
            }
        }
        print(&screen, &accepted)?;
        self.await_all(&client, &screen, &accepted).await
    }

    /// Reads and validates all jobs before any is sent.
    fn read(&self) -> Result<Vec<NamedSpec>, Failure> {
        if self.file.is_empty() {
            return Ok(vec![self.flags.spec()?]);
        }
        if let Some(flag) = self.flags.given() {
            let message = format!("{flag} cannot be used with --file");
            return Err(Failure::usage(message).help("write it into the file"));
        }
        read_files(&self.file)
    }

    /// Lets the cluster validate each of several jobs before the first is sent, so that a refusal leaves
    /// nothing behind.
    async fn check(&self, client: &Client, jobs: &[NamedSpec], key: &str) -> Result<(), Failure> {
        if self.dry_run || jobs.len() < 2 {
            return Ok(());
        }
        for (position, job) in jobs.iter().enumerate() {
            let checked = client.validate_job_as(request_id(key, position), job.spec.clone());
            let checked = checked.await;
            checked.map_err(|error| Failure::from(error).about(&job.origin))?;
        }
        Ok(())
    }

    async fn send(
        &self,
        client: &Client,
        job: NamedSpec,
        key: &str,
        position: usize,
    ) -> Result<SubmittedJob, Failure> {
        let name = job.spec.name.clone();
        if self.dry_run {
            let validated = client.validate_job(job.spec).await;
            validated.map_err(|error| Failure::from(error).about(&job.origin))?;
            return Ok(SubmittedJob {
                job: 0,
                name,
                revision: 0,
                repeated: false,
                dry_run: true,
            });
        }
        let refused = |error: ClientError| Failure::of_submission(error, key).about(&job.origin);
        let submitted = client.submit_job_as(request_id(key, position), job.spec);
        let submitted = submitted.await.map_err(refused)?;
        Ok(SubmittedJob {
            job: submitted.job.get(),
            name,
            revision: submitted.revision.get(),
            repeated: submitted.repeated,
            dry_run: false,
        })
    }

    async fn await_all(
        &self,
        client: &Client,
        screen: &Screen,
        accepted: &[SubmittedJob],
    ) -> Result<Exit, Failure> {
        let (Some(awaited), false) = (self.wait, self.dry_run) else {
            return Ok(Exit::Ok);
        };
        let goal = match awaited {
            Awaited::Running => Goal::Running,
            Awaited::Finished => Goal::Finished,
        };
        let jobs: Vec<JobId> = accepted.iter().map(|job| JobId(job.job)).collect();
        client.discover().await?;
        let ended = wait_for(client, screen, &jobs, goal, self.timeout).await?;
        Ok(ended.exit())
    }
}

/// Request id of one of a command's jobs: each has its own; that of the first is the key itself.
fn request_id(key: &str, position: usize) -> String {
    match position {
        0 => key.to_owned(),
        later => format!("{key}/{}", later + 1),
    }
}

/// Reads and validates all jobs of several files.
pub(crate) fn read_files(files: &[String]) -> Result<Vec<NamedSpec>, Failure> {
    let mut jobs = Vec::new();
    for file in files {
        let (name, text) = read_file(file, FILE_BYTES_MAX)?;
        let read = read_jobs(&name, &text, &current_user()).map_err(|errors| {
            let lines = errors.iter().map(FileError::to_string).collect();
            Failure::list(lines)
                .help("nothing was submitted; docs/job-file.md describes the format")
                .exiting(Exit::Usage)
        });
        jobs.extend(read?);
    }
    Ok(jobs)
}

fn print(screen: &Screen, accepted: &[SubmittedJob]) -> Result<(), Failure> {
    let text = match screen.format {
        Format::Table | Format::Wide => accepted.iter().map(sentence).collect(),
        Format::Name => accepted
            .iter()
            .map(|job| format!("{}\n", job.job))
            .collect(),
        Format::Jsonl => {
            let lines: Result<Vec<String>, Failure> = accepted.iter().map(to_json_line).collect();
            lines?.concat()
        }
        Format::Json | Format::Yaml => match accepted {
            [one] => render_document(screen.format, one)?,
            several => render_document(screen.format, &several)?,
        },
    };
    screen.report(&text)
}

fn sentence(job: &SubmittedJob) -> String {
    let SubmittedJob {
        job,
        name,
        repeated,
        dry_run,
        ..
    } = job;
    match (dry_run, repeated) {
        (true, _) => format!("{name} is valid (dry run, nothing was submitted)\n"),
        (false, true) => format!("job {job} ({name}) was already submitted\n"),
        (false, false) => format!("job {job} ({name}) submitted\n"),
    }
}
