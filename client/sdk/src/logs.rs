//! The output of a task, through the death of any replica, without gap or duplicate.

use std::collections::VecDeque;

use bytes::Bytes;
use muster_model::ids::{JobId, TaskIndex};
use muster_proto::v1;
use muster_proto::v1::stream_logs_request::Start;
use tonic::{Status, Streaming};

use crate::calls::Operation;
use crate::client::{Client, jobs};
use crate::error::ClientError;
use crate::retry::{Verdict, judge};

const OPERATION: &str = "read the task's output";

/// Which output to read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogsRequest {
    /// Which job.
    pub job: JobId,
    /// Which task.
    pub task: TaskIndex,
    /// Which attempt, counted from 1; the newest if none.
    pub attempt: Option<u32>,
    /// Which attempt, by its epoch; goes before `attempt`.
    pub epoch: Option<u64>,
    /// Standard output, standard error, or, with `timed`, both.
    pub stream: v1::LogStream,
    /// True: whole lines with the time of their arrival, as [`LogUpdate::Line`].
    pub timed: bool,
    /// Lines that came not before this instant, in milliseconds since the Unix epoch; only with `timed`.
    pub since_ms: Option<u64>,
    /// Lines that came not after this instant, in milliseconds since the Unix epoch; only with `timed`.
    pub until_ms: Option<u64>,
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
    /// A line of output, or what there is of it; instead of `Data`, if `timed` was asked for of a worker that knows it.
    Line {
        /// Which output.
        stream: v1::LogStream,
        /// Position of its first byte in that output; more than the end of the line before if rotation removed what was
        /// between.
        offset_bytes: u64,
        /// As the task wrote it, with the line end if there is one.
        data: Bytes,
        /// When its end came, in microseconds since the Unix epoch by the clock of its host.
        arrived_us: u64,
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
    /// The same of timed output, of which there may be two.
    position: Option<v1::LogPosition>,
    begun: bool,
    stream: Option<Streaming<v1::StreamLogsResponse>>,
    replica: String,
    cut: Option<String>,
    /// What has come and was not delivered.
    pending: VecDeque<LogUpdate>,
}

impl Client {
    /// The output of one task. Nothing is sent before the first [`TaskLogs::next`].
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
            cut: None,
            pending: VecDeque::new(),
        }
    }
}

impl TaskLogs {
    /// The next update; none at the end of the output.
    ///
    /// # Errors
    /// [`ClientError::Refused`] with reason `UNKNOWN_JOB`, `UNKNOWN_TASK`, `NO_LOGS` or
    /// `HOST_UNREACHABLE`; an error of a call if no replica could be reached for `reconnect_deadline`, or `deadline` where the
    /// output is not followed.
    /// The stream may be polled again after an error: it goes on where it was.
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
                Err(status) => self.broken(&status)?,
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
        let cause = self.cut.take();
        Ok(cause.map(|cause| LogUpdate::Resumed { replica, cause }))
    }

    fn take(&mut self, response: v1::StreamLogsResponse) {
        if !self.begun && response.attempt != 0 {
            self.begun = true;
            // A resumed stream must go on with the same attempt, even if a newer one began meanwhile.
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
            // Nothing has been printed yet: a stream that is cut off now goes on here.
            self.offset_bytes.get_or_insert(offset_bytes);
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
                self.client.roster().set_leader(&leader);
                format!("the leader is {leader}")
            }
            Verdict::Again {
                cause, transport, ..
            } => {
                if transport {
                    self.client.broke(&self.replica);
                }
                cause
            }
        };
        tracing::debug!(replica = %self.replica, %cause, "a log stream was cut off");
        self.cut = Some(cause);
        Ok(())
    }
}

/// The lines that a message holds. Positions are where the worker was asked to go on, so nothing comes twice.
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
