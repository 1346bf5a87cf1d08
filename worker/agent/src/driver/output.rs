//! Answers to the leader's requests for output of tasks.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::PathBuf;

use muster_model::ids::{AttemptEpoch, JobId, TaskIndex, TaskKey};
use muster_proto::v1;
use muster_proto::v1::log_request::Start;
use muster_proto::v1::worker_message::Kind;
use muster_supervisor::{RunId, TaskDirectory};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::driver::timed_output;
use crate::limits::{LOG_CHUNK_BYTES, LOG_FOLLOW_INTERVAL, LOG_REQUESTS_MAX, LOG_TAIL_LINES_MAX};
use crate::tasks::logs::{LogPiece, LogReader, OutputStream, Removals};

/// The requests of one session.
#[derive(Debug)]
pub(super) struct OutputRequests {
    logs: PathBuf,
    tasks: PathBuf,
    outbox: mpsc::Sender<v1::WorkerMessage>,
    closed: CancellationToken,
    running: BTreeMap<u64, (CancellationToken, tokio::task::JoinHandle<()>)>,
}

impl OutputRequests {
    pub(super) const fn new(
        logs: PathBuf,
        tasks: PathBuf,
        outbox: mpsc::Sender<v1::WorkerMessage>,
        closed: CancellationToken,
    ) -> Self {
        Self {
            logs,
            tasks,
            outbox,
            closed,
            running: BTreeMap::new(),
        }
    }

    /// Starts to answer a request.
    pub(super) fn begin(&mut self, request: v1::LogRequest) {
        self.running.retain(|_, (_, task)| !task.is_finished());
        let id = request.id;
        let answer = Answer::new(self, &request);
        if self.running.len() >= LOG_REQUESTS_MAX {
            let error =
                format!("over {LOG_REQUESTS_MAX} requests for output at a time (LOG_REQUESTS_MAX)");
            tokio::spawn(async move { answer.end(0, Some(error)).await });
            return;
        }
        let cancelled = self.closed.child_token();
        let stop = cancelled.clone();
        let task = tokio::spawn(async move {
            tokio::select! {
                () = stop.cancelled() => {}
                () = answer.run(request) => {}
            }
        });
        self.running.insert(id, (cancelled, task));
    }

    /// Stops answering a request.
    pub(super) fn cancel(&mut self, id: u64) {
        if let Some((cancelled, _)) = self.running.remove(&id) {
            cancelled.cancel();
        }
    }
}

/// The answer to one request.
pub(super) struct Answer {
    id: u64,
    run: RunId,
    logs: PathBuf,
    reader: LogReader,
    directory: TaskDirectory,
    outbox: mpsc::Sender<v1::WorkerMessage>,
}

impl Answer {
    fn new(requests: &OutputRequests, request: &v1::LogRequest) -> Self {
        let id = RunId {
            key: TaskKey {
                job: JobId(request.job_id),
                task: TaskIndex(request.task),
            },
            epoch: AttemptEpoch(request.epoch),
        };
        let stream = match v1::LogStream::try_from(request.stream) {
            Ok(v1::LogStream::Stderr) => OutputStream::Stderr,
            _ => OutputStream::Stdout,
        };
        Self {
            id: request.id,
            run: id,
            logs: requests.logs.clone(),
            reader: LogReader::new(requests.logs.join(id.to_string()), stream),
            directory: TaskDirectory::below(&requests.tasks, id),
            outbox: requests.outbox.clone(),
        }
    }

    async fn run(self, request: v1::LogRequest) {
        if let Err(error) = self.check_removals().await {
            return self.end(0, Some(error)).await;
        }
        if request.timed {
            return timed_output::answer(self, request).await;
        }
        let (range, first) = match self.range(&request).await {
            Ok(found) => found,
            Err(error) => return self.end(0, Some(error)).await,
        };
        let mut offset = range.start;
        if first.offset < range.end && !first.data.is_empty() {
            offset = first.end();
            if !self.send(first, None).await {
                return;
            }
        }
        // Whether the reader knows the position at which to resume; without it, it would resume behind
        // later output.
        let mut knows_position = false;
        loop {
            // Checked before reading: output written before the end is read after the end is known.
            let ended = !request.follow || self.has_ended().await;
            // Without following, only output present at the start is sent: some tasks print faster than it
            // is read.
            let until = if request.follow { u64::MAX } else { range.end };
            match self.send_all(&mut offset, until).await {
                Ok(true) if ended => return self.end(offset, None).await,
                Ok(true) => {
                    if !knows_position
                        && offset == range.start
                        && !self.send(nothing(offset), None).await
                    {
                        return;
                    }
                    knows_position = true;
                    tokio::time::sleep(LOG_FOLLOW_INTERVAL).await;
                }
                Ok(false) => return,
                Err(error) => return self.end(offset, Some(error)).await,
            }
        }
    }

