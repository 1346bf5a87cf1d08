//! Pending answers of workers: output, results of drills and debug information.
//!
//! Never blocks a worker's stream: a reader of output that does not keep up loses its request, and asks again
//! from its position.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use muster_proto::{status, v1};
use tokio::sync::{mpsc, oneshot};
use tonic::{Code, Status};

use crate::leader::SessionId;

/// Pieces of output (64 KiB each) buffered for a slow reader.
const LOG_CHUNKS_MAX: usize = 32;
/// Reason of a failure to reach a host's worker.
pub(crate) const HOST_UNREACHABLE: &str = "HOST_UNREACHABLE";

/// Unanswered requests to workers.
#[derive(Debug, Default)]
pub(crate) struct Replies {
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    next_id: u64,
    waiting: BTreeMap<u64, Waiting>,
}

#[derive(Debug)]
struct Waiting {
    session: SessionId,
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    Logs {
        chunks: mpsc::Sender<v1::LogChunk>,
        is_overrun: Arc<AtomicBool>,
    },
    Inject(oneshot::Sender<v1::InjectResult>),
    Debug(oneshot::Sender<v1::DebugAnswer>),
}

/// A reader's end of a request for output.
#[derive(Debug)]
pub(crate) struct LogReply {
    /// Id of the request.
    pub(crate) id: u64,
    chunks: mpsc::Receiver<v1::LogChunk>,
    is_overrun: Arc<AtomicBool>,
}

/// Next item for a reader of output.
#[derive(Debug)]
pub(crate) enum LogPiece {
    /// A piece.
    Chunk(v1::LogChunk),
    /// The reader did not keep up: it must ask again from its position.
    Overrun,
    /// The worker's stream is gone.
    Lost,
}

impl LogReply {
    /// The next piece.
    pub(crate) async fn next(&mut self) -> LogPiece {
        match self.chunks.recv().await {
            Some(chunk) => LogPiece::Chunk(chunk),
            None if self.is_overrun.load(Ordering::Acquire) => LogPiece::Overrun,
            None => LogPiece::Lost,
        }
    }
}

/// An awaited answer: dropping it cancels the wait, also when the caller has gone.
pub(crate) struct Awaited<'a> {
    replies: &'a Replies,
    pub(crate) id: u64,
}

impl Drop for Awaited<'_> {
    fn drop(&mut self) {
        self.replies.forget(self.id);
    }
}

impl Replies {
    /// Expects output from a stream.
    pub(crate) fn expect_logs(&self, session: SessionId) -> LogReply {
        let (chunks, receiver) = mpsc::channel(LOG_CHUNKS_MAX);
        let is_overrun = Arc::new(AtomicBool::new(false));
        let kind = Kind::Logs {
            chunks,
            is_overrun: Arc::clone(&is_overrun),
        };
        let id = self.expect(session, kind);
        LogReply {
            id,
            chunks: receiver,
            is_overrun,
        }
    }

    /// Expects the result of a drill from a worker.
    pub(crate) fn expect_inject(
        &self,
        session: SessionId,
    ) -> (Awaited<'_>, oneshot::Receiver<v1::InjectResult>) {
        let (sender, receiver) = oneshot::channel();
        (self.await_one(session, Kind::Inject(sender)), receiver)
    }

    /// Expects debug information from a worker.
    pub(crate) fn expect_debug(
        &self,
        session: SessionId,
    ) -> (Awaited<'_>, oneshot::Receiver<v1::DebugAnswer>) {
        let (sender, receiver) = oneshot::channel();
        (self.await_one(session, Kind::Debug(sender)), receiver)
    }

    fn await_one(&self, session: SessionId, kind: Kind) -> Awaited<'_> {
        let id = self.expect(session, kind);
        Awaited { replies: self, id }
    }

    fn expect(&self, session: SessionId, kind: Kind) -> u64 {
        let mut inner = self.lock();
        inner.next_id += 1;
        let id = inner.next_id;
        inner.waiting.insert(id, Waiting { session, kind });
        id
    }

    /// Cancels the wait for an answer.
    pub(crate) fn forget(&self, id: u64) {
        self.lock().waiting.remove(&id);
    }

    /// Delivers a piece of output of a worker; false if it is no longer wanted.
    pub(crate) fn chunk(&self, session: SessionId, chunk: v1::LogChunk) -> bool {
        let mut inner = self.lock();
        let id = chunk.id;
        let is_last = chunk.end;
        let Some(Waiting {
            session: of,
            kind: Kind::Logs { chunks, is_overrun },
        }) = inner.waiting.get(&id)
        else {
            return false;
        };
        // A worker answers its own requests only.
        if *of != session {
            return false;
        }
        let is_taken = match chunks.try_send(chunk) {
            Ok(()) => true,
            Err(mpsc::error::TrySendError::Full(_)) => {
                is_overrun.store(true, Ordering::Release);
                false
            }
            Err(mpsc::error::TrySendError::Closed(_)) => false,
        };
        if is_last || !is_taken {
            inner.waiting.remove(&id);
        }
        is_taken
    }

    /// Delivers a worker's answer to a drill.
    pub(crate) fn injected(&self, session: SessionId, result: v1::InjectResult) {
        if let Some(Kind::Inject(sender)) = self.answered(session, result.id) {
            // The caller may be gone and needs no answer.
            drop(sender.send(result));
        }
    }

    /// Delivers debug information from a worker.
    pub(crate) fn debug_answered(&self, session: SessionId, answer: v1::DebugAnswer) {
        if let Some(Kind::Debug(sender)) = self.answered(session, answer.id) {
            // As above.
            drop(sender.send(answer));
        }
    }

    /// The recipient of the single answer of a request; a worker answers its own requests only.
    fn answered(&self, session: SessionId, id: u64) -> Option<Kind> {
        let mut inner = self.lock();
        let waiting = inner.waiting.get(&id)?;
        if waiting.session != session {
            return None;
        }
        inner.waiting.remove(&id).map(|waiting| waiting.kind)
    }

    /// Drops the pending answers of a closed stream, which closes their channels.
    pub(crate) fn end_session(&self, session: SessionId) {
        self.lock()
            .waiting
            .retain(|_, waiting| waiting.session != session);
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Error that a host's worker is not connected to this leader.
pub(crate) fn unreachable(host: &str) -> Status {
    status::retryable(
        Code::Unavailable,
        HOST_UNREACHABLE,
        &format!("the worker of host `{host}` is not connected to the leader"),
        &[("host", host.to_owned())],
        std::time::Duration::from_secs(1),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_ends_when_its_caller_has_gone() {
        let replies = Replies::default();
        let (awaited, answer) = replies.expect_inject(SessionId(1));
        let (other, _answer) = replies.expect_debug(SessionId(1));
        drop((awaited, answer));
        let waiting: Vec<u64> = replies.lock().waiting.keys().copied().collect();
        assert_eq!(waiting, [other.id]);
    }
}
