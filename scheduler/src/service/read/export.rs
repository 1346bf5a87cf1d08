//! The whole state as the bytes of a snapshot, for a client that works on a fork of it.
//!
//! The bytes are produced twice: once to learn their number, so that the client can show progress, and once
//! to be sent in pieces at the client's pace. Neither pass holds more than one piece in memory beside the
//! state.

use std::io::{self, Write};
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use muster_engine::state::{EventGaps, EventLog, RequestLog, State};
use muster_log::write_state;
use muster_model::spec::JobSpec;
use muster_proto::v1;
use muster_proto::v1::export_state_response::Part;
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio_stream::wrappers::ReceiverStream;
use tonic::Status;

use crate::service::context::Context;
use crate::service::watch::until_stopped::{Messages, until_stopped};

/// Bytes per piece: small compared to the largest message, large compared to the overhead of a message.
const CHUNK_BYTES: usize = 256 << 10;
/// Pieces buffered for the client.
const CHUNKS_AHEAD: usize = 4;

/// Stream of an export to a client.
pub(crate) type Export = Messages<v1::ExportStateResponse>;

/// Streams a state; the permits are held until it is sent or the client has gone.
pub(crate) fn stream(context: &Context, state: State, places: [OwnedSemaphorePermit; 2]) -> Export {
    let head = v1::ExportHead {
        revision: state.revision.get(),
        time_ms: context.handle.now_ms().max(state.time.0),
        cluster_id: context.config.cluster_id.clone(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        size_bytes: 0,
    };
    let (sender, receiver) = mpsc::channel(CHUNKS_AHEAD);
    tokio::task::spawn_blocking(move || {
        let sent = send(head, state, &sender);
        drop(places);
        // Errors are reported to the client, unless the client has gone.
        if let Err(error) = sent
            && error.kind() != io::ErrorKind::BrokenPipe
        {
            let status = Status::internal(format!("cannot serialize the state: {error}"));
            drop(sender.blocking_send(Err(status)));
        }
    });
    until_stopped(ReceiverStream::new(receiver), context.stop.clone())
}

type Sender = mpsc::Sender<Result<v1::ExportStateResponse, Status>>;

fn send(mut head: v1::ExportHead, state: State, sender: &Sender) -> io::Result<()> {
    let state = public(state);
    let mut size = Size(0);
    write_state(&state, &mut size)?;
    head.size_bytes = size.0;
    deliver(sender, Part::Head(head))?;
    let mut pieces = Pieces {
        sender,
        piece: BytesMut::with_capacity(CHUNK_BYTES),
    };
    write_state(&state, &mut pieces)?;
    pieces.flush()
}

/// The state without confidential data (environment variables often hold keys) and without data that a fork
/// does not need.
fn public(mut state: State) -> State {
    state.events = EventLog::restore(state.revision, EventGaps::default(), Vec::new());
    state.requests = RequestLog::default();
    let secretive: Vec<_> = state
        .jobs
        .iter()
        .filter(|(_, job)| has_environment(&job.spec))
        .map(|(id, _)| *id)
        .collect();
    for id in secretive {
        if let Some(job) = state.jobs.get_mut(&id) {
            let spec = Arc::make_mut(&mut Arc::make_mut(job).spec);
            for group in &mut spec.groups {
                group.environment.values_mut().for_each(String::clear);
            }
        }
    }
    state
}

fn has_environment(spec: &JobSpec) -> bool {
    let mut groups = spec.groups.iter();
    groups.any(|group| !group.environment.is_empty())
}

fn deliver(sender: &Sender, part: Part) -> io::Result<()> {
    let response = v1::ExportStateResponse { part: Some(part) };
    sender
        .blocking_send(Ok(response))
        .map_err(|_| io::ErrorKind::BrokenPipe.into())
}

/// Counts bytes.
struct Size(u64);

impl Write for Size {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += bytes.len() as u64;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Writer that sends bytes in pieces.
struct Pieces<'a> {
    sender: &'a Sender,
    piece: BytesMut,
}

impl Write for Pieces<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let room = CHUNK_BYTES - self.piece.len();
        let taken = room.min(bytes.len());
        self.piece.extend_from_slice(&bytes[..taken]);
        if self.piece.len() == CHUNK_BYTES {
            self.flush()?;
        }
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        let piece: Bytes = self.piece.split().freeze();
        self.piece.reserve(CHUNK_BYTES);
        if piece.is_empty() {
            return Ok(());
        }
        deliver(self.sender, Part::Chunk(piece))
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use muster_engine::apply::apply;
    use muster_harness::single;
    use muster_log::read_state;
    use muster_model::command::Command;
    use muster_model::ids::{RequestId, RequestKey};
    use muster_model::time::TimeMs;

    use super::*;

    #[test]
    fn an_export_reads_back_and_contains_no_environment_values() {
        let mut spec = single("train", 1, 1);
        let environment = &mut spec.groups[0].environment;
        environment.insert("TOKEN".to_owned(), "hunter2".to_owned());
        let mut state = State::default();
        let submit = Command::SubmitJob {
            request: RequestKey::of(RequestId(1)),
            spec: Arc::new(spec),
        };
        apply(&mut state, TimeMs(1_000), &submit).result.unwrap();

        let (sender, mut receiver) = mpsc::channel(64);
        send(v1::ExportHead::default(), state.clone(), &sender).unwrap();
        drop(sender);
        let mut bytes = Vec::new();
        let mut size = 0;
        while let Some(part) = receiver.blocking_recv() {
            match part.unwrap().part.unwrap() {
                Part::Head(head) => size = head.size_bytes,
                Part::Chunk(chunk) => bytes.extend_from_slice(&chunk),
            }
        }
        assert_eq!(bytes.len() as u64, size);
        assert!(!bytes.windows(7).any(|window| window == b"hunter2"));
        let read = read_state(&mut bytes.as_slice()).unwrap();
        assert_eq!(read.revision, state.revision);
        let (_, job) = read.jobs.iter().next().unwrap();
        assert_eq!(job.spec.groups[0].environment["TOKEN"], "");
    }
}
