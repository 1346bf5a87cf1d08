//! Output of tasks: the leader asks the worker through its session, a follower asks the leader.

use std::pin::Pin;

use futures::stream::{self, unfold};
use futures::{Stream, StreamExt as _};
use muster_core::desired::TaskKey;
use muster_core::ids::{AttemptEpoch, HostId, JobId, TaskIndex, UnitIndex};
use muster_core::state::{Job, State};
use muster_proto::status::{self, ErrorReport, NOT_LEADER};
use muster_proto::v1;
use muster_proto::v1::stream_logs_request::Start;
use tokio::time::{Instant, timeout_at};
use tonic::{Code, Status};

use crate::leader::{LogRequest, LogStart, ToWorker};
use crate::service::context::Context;
use crate::service::jobs::find;
use crate::service::replies::{LogPiece, LogReply, unreachable};

/// Output on its way to a client.
pub(crate) type Output = Pin<Box<dyn Stream<Item = Result<v1::StreamLogsResponse, Status>> + Send>>;

/// Output from here if this replica leads, through the leader otherwise.
pub(crate) async fn stream(
    context: &Context,
    request: v1::StreamLogsRequest,
    deadline: Instant,
) -> Result<Output, Status> {
    let mut leadership = context.handle.leadership();
    loop {
        let now = leadership.borrow_and_update().clone();
        let result = match &now.leader {
            _ if now.is_self => stream_here(context, request),
            Some(leader) => through(context, &leader.address, request).await,
            None => Err(status::not_leader(None)),
        };
        match result {
            Err(status) if ErrorReport::of(&status).reason == NOT_LEADER => {
                let changed = timeout_at(deadline, leadership.changed()).await;
                if !matches!(changed, Ok(Ok(()))) {
                    return Err(status);
                }
            }
            result => return result,
        }
    }
}

async fn through(
    context: &Context,
    leader: &str,
    request: v1::StreamLogsRequest,
) -> Result<Output, Status> {
    let mut client = context.peers.client(leader)?;
    let leader = leader.to_owned();
    let begun = client.forward_logs(request).await;
    let pieces = begun
        .map_err(|status| broken(&leader, status))?
        .into_inner();
    let pieces = pieces.map(move |piece| piece.map_err(|status| broken(&leader, status)));
    let stop = context.stop.clone();
    Ok(Box::pin(stream::StreamExt::take_until(
        pieces,
        async move { stop.cancelled().await },
    )))
}

/// What the leader refused is its word; a connection that broke says only that it may be dead, and that
/// the reader should ask again.
fn broken(leader: &str, status: Status) -> Status {
    if ErrorReport::of(&status).reason.is_empty() {
        Status::unavailable(format!(
            "the connection to the leader at {leader} broke: {}",
            status.message()
        ))
    } else {
        status
    }
}

/// Where a task's output lies.
struct Source {
    attempt: u32,
    epoch: AttemptEpoch,
    /// The task's host; where only the attempt's hosts are remembered, all of those.
    hosts: Vec<HostId>,
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
    let source = source(&state, &request)?;
    let mut readers = Vec::new();
    let mut failure = no_logs(&request, "no host is known to hold it");
    for host in &source.hosts {
        match Reader::open(context, &state, *host, &source, &request) {
            Ok(reader) => readers.push(reader),
            Err(status) => failure = status,
        }
    }
    if readers.is_empty() {
        return Err(failure);
    }
    let stop = context.stop.clone();
    let output = unfold(
        Some(Candidates {
            readers,
            is_begun: false,
        }),
        Candidates::next,
    );
    Ok(Box::pin(stream::StreamExt::take_until(
        output,
        async move { stop.cancelled().await },
    )))
}

fn source(state: &State, request: &v1::StreamLogsRequest) -> Result<Source, Status> {
    let job = find(state, JobId(request.job_id))?;
    let task = TaskIndex(request.task);
    if job.spec.group_of(task).is_none() {
        return Err(unknown_task(job, task));
    }
    let unit = if job.spec.gang {
        UnitIndex(0)
    } else {
        UnitIndex(task.get())
    };
    match attempt(job, unit, task, request.attempt) {
        Some((source, true)) => Ok(source),
        // Its worker has no folder for it yet, which would look like one that was removed.
        Some((_, false)) => Err(no_logs(request, "it has not started yet")),
        None if request.attempt == 0 => Err(no_logs(request, "it has not started yet")),
        None => Err(no_logs(
            request,
            "it has no such attempt, or one that is forgotten",
        )),
    }
}

