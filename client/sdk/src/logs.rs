//! Log stream of a task, without gap or duplicate across the death of any replica.

use std::collections::VecDeque;

use bytes::Bytes;
use muster_model::ids::{JobId, TaskIndex};
use muster_proto::v1;
use muster_proto::v1::stream_logs_request::Start;
use tonic::{Status, Streaming};

use crate::calls::Operation;
use crate::client::{Client, jobs};
use crate::error::ClientError;
use crate::transport::retry::{FailureClass, classify};

const OPERATION: &str = "read the task's output";

/// Selection of the output to read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogsRequest {
    /// The job.
    pub job: JobId,
    /// Index of the task within its job.
    pub task: TaskIndex,
    /// Attempt, counted from 1; the newest if none.
    pub attempt: Option<u32>,
    /// Attempt by its epoch; takes precedence over `attempt`.
    pub epoch: Option<u64>,
    /// Standard output, standard error, or, with `timed`, both.
    pub stream: v1::LogStream,
    /// Whether to read whole lines with the time of their arrival, as [`LogUpdate::Line`].
    pub timed: bool,
    /// Lower bound of the lines' arrival (inclusive), in milliseconds since the Unix epoch; only with
    /// `timed`.
    pub since_ms: Option<u64>,
    /// Upper bound of the lines' arrival (inclusive), in milliseconds since the Unix epoch; only with
    /// `timed`.
    pub until_ms: Option<u64>,
    /// Whether to continue with new output until the attempt has ended.
    pub follow: bool,
    /// Number of last lines to begin with; from the start if none.
    pub tail_lines: Option<u64>,
}

/// Update of a log stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogUpdate {
    /// The selected attempt; the first update.
    Begun {
        /// The attempt, counted from 1.
        attempt: u32,
        /// The host that holds the output.
        host: String,
    },
    /// A piece of output.
    Data {
        /// Position of its first byte in the whole output; beyond the end of the piece before if rotation
        /// removed output between them.
        offset_bytes: u64,
        /// Bytes as the task wrote them.
        data: Bytes,
    },
    /// A line of output, or the existing part of it; instead of `Data`, if `timed` was requested and the
    /// worker supports it.
    Line {
        /// The output stream.
        stream: v1::LogStream,
        /// Position of its first byte in that output; beyond the end of the line before if rotation removed
        /// output between them.
        offset_bytes: u64,
        /// Bytes as the task wrote them, with the line end if there is one.
        data: Bytes,
        /// Arrival of its end, in microseconds since the Unix epoch by the clock of its host.
        arrived_us: u64,
    },
    /// The stream was interrupted and continues at the same position.
    Resumed {
        /// The replica that serves it now.
        replica: String,
        /// Cause of the interruption.
        cause: String,
    },
}

/// A resumable log stream. See [`Client::logs`].
#[derive(Debug)]
pub struct TaskLogs {
    client: Client,
    request: LogsRequest,
    /// Position of the first undelivered byte, once anything was delivered.
    offset_bytes: Option<u64>,
    /// The same for timed output, which may consist of two streams.
    position: Option<v1::LogPosition>,
    begun: bool,
    stream: Option<Streaming<v1::StreamLogsResponse>>,
    replica: String,
    interruption: Option<String>,
    /// Received updates that are not delivered yet.
    pending: VecDeque<LogUpdate>,
}

impl Client {
    /// Creates a log stream of one task. No request is made before the first [`TaskLogs::next`].
    #[must_use]
    pub fn logs(&self, request: LogsRequest) -> TaskLogs {
        TaskLogs {
            client: self.clone(),
            request,
            offset_bytes: None,
            position: None,
            begun: false,
            stream: None,
            replica: String::new(),
            interruption: None,
            pending: VecDeque::new(),
        }
    }
}

impl TaskLogs {
    /// Returns the next update; none at the end of the output.
    ///
    /// # Errors
    /// [`ClientError::Refused`] with reason `UNKNOWN_JOB`, `UNKNOWN_TASK`, `NO_LOGS` or `HOST_UNREACHABLE`;
    /// an error of a call if no replica could be reached for `reconnect_deadline`, or `deadline` if the
    /// output is not followed. The stream may be polled again after an error: it continues at the same
    /// position.
    pub async fn next(&mut self) -> Result<Option<LogUpdate>, ClientError> {
        loop {
            if let Some(update) = self.pending.pop_front() {
                return Ok(Some(update));
            }
            let Some(stream) = &mut self.stream else {
                if let Some(resumed) = self.open().await? {
                    return Ok(Some(resumed));
                }
                continue;
            };
            match stream.message().await {
                Ok(Some(response)) => self.take(response),
                Ok(None) => return Ok(None),
                Err(status) => self.handle_failure(&status)?,
            }
        }
    }

