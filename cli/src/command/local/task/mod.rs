//! `muster task`: requests of a program to Muster from inside its task. Needs only the task's environment and
//! its control socket, no cluster, runtime or configuration, so that it starts fast.

mod environment;

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use muster_documents::CheckpointAdvice;
use muster_worker::supervisor::link::task_side::{self, TaskSide, TaskSideError};
use muster_worker::supervisor::{
    ControlAnswer, ControlNotice, ControlRequest, GangNotice, PreemptFlag,
};
use serde::Serialize;

use crate::connection::Options;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::{Format, counted, render_document};
use crate::parse;
use environment::Environment;

/// Commands inside a task
#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Register checkpoints
    #[command(subcommand)]
    Checkpoint(Checkpoint),
    /// Report the current training step of the task
    Progress(Progress),
    /// Wait until the task is asked to stop, or its gang meets elsewhere
    ///
    /// A task with such a connection is not sent SIGTERM at once when it is asked to stop: it has until
    /// shortly before the end of its grace period, or until it commits a checkpoint (docs/task-interface.md).
    Watch(Watch),
    /// Print the environment variables that Muster sets for the task
    Env(Environment),
}

/// Commands for checkpoints
#[derive(Debug, Subcommand)]
pub(crate) enum Checkpoint {
    /// Announce a checkpoint: the time until its commit is measured
    Begin(Begin),
    /// Commit a complete and durable checkpoint: later attempts start from it
    ///
    /// Prints when the task should save next, once the duration of a save is known: `begin` measures it.
    Commit(Commit),
    /// Report an unreadable checkpoint of an earlier attempt: later attempts start from the one before
    Invalidate(Invalidate),
}

/// `muster task checkpoint begin`
#[derive(Debug, Args)]
pub(crate) struct Begin {
    /// Training step
    step: u64,
}

/// `muster task checkpoint commit`
#[derive(Debug, Args)]
#[command(after_help = "\
muster task checkpoint commit 4000                 (lies in $MUSTER_CKPT_DIR/step_4000)
muster task checkpoint commit 4000 --path /data/run/step_4000 --digest sha256:00ff --last")]
pub(crate) struct Commit {
    /// Training step, greater than that of the last commit
    step: u64,
    /// Its location; by default $MUSTER_CKPT_DIR/step_STEP
    #[arg(long, value_name = "PATH")]
    path: Option<PathBuf>,
    /// Its size in bytes
    #[arg(
        long,
        value_name = "BYTES",
        default_value_t = 0,
        hide_default_value = true
    )]
    size: u64,
    /// Its digest, as algorithm:hex
    #[arg(long, default_value = "", hide_default_value = true)]
    digest: String,
    /// It is the last one: when the task is asked to stop, it needs no time to save
    #[arg(long, conflicts_with = "more")]
    last: bool,
    /// More follow: a task that is asked to stop still needs time
    #[arg(long)]
    more: bool,
}

/// `muster task checkpoint invalidate`
#[derive(Debug, Args)]
pub(crate) struct Invalidate {
    /// Its training step
    step: u64,
    /// The defect
    #[arg(long, value_name = "TEXT")]
    reason: String,
}

/// `muster task progress`
#[derive(Debug, Args)]
pub(crate) struct Progress {
    /// Training step
    step: u64,
}

/// `muster task watch`
#[derive(Debug, Args)]
pub(crate) struct Watch {
    /// Also end when a member of the task's gang was swapped, and print the gang's new meeting point
    #[arg(long)]
    gang: bool,
    /// Longest wait (unlimited); then exit code 124
    #[arg(long, value_name = "DURATION", value_parser = parse::duration)]
    timeout: Option<Duration>,
}

impl Verb {
    /// Runs the command.
    pub(crate) fn run(self, options: &Options) -> Result<Exit, Failure> {
        match self {
            Self::Checkpoint(Checkpoint::Begin(Begin { step })) => send(|epoch| {
                Ok(ControlRequest::Begin {
                    step,
                    path: String::new(),
                    epoch,
                })
            }),
            Self::Checkpoint(Checkpoint::Commit(commit)) => commit.run(options),
            Self::Checkpoint(Checkpoint::Invalidate(Invalidate { step, reason })) => {
                send(|epoch| {
                    Ok(ControlRequest::Invalidate {
                        step,
                        reason,
                        epoch,
                    })
                })
            }
            Self::Progress(Progress { step }) => {
                send(|epoch| Ok(ControlRequest::Progress { step, epoch }))
            }
            Self::Watch(watch) => watch.run(options),
            Self::Env(environment) => environment.run(options),
        }
    }
}