/// Where an attempt's output lies, and whether its task has started.
fn attempt(job: &Job, unit: UnitIndex, task: TaskIndex, number: u32) -> Option<(Source, bool)> {
    let unit = job.unit(unit)?;
    let current = unit
        .attempt
        .as_deref()
        .filter(|attempt| number == 0 || attempt.number == number);
    if let Some(attempt) = current {
        let run = attempt.tasks.iter().find(|run| run.task == task)?;
        let source = Source {
            attempt: attempt.number,
            epoch: attempt.epoch,
            hosts: vec![run.host],
        };
        return Some((source, run.phase.has_begun()));
    }
    let past = unit
        .past
        .iter()
        .rev()
        .find(|past| number == 0 || past.number == number)?;
    let source = Source {
        attempt: past.number,
        epoch: past.epoch,
        hosts: past.hosts.clone(),
    };
    Some((source, true))
}

fn unknown_task(job: &Job, task: TaskIndex) -> Status {
    let message = format!(
        "job {} has no task {task}: its last one is {}",
        job.id,
        job.spec.tasks().saturating_sub(1)
    );
    let metadata = [("job", job.id.to_string()), ("task", task.to_string())];
    status::error(Code::NotFound, "UNKNOWN_TASK", &message, &metadata)
}

fn no_logs(request: &v1::StreamLogsRequest, detail: &str) -> Status {
    let message = format!(
        "there is no output of task {} of job {}: {detail}",
        request.task, request.job_id
    );
    let metadata = [
        ("job", request.job_id.to_string()),
        ("task", request.task.to_string()),
    ];
    status::error(Code::NotFound, "NO_LOGS", &message, &metadata)
}

/// Reads one worker's output, asking again where it was overrun.
struct Reader {
    context: Context,
    host: HostId,
    host_name: String,
    attempt: u32,
    request: LogRequest,
    reply: LogReply,
    is_first: bool,
    /// True once the last piece was read, which may hold output.
    is_over: bool,
}

impl Reader {
    fn open(
        context: &Context,
        state: &State,
        host: HostId,
        source: &Source,
        request: &v1::StreamLogsRequest,
    ) -> Result<Self, Status> {
        let host_name = state
            .host(host)
            .map_or_else(String::new, |known| known.name.to_string());
        let order = LogRequest {
            id: 0,
            key: TaskKey {
                job: JobId(request.job_id),
                task: TaskIndex(request.task),
            },
            epoch: source.epoch,
            stderr: request.stream() == v1::LogStream::Stderr,
            follow: request.follow,
            start: match request.start {
                Some(Start::OffsetBytes(offset)) => LogStart::OffsetBytes(offset),
                Some(Start::TailLines(lines)) => LogStart::TailLines(lines),
                None => LogStart::OffsetBytes(0),
            },
        };
        let (order, reply) = ask(context, host, &host_name, order)?;
        Ok(Self {
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

    /// The next piece; none at the end.
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
                return Some(Err(status::error(Code::NotFound, "NO_LOGS", &error, &[])));
            }
            self.is_over = chunk.end;
            if chunk.end && chunk.data.is_empty() {
                break;
            }
            let end = chunk.offset_bytes + chunk.data.len() as u64;
            self.request.start = LogStart::OffsetBytes(end);
            return Some(Ok(self.response(chunk)));
        }
        None
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
        }
    }

    fn ask_again(&mut self) -> Result<(), Status> {
        let (request, reply) = ask(
            &self.context,
            self.host,
            &self.host_name,
            self.request.clone(),
        )?;
        self.request = request;
        self.reply = reply;
        Ok(())
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.context.replies().forget(self.reply.id);
        if let Some((_, worker)) = self.context.directory.find(self.host) {
            // A worker whose queue is full is told by the unwanted pieces that it sends.
            drop(worker.try_send(ToWorker::LogCancel { id: self.reply.id }));
        }
    }
}

fn ask(
    context: &Context,
    host: HostId,
    host_name: &str,
    mut request: LogRequest,
) -> Result<(LogRequest, LogReply), Status> {
    let (session, worker) = context
        .directory
        .find(host)
        .ok_or_else(|| unreachable(host_name))?;
    let reply = context.replies().expect_logs(session);
    request.id = reply.id;
    if worker.try_send(ToWorker::Logs(request.clone())).is_err() {
        context.replies().forget(reply.id);
        return Err(unreachable(host_name));
    }
    Ok((request, reply))
}

/// Workers that may hold the output: the first that has any is read, the others are let go.
struct Candidates {
    readers: Vec<Reader>,
    is_begun: bool,
}

impl Candidates {
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