    async fn open(&mut self) -> Result<Option<LogUpdate>, ClientError> {
        let start = match (self.position, self.offset_bytes, self.request.tail_lines) {
            (Some(position), _, _) => Some(Start::Position(position)),
            (None, Some(offset_bytes), _) => Some(Start::OffsetBytes(offset_bytes)),
            (None, None, Some(tail_lines)) => Some(Start::TailLines(tail_lines)),
            (None, None, None) => None,
        };
        let request = v1::StreamLogsRequest {
            job_id: self.request.job.get(),
            task: self.request.task.get(),
            attempt: self.request.attempt.unwrap_or_default(),
            stream: self.request.stream.into(),
            follow: self.request.follow,
            start,
            timed: self.request.timed,
            since_ms: self.request.since_ms,
            until_ms: self.request.until_ms,
            epoch: self.request.epoch.unwrap_or_default(),
        };
        let config = self.client.config();
        let operation = Operation {
            name: OPERATION,
            deadline: match self.request.follow {
                true => config.reconnect_deadline,
                false => config.deadline,
            },
        };
        let (stream, replica) = self
            .client
            .open_stream(operation, |channel| async move {
                jobs(channel).stream_logs(request).await
            })
            .await?;
        self.stream = Some(stream);
        self.replica.clone_from(&replica);
        let cause = self.interruption.take();
        Ok(cause.map(|cause| LogUpdate::Resumed { replica, cause }))
    }

    fn take(&mut self, response: v1::StreamLogsResponse) {
        if !self.begun && response.attempt != 0 {
            self.begun = true;
            // A resumed stream must continue with the same attempt, even if a newer one began meanwhile.
            self.request.attempt = Some(response.attempt);
            self.pending.push_back(LogUpdate::Begun {
                attempt: response.attempt,
                host: response.host,
            });
        }
        if response.position.is_some() {
            self.position = response.position;
            self.pending.extend(lines(response.pieces, &response.data));
        } else {
            let data = self.take_data(response.offset_bytes, response.data);
            self.pending.extend(data);
        }
    }

    /// Removes the part of a piece of output that was delivered before.
    fn take_data(&mut self, offset_bytes: u64, mut data: Bytes) -> Option<LogUpdate> {
        let mut first_byte = offset_bytes;
        let delivered = self.offset_bytes.unwrap_or(0);
        if let Ok(known) = usize::try_from(delivered.saturating_sub(first_byte)) {
            let known = known.min(data.len());
            data = data.slice(known..);
            first_byte += known as u64;
        }
        if data.is_empty() {
            // Nothing has been printed yet: if interrupted now, the stream resumes here.
            self.offset_bytes.get_or_insert(offset_bytes);
            return None;
        }
        self.offset_bytes = Some(first_byte + data.len() as u64);
        Some(LogUpdate::Data {
            offset_bytes: first_byte,
            data,
        })
    }

    fn handle_failure(&mut self, status: &Status) -> Result<(), ClientError> {
        self.stream = None;
        let cause = match classify(status) {
            FailureClass::Final(refusal) => {
                return Err(ClientError::Refused {
                    operation: OPERATION,
                    refusal,
                });
            }
            FailureClass::Redirect { leader } => {
                self.client.roster().set_leader(&leader);
                format!("the leader is {leader}")
            }
            FailureClass::Again {
                cause, transport, ..
            } => {
                if transport {
                    self.client.drop_connection(&self.replica);
                }
                cause
            }
        };
        tracing::debug!(replica = %self.replica, %cause, "a log stream was interrupted");
        self.interruption = Some(cause);
        Ok(())
    }
}

/// The lines of a message. The worker resumed at the requested positions, so there are no duplicates.
fn lines(pieces: Vec<v1::LogPiece>, data: &Bytes) -> impl Iterator<Item = LogUpdate> + '_ {
    let mut from = 0;
    pieces.into_iter().map(move |piece| {
        let length = usize::try_from(piece.length_bytes).unwrap_or(usize::MAX);
        let until = data.len().min(length.saturating_add(from));
        let line = data.slice(from..until);
        from = until;
        LogUpdate::Line {
            stream: piece.stream(),
            offset_bytes: piece.offset_bytes,
            data: line,
            arrived_us: piece.arrived_us,
        }
    })
}
