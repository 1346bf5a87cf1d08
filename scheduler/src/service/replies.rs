//! Pending answers of workers: output, results of drills and debug information.
//!
//! Never blocks a worker's stream: a reader of output that does not keep up loses its request, and asks again
//! from its position.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use muster_health::rules::RuleSet;
use muster_model::health::ComponentKind;
use muster_model::ids::GpuUuid;
use muster_model::limits;
use muster_model::rejection::Rejection;
use muster_proto::convert::gpu_uuid;
use muster_proto::field::InvalidField;
use muster_proto::status::{self, status_of};
use muster_proto::v1;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, timeout_at};
use tonic::{Code, Status};

use crate::leader::{SessionId, ToWorker};
use crate::service::context::Context;

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

    fn expect_inject(
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
    pub(crate) fn told(&self, session: SessionId, answer: v1::DebugAnswer) {
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

/// The GPU of an injection, if it concerns one; an empty injection is refused.
pub(crate) fn injected_gpu(request: &v1::InjectFaultRequest) -> Result<Option<GpuUuid>, Status> {
    use v1::injection::What;
    let what = { request.injection.as_ref() }.and_then(|injection| injection.what.as_ref());
    let (field, gpu) = match what {
        None => {
            let rule = "must contain a fault to inject";
            return Err(InvalidField::new("injection", rule).into());
        }
        Some(What::Signal(signal)) => ("injection.signal.gpu", &signal.gpu),
        Some(What::Reading(reading)) if !reading.gpu.is_empty() => {
            ("injection.reading.gpu", &reading.gpu)
        }
        Some(What::Reading(_) | What::KernelLine(_) | What::Check(_)) => return Ok(None),
    };
    Ok(Some(gpu_uuid(field, gpu)?))
}

/// Refuses an injection without an observable effect.
fn check_injection(rules: &RuleSet, what: &v1::injection::What) -> Result<(), InvalidField> {
    use v1::injection::What;
    match what {
        What::Signal(signal) => match &signal.fault {
            Some(fault) => check_length("injection.signal.fault.signal", &fault.signal, 1),
            None => Ok(()),
        },
        What::KernelLine(line) => check_length("injection.kernel_line", line, 1),
        What::Check(check) => {
            check_length("injection.check.name", &check.name, 1)?;
            check_length("injection.check.output", &check.output, 0)
        }
        What::Reading(reading) => check_reading(rules, reading),
    }
}

fn check_length(field: &str, text: &str, least: usize) -> Result<(), InvalidField> {
    let limit = limits::TEXT_BYTES_MAX;
    if (least..=limit).contains(&text.len()) {
        return Ok(());
    }
    let rule = format!("must have {least} to {limit} bytes (TEXT_BYTES_MAX)");
    Err(InvalidField::new(field, rule))
}

/// A reading must match its rule in component and metrics.
fn check_reading(rules: &RuleSet, reading: &v1::InjectedReading) -> Result<(), InvalidField> {
    let of = match (reading.gpu.as_str(), reading.adapter.as_str()) {
        ("", "") => ComponentKind::Host,
        (_, "") => ComponentKind::Gpu,
        ("", _) => ComponentKind::Nic,
        _ => {
            let rule = "must be a GPU or an adapter, not both";
            return Err(InvalidField::new("injection.reading.adapter", rule));
        }
    };
    let Some(rule) = rules.rule(&reading.rule) else {
        let problem = format!(
            "unknown rule `{}` (`muster health rules` lists them)",
            reading.rule
        );
        return Err(InvalidField::new("injection.reading.rule", problem));
    };
    // Hosts report on behalf of racks and tasks.
    let read_of = match rule.component {
        ComponentKind::Rack | ComponentKind::Task => ComponentKind::Host,
        kind => kind,
    };
    if read_of != of {
        let (name, about) = (&rule.id, rule.component);
        let problem = format!("rule {name} applies to a {about}, and this is a {of}");
        return Err(InvalidField::new("injection.reading.rule", problem));
    }
    let sides = rule.degraded.when.iter().chain(&rule.fatal.when);
    let known: BTreeSet<&str> = { sides.chain(&rule.healthy) }
        .map(|condition| condition.metric.as_str())
        .collect();
    let names: Vec<&str> = known.iter().copied().collect();
    let unknown = { reading.metrics.keys() }.find(|metric| !known.contains(metric.as_str()));
    let problem = match unknown {
        Some(metric) => format!("rule {} has no `{metric}`; it has", rule.id),
        None if reading.metrics.is_empty() => format!("needs a metric; rule {} has", rule.id),
        None => return Ok(()),
    };
    let problem = format!("{problem} {}", names.join(", "));
    Err(InvalidField::new("injection.reading.metrics", problem))
}

/// Injects a fault on a host with simulated GPUs; on the leader only.
pub(crate) async fn inject(
    context: &Context,
    request: v1::InjectFaultRequest,
    deadline: Instant,
) -> Result<v1::InjectFaultResponse, Status> {
    let leadership = context.handle.leadership().borrow().clone();
    if !leadership.is_self {
        return Err(status::not_leader(
            leadership.leader.as_ref().map(|peer| peer.address.as_str()),
        ));
    }
    let gpu = injected_gpu(&request)?;
    let state = context.fork();
    if let Some(what) = { request.injection.as_ref() }.and_then(|it| it.what.as_ref()) {
        check_injection(&state.health_rules.set, what)?;
    }
    let host = state
        .host_by_name(&request.host)
        .ok_or_else(|| status_of(&Rejection::UnknownHost(request.host.clone())))?;
    let is_its_own = |gpu: &GpuUuid| host.gpus.iter().any(|known| known.uuid == *gpu);
    if let Some(gpu) = gpu.filter(|gpu| !is_its_own(gpu)) {
        return Err(status_of(&Rejection::UnknownGpu(gpu)));
    }
    let (session, worker) = context
        .directory
        .find(host.id)
        .ok_or_else(|| unreachable(&request.host))?;
    let (awaited, answer) = context.replies().expect_inject(session);
    let injection = request.injection.unwrap_or_default();
    let order = ToWorker::Inject(Box::new(v1::InjectFault {
        id: awaited.id,
        injection: Some(injection),
    }));
    if worker.try_send(order).is_err() {
        return Err(unreachable(&request.host));
    }
    let answered = timeout_at(deadline, answer).await;
    match answered {
        Ok(Ok(v1::InjectResult { error: None, .. })) => Ok(v1::InjectFaultResponse {}),
        Ok(Ok(v1::InjectResult {
            error: Some(error), ..
        })) => Err(status::error(
            Code::FailedPrecondition,
            "NOT_SIMULATED",
            &error,
            &[],
        )),
        Ok(Err(_)) => Err(unreachable(&request.host)),
        Err(_) => Err(status::error(
            Code::DeadlineExceeded,
            HOST_UNREACHABLE,
            &format!(
                "the worker of host `{}` did not answer before the timeout",
                request.host
            ),
            &[("host", request.host)],
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_waits_any_more_once_the_caller_has_gone() {
        let replies = Replies::default();
        let (awaited, answer) = replies.expect_inject(SessionId(1));
        let (other, _answer) = replies.expect_debug(SessionId(1));
        drop((awaited, answer));
        let waiting: Vec<u64> = replies.lock().waiting.keys().copied().collect();
        assert_eq!(waiting, [other.id]);
    }
}
