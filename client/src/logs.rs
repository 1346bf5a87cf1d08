//! The output of a task, through the death of any replica, without gap or duplicate.

use bytes::Bytes;
use muster_core::ids::{JobId, TaskIndex};
use muster_proto::v1;
use muster_proto::v1::stream_logs_request::Start;
use tonic::{Status, Streaming};

use crate::call::Operation;
use crate::client::{Client, jobs};
use crate::error::ClientError;
use crate::retry::{Verdict, judge};

const OPERATION: &str = "read the task's output";

/// Which output to read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogsRequest {
    /// Which job.
    pub job: JobId,
    /// Which task.
    pub task: TaskIndex,
    /// Which attempt, counted from 1; the newest if none.
    pub attempt: Option<u32>,
    /// Standard output or standard error.
    pub stream: v1::LogStream,
    /// True: goes on with new output until the attempt has ended.
    pub follow: bool,
    /// Begin with so many of the last lines; from the start if none.
    pub tail_lines: Option<u64>,
}

/// What a log stream delivers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogUpdate {
    /// What is being read; comes first.
    Begun {
        /// The attempt, counted from 1.
        attempt: u32,
        /// The host that holds the output.
        host: String,
    },
    /// A piece of output.
    Data {
        /// Position of its first byte in the whole output; more than the end of the piece before if
        /// rotation removed what was between.
        offset_bytes: u64,
        /// As the task wrote it.
        data: Bytes,
    },
    /// The stream was cut off and goes on where it was.
    Resumed {
        /// The replica that serves it now.
        replica: String,
        /// Why it was cut off.
        cause: String,
    },
}

/// A resumable log stream. See [`Client::logs`].
#[derive(Debug)]
pub struct TaskLogs {
    client: Client,
    request: LogsRequest,
    /// First byte that has not been delivered, once anything was.
    offset_bytes: Option<u64>,
    begun: bool,
    stream: Option<Streaming<v1::StreamLogsResponse>>,
    replica: String,
    cut: Option<String>,
    /// A piece of output that came with the first message.
    pending: Option<LogUpdate>,
}

impl Client {
    /// The output of one task. Nothing is sent before the first [`TaskLogs::next`].
    #[must_use]
    pub fn logs(&self, request: LogsRequest) -> TaskLogs {
        TaskLogs {
            client: self.clone(),
            request,
            offset_bytes: None,
            begun: false,
            stream: None,
            replica: String::new(),
            cut: None,
            pending: None,
        }
    }
}

impl TaskLogs {
    /// The next update; none at the end of the output.
    ///
    /// # Errors
    /// [`ClientError::Refused`] with reason `UNKNOWN_JOB`, `UNKNOWN_TASK`, `NO_LOGS` or
    /// `HOST_UNREACHABLE`; an error of a call if no replica could be reached for `reconnect_deadline`.
    /// The stream may be polled again after an error: it goes on where it was.
    pub async fn next(&mut self) -> Result<Option<LogUpdate>, ClientError> {
        loop {
            if let Some(update) = self.pending.take() {
                return Ok(Some(update));
            }
            let Some(stream) = &mut self.stream else {
                if let Some(resumed) = self.open().await? {
                    return Ok(Some(resumed));
                }
                continue;
            };
            match stream.message().await {
                Ok(Some(response)) => {
                    if let Some(update) = self.take(response) {
                        return Ok(Some(update));
                    }
                }
                Ok(None) => return Ok(None),
                Err(status) => self.broken(&status)?,
            }
        }
    }

    async fn open(&mut self) -> Result<Option<LogUpdate>, ClientError> {
        let start = match (self.offset_bytes, self.request.tail_lines) {
            (Some(offset_bytes), _) => Some(Start::OffsetBytes(offset_bytes)),
            (None, Some(tail_lines)) => Some(Start::TailLines(tail_lines)),
            (None, None) => None,
        };
        let request = v1::StreamLogsRequest {
            job_id: self.request.job.get(),
            task: self.request.task.get(),
            attempt: self.request.attempt.unwrap_or_default(),
            stream: self.request.stream.into(),
            follow: self.request.follow,
            start,
        };
        let operation = Operation {
            name: OPERATION,
            deadline: self.client.config().reconnect_deadline,
        };
        let (stream, replica) = self
            .client
            .call_somewhere(operation, |channel| async move {
                jobs(channel).stream_logs(request).await
            })
            .await?;
        self.stream = Some(stream);
        self.replica.clone_from(&replica);
        let cause = self.cut.take();
        Ok(cause.map(|cause| LogUpdate::Resumed { replica, cause }))
    }

    fn take(&mut self, response: v1::StreamLogsResponse) -> Option<LogUpdate> {
        let data = self.take_data(response.offset_bytes, response.data);
        if self.begun || response.attempt == 0 {
            return data;
        }
        self.begun = true;
        // A resumed stream must go on with the same attempt, even if a newer one began meanwhile.
        self.request.attempt = Some(response.attempt);
        self.pending = data;
        Some(LogUpdate::Begun {
            attempt: response.attempt,
            host: response.host,
        })
    }

    /// A piece of output, less what was delivered before.
    fn take_data(&mut self, offset_bytes: u64, mut data: Bytes) -> Option<LogUpdate> {
        let mut first_byte = offset_bytes;
        let delivered = self.offset_bytes.unwrap_or(0);
        if let Ok(known) = usize::try_from(delivered.saturating_sub(first_byte)) {
            let known = known.min(data.len());
            data = data.slice(known..);
            first_byte += known as u64;
        }
        if data.is_empty() {
            return None;
        }
        self.offset_bytes = Some(first_byte + data.len() as u64);
        Some(LogUpdate::Data {
            offset_bytes: first_byte,
            data,
        })
    }

    fn broken(&mut self, status: &Status) -> Result<(), ClientError> {
        self.stream = None;
        let cause = match judge(status) {
            Verdict::Final(refusal) => {
                return Err(ClientError::Refused {
                    operation: OPERATION,
                    refusal,
                });
            }
            Verdict::Redirect { leader } => {
                self.client.members().set_leader(&leader);
                format!("the leader is {leader}")
            }
            Verdict::Again {
                cause, transport, ..
            } => {
                if transport {
                    self.client.members().drop_channel(&self.replica);
                }
                cause
            }
        };
        tracing::debug!(replica = %self.replica, %cause, "a log stream was cut off");
        self.cut = Some(cause);
        Ok(())
    }
}
