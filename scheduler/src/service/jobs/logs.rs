//! Output of tasks: the leader asks the worker through its session, a follower asks the leader.

use std::pin::pin;

use futures::StreamExt as _;
use futures::stream::unfold;
use muster_engine::state::State;
use muster_model::ids::HostId;
use muster_proto::status::{self, ErrorReport, NOT_LEADER};
use muster_proto::v1::stream_logs_request::Start;
use muster_proto::v1::{self, log_request};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, timeout_at};
use tonic::{Code, Status, Streaming};

use crate::leader::ToWorker;
use crate::service::context::Context;
use crate::service::jobs::log_source::{self, LogLocation};
use crate::service::replies::{LogPiece, LogReply, unreachable};
use crate::service::watch::until_stopped::{Messages, until_stopped};
use crate::service::write::leaders::Leaders;

/// Connections to the leader that one replica opens at a time for readers of output.
pub(crate) const LOG_CONNECTIONS_MAX: usize = 1_024;

/// Stream of output to a client.
pub(crate) type Output = Messages<v1::StreamLogsResponse>;

/// Streams output: from here if this replica leads, through the leader otherwise.
pub(crate) async fn stream(
    context: &Context,
    request: v1::StreamLogsRequest,
    deadline: Instant,
) -> Result<Output, Status> {
    let mut leadership = context.handle.leadership();
    let leaders = Leaders::of(&context.handle);
    let mut isolated = pin!(leaders.isolated());
    loop {
        let now = leadership.borrow_and_update().clone();
        let opened = async {
            match &now.leader {
                _ if now.is_self => stream_here(context, request),
                Some(leader) => stream_through_leader(context, &leader.address, request).await,
                None => Err(status::not_leader(None)),
            }
        };
        let result = tokio::select! {
            biased;
            opened = opened => opened,
            () = &mut isolated => return Err(status::not_leader(None)),
        };
        match result {
            Err(status) if ErrorReport::of(&status).reason == NOT_LEADER => {
                let has_changed = tokio::select! {
                    biased;
                    () = &mut isolated => false,
                    changed = timeout_at(deadline, leadership.changed()) => matches!(changed, Ok(Ok(()))),
                };
                if !has_changed {
                    return Err(status);
                }
            }
            result => return result,
        }
    }
}

/// Uses a separate connection: on the shared one a slow reader would block writes and heartbeat times.
async fn stream_through_leader(
    context: &Context,
    leader: &str,
    request: v1::StreamLogsRequest,
) -> Result<Output, Status> {
    let connection = context.admit_log_connection()?;
    let mut client = context.peers.dedicated_client(leader)?;
    let opened = client.forward_logs(request).await;
    let relayed = Relayed {
        pieces: opened
            .map_err(|status| broken(leader, status))?
            .into_inner(),
        leader: leader.to_owned(),
        _connection: connection,
    };
    let pieces = unfold(relayed, Relayed::next);
    Ok(until_stopped(pieces, context.stop.clone()))
}

/// Output relayed from the leader.
struct Relayed {
    pieces: Streaming<v1::StreamLogsResponse>,
    leader: String,
    _connection: OwnedSemaphorePermit,
}

impl Relayed {
    async fn next(mut self) -> Option<(Result<v1::StreamLogsResponse, Status>, Self)> {
        let piece = self
            .pieces
            .next()
            .await?
            .map_err(|status| broken(&self.leader, status));
        Some((piece, self))
    }
}

/// Refusals of the leader are passed through; after a broken connection the leader may be dead, and the
/// reader should retry.
fn broken(leader: &str, status: Status) -> Status {
    if ErrorReport::of(&status).reason.is_empty() {
        Status::unavailable(format!(
            "connection to the leader at {leader} lost: {}",
            status.message()
        ))
    } else {
        status
    }
}

/// Output through this leader's own sessions; NOT_LEADER if it does not lead.
pub(crate) fn stream_here(
    context: &Context,
    request: v1::StreamLogsRequest,
) -> Result<Output, Status> {
    let leadership = context.handle.leadership().borrow().clone();
    if !leadership.is_self {
        return Err(status::not_leader(
            leadership.leader.as_ref().map(|peer| peer.address.as_str()),
        ));
    }
    let state = context.fork();
    let source = log_source::find(&state, &request)?;
    let mut readers = Vec::new();
    for host in &source.hosts {
        if let Some(reader) = Reader::open(context, &state, *host, &source, &request) {
            readers.push(reader);
        }
    }
    if readers.is_empty() {
        let is_connected = |host| context.directory.find(host).is_some();
        return Err(log_source::out_of_reach(
            &state,
            &request,
            &source,
            is_connected,
        ));
    }
    let output = unfold(
        Some(LogSources {
            readers,
            is_begun: false,
        }),
        LogSources::next,
    );
    Ok(until_stopped(output, context.stop.clone()))
}

/// Reads one worker's output, with a new request after an overrun.
struct Reader {
    context: Context,
    host: HostId,
    host_name: String,
    attempt: u32,
    request: v1::LogRequest,
    reply: LogReply,
    is_first: bool,
    /// True once the last piece was read, which may contain output.
    is_over: bool,
}

