//! Exec sessions: commands run beside running tasks.

use bytes::Bytes;
use futures::stream::unfold;
use muster_model::ids::{JobId, TaskIndex};
use muster_proto::v1;
use muster_proto::v1::exec_request::Kind as ToCommand;
use muster_proto::v1::exec_response::Kind as FromCommand;
use tokio::sync::mpsc;
use tonic::Streaming;

use crate::client::{Client, jobs};
use crate::error::{ClientError, Refusal};

const OPERATION: &str = "run a command beside the task";

/// Queued messages to a command; beyond that the sender waits.
const MESSAGES_MAX: usize = 8;

/// Bytes of input in one message, the limit of replicas.
const INPUT_BYTES_MAX: usize = 64 << 10;

/// Command and task of an exec session.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExecOptions {
    /// The job.
    pub job: JobId,
    /// Index of the task within its job.
    pub task: TaskIndex,
    /// The calling user: the job's user, or one of the cluster's admins.
    pub author: String,
    /// Program and arguments.
    pub command: Vec<String>,
    /// Size of the command's terminal; none to run without a terminal.
    pub window: Option<v1::WindowSize>,
    /// Terminal type (`TERM`).
    pub terminal: String,
}

/// Update of an exec session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExecUpdate {
    /// The command was started.
    Begun {
        /// Attempt of the task, counted from 1.
        attempt: u32,
        /// Name of the host.
        host: String,
    },
    /// Standard output; with a terminal, all output.
    Stdout(Bytes),
    /// Standard error.
    Stderr(Bytes),
    /// The command ended by itself or by a signal; the last update.
    Ended {
        /// Its exit code, if it ended by itself.
        code: Option<i32>,
        /// The signal that ended it.
        signal: Option<i32>,
    },
    /// Its task ended first, so the command's result is unknown; the last update.
    Lost {
        /// Cause, for users.
        why: String,
    },
}

/// An exec session. Dropping it ends the command.
#[derive(Debug)]
pub struct Exec {
    input: mpsc::Sender<v1::ExecRequest>,
    answers: Streaming<v1::ExecResponse>,
}

/// Input of a command; clones share it.
#[derive(Clone, Debug)]
pub struct ExecInput(mpsc::WeakSender<v1::ExecRequest>);

impl Client {
    /// Runs a command beside a running task, through any replica. It is started at most once: it is not
    /// retried after an interruption.
    ///
    /// # Errors
    /// [`ClientError::Refused`] with reason `UNKNOWN_JOB`, `UNKNOWN_TASK`, `NOT_YOURS`, `NOT_RUNNING`,
    /// `TOO_LARGE` or `HOST_UNREACHABLE`, and those of a call.
    pub async fn exec(&self, options: ExecOptions) -> Result<Exec, ClientError> {
        let open = v1::ExecOpen {
            job_id: options.job.get(),
            task: options.task.get(),
            author: options.author,
            command: options.command,
            window: options.window,
            terminal: options.terminal,
            by_admin: false,
        };
        let opened = self.open_stream(self.operation(OPERATION), |channel| {
            let kind = Some(ToCommand::Open(open.clone()));
            let (input, waiting) = mpsc::channel(MESSAGES_MAX);
            async move {
                // The queue has room for the first message.
                drop(input.send(v1::ExecRequest { kind }).await);
                let messages = unfold(waiting, |mut waiting| async move {
                    let message = waiting.recv().await?;
                    Some((message, waiting))
                });
                let answered = jobs(channel).exec(messages).await?;
                Ok(answered.map(|answers| Exec { input, answers }))
            }
        });
        let (exec, _) = opened.await?;
        Ok(exec)
    }
}

impl Exec {
    /// Returns the command's input.
    #[must_use]
    pub fn input(&self) -> ExecInput {
        ExecInput(self.input.downgrade())
    }

    /// Returns the next update; none after the last.
    ///
    /// # Errors
    /// [`ClientError::Refused`] with reason `EXEC_REFUSED` if it was not started; otherwise the connection
    /// broke, which ends the command.
    pub async fn next(&mut self) -> Result<Option<ExecUpdate>, ClientError> {
        loop {
            let answer = self
                .answers
                .message()
                .await
                .map_err(|status| ClientError::Refused {
                    operation: OPERATION,
                    refusal: Box::new(Refusal::from(&status)),
                })?;
            let Some(v1::ExecResponse { kind }) = answer else {
                return Ok(None);
            };
            return Ok(Some(match kind {
                Some(FromCommand::Begun(v1::ExecBegun { attempt, host })) => {
                    ExecUpdate::Begun { attempt, host }
                }
                Some(FromCommand::Stdout(bytes)) => ExecUpdate::Stdout(bytes),
                Some(FromCommand::Stderr(bytes)) => ExecUpdate::Stderr(bytes),
                Some(FromCommand::End(v1::ExecEnd {
                    lost: Some(why), ..
                })) => ExecUpdate::Lost { why },
                Some(FromCommand::End(v1::ExecEnd { code, signal, .. })) => {
                    ExecUpdate::Ended { code, signal }
                }
                // An update of a newer replica.
                Some(FromCommand::Refused(_)) | None => continue,
            }));
        }
    }
}

impl ExecInput {
    /// Sends input, and waits while the command does not read it. False: the command has ended.
    pub async fn write(&self, mut bytes: Bytes) -> bool {
        while bytes.len() > INPUT_BYTES_MAX {
            if !self
                .send(ToCommand::Input(bytes.split_to(INPUT_BYTES_MAX)))
                .await
            {
                return false;
            }
        }
        self.send(ToCommand::Input(bytes)).await
    }

    /// Closes the input.
    pub async fn end(&self) -> bool {
        self.send(ToCommand::InputEnd(v1::ExecInputEnd {})).await
    }

    /// Changes the size of the terminal.
    pub async fn resize(&self, window: v1::WindowSize) -> bool {
        self.send(ToCommand::Resized(window)).await
    }

    async fn send(&self, kind: ToCommand) -> bool {
        let Some(input) = self.0.upgrade() else {
            return false;
        };
        let kind = Some(kind);
        input.send(v1::ExecRequest { kind }).await.is_ok()
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[tokio::test]
    async fn long_input_is_split_into_messages_within_the_limit() {
        let (sender, mut waiting) = mpsc::channel(MESSAGES_MAX);
        let input = ExecInput(sender.downgrade());
        let bytes = Bytes::from(vec![7u8; 2 * INPUT_BYTES_MAX + 1]);
        assert!(input.write(bytes).await);
        for expected in [INPUT_BYTES_MAX, INPUT_BYTES_MAX, 1] {
            let sent = waiting.recv().await.unwrap().kind;
            assert!(matches!(sent, Some(ToCommand::Input(bytes)) if bytes.len() == expected));
        }
    }
}