/// Sends a request to the supervisor and waits for its completion. Requests carry the attempt's epoch.
fn ask(
    request: impl FnOnce(Option<u64>) -> Result<ControlRequest, TaskSideError>,
) -> Result<ControlAnswer, Failure> {
    let done = task_side::epoch()
        .and_then(|epoch| request(Some(epoch)))
        .and_then(|request| TaskSide::connect()?.ask(&request));
    done.map_err(failure)
}

/// Sends a request that is answered without content.
fn send(
    request: impl FnOnce(Option<u64>) -> Result<ControlRequest, TaskSideError>,
) -> Result<Exit, Failure> {
    ask(request).map(|_| Exit::Ok)
}

fn failure(error: TaskSideError) -> Failure {
    let failure = Failure::new(error.to_string());
    match error {
        TaskSideError::NotInTask(_) => failure.help(
            "run it inside a job's task, which has the variables of docs/task-interface.md",
        ),
        TaskSideError::Connect { .. } => failure.help(
            "the task's supervisor is gone, or the socket's folder is not visible here (mount it into the container)",
        ),
        _ => failure,
    }
}

impl Commit {
    fn run(self, options: &Options) -> Result<Exit, Failure> {
        let answer = ask(|epoch| self.request(epoch))?;
        if let Some(interval_s) = answer.interval_s {
            let (seconds, span) = (interval_s.to_string(), counted(interval_s, "second"));
            let sentence = format!("save again after {span}\n");
            let format = options.screen().format;
            let text = shown(
                format,
                &CheckpointAdvice { interval_s },
                &seconds,
                &sentence,
            )?;
            options.screen().report(&text)?;
        }
        Ok(Exit::Ok)
    }

    fn request(self, epoch: Option<u64>) -> Result<ControlRequest, TaskSideError> {
        let path = match self.path {
            Some(path) => path,
            None => {
                let folder = task_side::variable("MUSTER_CKPT_DIR")?;
                PathBuf::from(folder).join(format!("step_{}", self.step))
            }
        };
        Ok(ControlRequest::Commit {
            step: self.step,
            path: path.to_string_lossy().into_owned(),
            size_bytes: self.size,
            digest: self.digest,
            epoch,
            last: match (self.last, self.more) {
                (true, _) => Some(true),
                (false, true) => Some(false),
                (false, false) => None,
            },
        })
    }
}

impl Watch {
    fn run(self, options: &Options) -> Result<Exit, Failure> {
        let watched = TaskSide::connect().and_then(|mut task| task.watch(self.gang, self.timeout));
        let Some(notice) = watched.map_err(failure)? else {
            return Ok(Exit::TimedOut);
        };
        let format = options.screen().format;
        let text = match &notice {
            ControlNotice::Stop(stop) => {
                shown(format, stop, stop.reason.as_str(), sentence(stop).as_str())?
            }
            ControlNotice::Gang(gang) => shown(format, gang, "gang", meeting(gang).as_str())?,
        };
        options.screen().data(&text)?;
        Ok(Exit::Ok)
    }
}

/// Formats a notification: as a document, a name, or a sentence.
fn shown(
    format: Format,
    notification: &impl Serialize,
    name: &str,
    sentence: &str,
) -> Result<String, Failure> {
    Ok(match format {
        Format::Table | Format::Wide => sentence.to_owned(),
        Format::Name => format!("{name}\n"),
        format => render_document(format, notification)?,
    })
}

fn meeting(gang: &GangNotice) -> String {
    let GangNotice {
        master_addr,
        master_port,
    } = gang;
    format!("the gang meets at {master_addr}:{master_port}\n")
}

fn sentence(stop: &PreemptFlag) -> String {
    let seconds = counted(stop.grace_ms.div_ceil(1_000), "second");
    format!("asked to stop ({}), killed in {seconds}\n", stop.reason)
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn a_notification_is_formatted_as_requested() {
        let advice = CheckpointAdvice { interval_s: 7 };
        let output = |format| shown(format, &advice, "7", "save after 7 s\n").unwrap();
        assert_eq!(output(Format::Yaml), "interval_s: 7\n");
        assert_eq!(output(Format::Jsonl), "{\"interval_s\":7}\n");
        assert_eq!(output(Format::Name), "7\n");
        assert_eq!(output(Format::Table), "save after 7 s\n");
    }
}