impl Reader {
    /// `None` if the worker is not connected, or too busy.
    fn open(
        context: &Context,
        state: &State,
        host: HostId,
        source: &LogLocation,
        request: &v1::StreamLogsRequest,
    ) -> Option<Self> {
        let host_name = log_source::host_name(state, host);
        let (order, reply) = ask(context, host, order(source, request))?;
        Some(Self {
            context: context.clone(),
            host,
            host_name,
            attempt: source.attempt,
            request: order,
            reply,
            is_first: true,
            is_over: false,
        })
    }

    /// The next piece; `None` at the end.
    async fn next(&mut self) -> Option<Result<v1::StreamLogsResponse, Status>> {
        while !self.is_over {
            let chunk = match self.reply.next().await {
                LogPiece::Chunk(chunk) => chunk,
                LogPiece::Lost => return Some(Err(unreachable(&self.host_name))),
                LogPiece::Overrun => {
                    if let Err(status) = self.ask_again() {
                        return Some(Err(status));
                    }
                    continue;
                }
            };
            if let Some(error) = chunk.error {
                let host = &self.host_name;
                let message = format!(
                    "the output of task {} of job {} in attempt {} cannot be read on host `{host}`: {error}",
                    self.request.task, self.request.job_id, self.attempt
                );
                return Some(Err(status::error(
                    Code::NotFound,
                    log_source::NO_LOGS,
                    &message,
                    &[],
                )));
            }
            self.is_over = chunk.end;
            if chunk.end && chunk.data.is_empty() {
                break;
            }
            self.advance_past(&chunk);
            return Some(Ok(self.response(chunk)));
        }
        None
    }

    /// Sets the position of the next request behind what was read.
    fn advance_past(&mut self, chunk: &v1::LogChunk) {
        self.request.start = Some(match chunk.position {
            Some(position) => log_request::Start::Position(position),
            None => {
                let end = chunk.offset_bytes + chunk.data.len() as u64;
                log_request::Start::OffsetBytes(end)
            }
        });
    }

    fn response(&mut self, chunk: v1::LogChunk) -> v1::StreamLogsResponse {
        let is_first = std::mem::replace(&mut self.is_first, false);
        v1::StreamLogsResponse {
            offset_bytes: chunk.offset_bytes,
            data: chunk.data,
            attempt: if is_first { self.attempt } else { 0 },
            host: if is_first {
                self.host_name.clone()
            } else {
                String::new()
            },
            pieces: chunk.pieces,
            position: chunk.position,
        }
    }

    fn ask_again(&mut self) -> Result<(), Status> {
        let asked = ask(&self.context, self.host, self.request);
        let (request, reply) = asked.ok_or_else(|| unreachable(&self.host_name))?;
        self.request = request;
        self.reply = reply;
        Ok(())
    }
}

/// The request to a worker.
fn order(source: &LogLocation, request: &v1::StreamLogsRequest) -> v1::LogRequest {
    v1::LogRequest {
        id: 0,
        job_id: request.job_id,
        task: request.task,
        epoch: source.epoch.get(),
        stream: request.stream,
        follow: request.follow,
        start: request.start.map(|start| match start {
            Start::OffsetBytes(offset) => log_request::Start::OffsetBytes(offset),
            Start::TailLines(lines) => log_request::Start::TailLines(lines),
            Start::Position(position) => log_request::Start::Position(position),
        }),
        timed: request.timed,
        since_ms: request.since_ms,
        until_ms: request.until_ms,
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.context.replies().forget(self.reply.id);
        if let Some((_, worker)) = self.context.directory.find(self.host) {
            // If the worker's queue is full, the next unwanted piece triggers another cancellation.
            drop(worker.try_send(ToWorker::LogCancel { id: self.reply.id }));
        }
    }
}

/// `None` if the worker is not connected, or too busy.
fn ask(
    context: &Context,
    host: HostId,
    mut request: v1::LogRequest,
) -> Option<(v1::LogRequest, LogReply)> {
    let (session, worker) = context.directory.find(host)?;
    let reply = context.replies().expect_logs(session);
    request.id = reply.id;
    if worker.try_send(ToWorker::Logs(Box::new(request))).is_err() {
        context.replies().forget(reply.id);
        return None;
    }
    Some((request, reply))
}

/// Workers that may hold the output: the first that has any is read, the others are released.
struct LogSources {
    readers: Vec<Reader>,
    is_begun: bool,
}

impl LogSources {
    async fn next(
        candidates: Option<Self>,
    ) -> Option<(Result<v1::StreamLogsResponse, Status>, Option<Self>)> {
        let mut candidates = candidates?;
        loop {
            let is_last = candidates.readers.len() <= 1;
            let reader = candidates.readers.first_mut()?;
            match reader.next().await {
                Some(Ok(piece)) => {
                    if !candidates.is_begun {
                        candidates.is_begun = true;
                        candidates.readers.truncate(1);
                    }
                    return Some((Ok(piece), Some(candidates)));
                }
                Some(Err(status)) if is_last => return Some((Err(status), None)),
                None if is_last => return None,
                Some(Err(_)) | None => drop(candidates.readers.remove(0)),
            }
        }
    }
}