    /// Directory of the output.
    pub(super) fn log_directory(&self) -> PathBuf {
        self.logs.join(self.run.to_string())
    }

    /// Fails if the output was removed, so that it does not look empty.
    async fn check_removals(&self) -> Result<(), String> {
        let (removals, run) = (Removals::of(&self.logs), self.run);
        let directory = self.log_directory();
        if blocking(move || Ok(!directory.exists() && removals.contains(run)?)).await? {
            return Err(
                "the output was removed from its host (`log_retention` of the worker); \
                 `log_shipping` may have copied it elsewhere"
                    .to_owned(),
            );
        }
        Ok(())
    }

    /// The range of requested positions that exists now, and the piece that was already read.
    async fn range(&self, request: &v1::LogRequest) -> Result<(Range<u64>, LogPiece), String> {
        let reader = self.reader.clone();
        let start = request.start;
        let unread = |range: Range<u64>| (range.clone(), nothing(range.start));
        blocking(move || match start {
            None => Ok(unread(0..reader.end()?)),
            Some(Start::OffsetBytes(offset)) => Ok(unread(offset..reader.end()?)),
            Some(Start::TailLines(lines)) => {
                reader.tail(lines.min(LOG_TAIL_LINES_MAX), LOG_CHUNK_BYTES)
            }
            Some(Start::Position(_)) => Err(std::io::Error::other(
                "a position for each output is needed",
            )),
        })
        .await
    }

    /// Sends the output before a position. False: the receiver is gone.
    async fn send_all(&self, offset: &mut u64, until: u64) -> Result<bool, String> {
        while *offset < until {
            let (reader, from) = (self.reader.clone(), *offset);
            let wanted = usize::try_from(until - from).unwrap_or(usize::MAX);
            let limit = LOG_CHUNK_BYTES.min(wanted);
            let piece = blocking(move || reader.read(from, limit)).await?;
            // Rotation may have removed the requested range.
            if piece.data.is_empty() || piece.offset >= until {
                return Ok(true);
            }
            *offset = piece.end();
            if !self.send(piece, None).await {
                return Ok(false);
            }
        }
        Ok(true)
    }

    pub(super) async fn has_ended(&self) -> bool {
        let directory = self.directory.clone();
        let ended = blocking(move || Ok(!directory.path().exists() || directory.exit()?.is_some()));
        // An unreadable directory is about to be removed.
        ended.await.unwrap_or(true)
    }

    pub(super) async fn end(&self, offset: u64, error: Option<String>) {
        self.send(nothing(offset), Some(error)).await;
    }

    /// Sends a piece, or with `end` the last one.
    async fn send(&self, piece: LogPiece, end: Option<Option<String>>) -> bool {
        self.send_chunk(v1::LogChunk {
            offset_bytes: piece.offset,
            data: piece.data.into(),
            end: end.is_some(),
            error: end.flatten(),
            ..v1::LogChunk::default()
        })
        .await
    }

    /// Sends a chunk. False: the receiver is gone.
    pub(super) async fn send_chunk(&self, chunk: v1::LogChunk) -> bool {
        let chunk = v1::LogChunk {
            id: self.id,
            ..chunk
        };
        let message = v1::WorkerMessage {
            kind: Some(Kind::LogChunk(chunk)),
        };
        self.outbox.send(message).await.is_ok()
    }
}

/// An empty piece at a position.
const fn nothing(offset: u64) -> LogPiece {
    LogPiece {
        offset,
        data: Vec::new(),
    }
}

/// Reads off the runtime's threads.
pub(super) async fn blocking<T: Send + 'static>(
    read: impl FnOnce() -> std::io::Result<T> + Send + 'static,
) -> Result<T, String> {
    match tokio::task::spawn_blocking(read).await {
        Ok(outcome) => outcome.map_err(|error| error.to_string()),
        Err(error) => Err(error.to_string()),
    }
}
