//! `WorkerService`: wire protocol of workers' sessions. The leader loop decides; this file translates.

use std::collections::BTreeSet;
use std::pin::Pin;
use std::sync::Arc;

use futures::Stream;
use futures::stream::unfold;
use muster_model::command::HostRegistration;
use muster_model::heartbeat::Heartbeat;
use muster_model::ids::LeadershipEpoch;
use muster_model::rejection::Rejection;
use muster_model::spec::Violation;
use muster_proto::status::{self, rejected_to_wire};
use muster_proto::v1;
use muster_proto::v1::leader_message::Kind as ToWire;
use muster_proto::v1::worker_message::Kind as FromWire;
use muster_proto::v1::worker_service_server::WorkerService;
use muster_raft_store::{Clock as _, WallClock};
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio::time::{Duration, Instant, timeout};
use tokio_util::sync::{CancellationToken, DropGuard};
use tonic::{Code, Request, Response, Status, Streaming};

use crate::leader::{CloseReason, LeaderInput, SessionId, TO_WORKER_MAX, ToWorker};
use crate::service::context::Context;
use crate::service::gate::{Caller, caller_of};
use crate::service::jobs::exec;

/// Longest wait for a worker's first message.
const HELLO_TIMEOUT: Duration = Duration::from_secs(10);

/// Cancelled requests for output remembered per stream; ids only grow.
const CANCELLED_REQUESTS_MAX: usize = 1_024;

/// `WorkerService` of one replica.
pub(crate) struct Workers(pub(crate) Context);

#[tonic::async_trait]
impl WorkerService for Workers {
    type SessionStream = Pin<Box<dyn Stream<Item = Result<v1::LeaderMessage, Status>> + Send>>;

    type ExecStream = exec::Orders;

    async fn exec(
        &self,
        request: Request<Streaming<v1::ExecUp>>,
    ) -> Result<Response<Self::ExecStream>, Status> {
        let orders = exec::answered(&self.0, request.into_inner()).await?;
        Ok(Response::new(orders))
    }

    async fn session(
        &self,
        request: Request<Streaming<v1::WorkerMessage>>,
    ) -> Result<Response<Self::SessionStream>, Status> {
        let permit = self.0.admit_worker()?;
        let leadership = self.0.handle.leadership().borrow().clone();
        if !leadership.is_self {
            let leader = leadership.leader.as_ref().map(|peer| peer.address.as_str());
            return Err(status::not_leader(leader));
        }
        let session = SessionId(self.0.next_session());
        let (to_worker, outgoing) = mpsc::channel(TO_WORKER_MAX);
        let gone = CancellationToken::new();
        let incoming = Incoming {
            context: self.0.clone(),
            session,
            caller: caller_of(&request),
            messages: request.into_inner(),
            gone: gone.clone(),
            cancelled_requests: BTreeSet::new(),
        };
        tokio::spawn(incoming.run(to_worker));
        let outgoing = Outgoing {
            cluster_id: self.0.config.cluster_id.clone(),
            outgoing,
            _gone: gone.drop_guard(),
            _permit: permit,
        };
        Ok(Response::new(Box::pin(unfold(
            Some(outgoing),
            Outgoing::next,
        ))))
    }
}

/// Messages from a worker to the leader loop.
struct Incoming {
    context: Context,
    session: SessionId,
    caller: Caller,
    messages: Streaming<v1::WorkerMessage>,
    /// Cancelled when the stream to the worker is gone.
    gone: CancellationToken,
    /// Cancelled requests for output, the newest `CANCELLED_REQUESTS_MAX` of them.
    cancelled_requests: BTreeSet<u64>,
}

/// Error if a worker's certificate does not match its host name.
fn certificate_mismatch(caller: &Caller, name: &str) -> Option<String> {
    match caller {
        Caller::Worker(proven) if proven != name => Some(format!(
            "host `{name}` registered with the certificate of worker `{proven}`: create its own with \
             `muster cert worker {name}`"
        )),
        _ => None,
    }
}

impl Incoming {
    async fn run(mut self, to_worker: mpsc::Sender<ToWorker>) {
        let stop = self.context.stop.clone();
        let gone = self.gone.clone();
        tokio::select! {
            () = stop.cancelled() => {}
            () = gone.cancelled() => {}
            () = self.read(to_worker) => {}
        }
        self.context.replies().end_session(self.session);
        self.send(LeaderInput::Closed {
            session: self.session,
        })
        .await;
    }

    async fn read(&mut self, to_worker: mpsc::Sender<ToWorker>) {
        match self.hello(&to_worker).await {
            Ok(hello) => self.send(hello).await,
            Err(status) => {
                tracing::info!(%status, "worker stream did not begin");
                return;
            }
        }
        // The loop has its own sender: when it drops that, the stream ends.
        let to_worker = {
            let own = to_worker;
            own.downgrade()
        };
        loop {
            let message = match self.messages.message().await {
                Ok(Some(message)) => message,
                Ok(None) => return,
                Err(status) => {
                    tracing::debug!(session = self.session.0, %status, "worker stream broke");
                    return;
                }
            };
            if let Err(status) = self.take(message, &to_worker).await {
                tracing::warn!(session = self.session.0, %status, "invalid message of a worker");
                return;
            }
        }
    }

    async fn hello(&mut self, to_worker: &mpsc::Sender<ToWorker>) -> Result<LeaderInput, Status> {
        let first = timeout(HELLO_TIMEOUT, self.messages.message())
            .await
            .map_err(|_| {
                Status::deadline_exceeded("no `Hello` from the worker before the timeout")
            })??;
        let Some(v1::WorkerMessage {
            kind: Some(FromWire::Hello(hello)),
        }) = first
        else {
            return Err(Status::invalid_argument(
                "the first message must be `Hello`",
            ));
        };
        let on_wire = hello
            .registration
            .ok_or_else(|| Status::invalid_argument("hello.registration: must be present"))?;
        let registration = match HostRegistration::try_from(on_wire) {
            Ok(registration) => Arc::new(registration),
            Err(invalid) => {
                let rejection = invalid.within("registration").into();
                drop(to_worker.try_send(ToWorker::Close(CloseReason::Rejected(rejection))));
                return Err(Status::invalid_argument("invalid registration"));
            }
        };
        if let Some(rule) = certificate_mismatch(&self.caller, &registration.name) {
            let violation = Violation {
                field: "registration.name".to_owned(),
                rule,
            };
            let rejection = Rejection::InvalidRegistration(violation);
            drop(to_worker.try_send(ToWorker::Close(CloseReason::Rejected(rejection))));
            return Err(Status::permission_denied(
                "the certificate belongs to another host",
            ));
        }
        Ok(LeaderInput::Hello {
            session: self.session,
            registration,
            leader_seen: LeadershipEpoch(hello.leadership_epoch),
            can_hold: hello.can_hold,
            to_worker: to_worker.clone(),
        })
    }

    async fn take(
        &mut self,
        message: v1::WorkerMessage,
        to_worker: &mpsc::WeakSender<ToWorker>,
    ) -> Result<(), Status> {
        match message.kind {
            Some(FromWire::Heartbeat(heartbeat)) => {
                let heartbeat = Heartbeat::try_from(heartbeat)?;
                self.send(LeaderInput::Heartbeat {
                    session: self.session,
                    heartbeat,
                    arrived: Instant::now(),
                })
                .await;
            }
            Some(FromWire::LogChunk(chunk)) => self.log_chunk(chunk, to_worker),
            Some(FromWire::InjectResult(result)) => {
                self.context.replies().injected(self.session, result);
            }
            Some(FromWire::Debug(answer)) => {
                self.context.replies().debug_answered(self.session, answer);
            }
            Some(FromWire::Hello(_)) => {
                return Err(Status::invalid_argument(
                    "`Hello` is only valid as the first message",
                ));
            }
            // A message of a newer worker, unknown to this leader.
            None => {}
        }
        Ok(())
    }

    /// Cancels a request for output that is no longer wanted: once, because the pieces still in flight would
    /// fill the queue to the worker.
    fn log_chunk(&mut self, chunk: v1::LogChunk, to_worker: &mpsc::WeakSender<ToWorker>) {
        let id = chunk.id;
        let is_last = chunk.end;
        if !self.context.replies().chunk(self.session, chunk)
            && !is_last
            && !self.cancelled_requests.contains(&id)
            && let Some(to_worker) = to_worker.upgrade()
            // Does not wait for a full queue: the next unwanted piece tries again.
            && to_worker.try_send(ToWorker::LogCancel { id }).is_ok()
        {
            self.cancelled_requests.insert(id);
            if self.cancelled_requests.len() > CANCELLED_REQUESTS_MAX {
                self.cancelled_requests.pop_first();
            }
        }
    }

    /// Waits while the loop is busy, which holds back this worker only.
    async fn send(&self, input: LeaderInput) {
        // The loop is gone only when the replica stops.
        drop(self.context.leader_inputs.send(input).await);
    }
}

/// Messages from the leader loop to a worker.
struct Outgoing {
    cluster_id: String,
    outgoing: mpsc::Receiver<ToWorker>,
    _gone: DropGuard,
    _permit: OwnedSemaphorePermit,
}

impl Outgoing {
    async fn next(
        outgoing: Option<Self>,
    ) -> Option<(Result<v1::LeaderMessage, Status>, Option<Self>)> {
        let mut outgoing = outgoing?;
        match outgoing.outgoing.recv().await {
            Some(ToWorker::Close(CloseReason::Rejected(rejection))) => {
                let rejected = ToWire::Rejected(rejected_to_wire(&rejection));
                outgoing.outgoing.close();
                Some((
                    Ok(v1::LeaderMessage {
                        kind: Some(rejected),
                    }),
                    None,
                ))
            }
            Some(ToWorker::Close(reason)) => Some((Err(closed(&reason)), None)),
            Some(message) => {
                let mut kind = to_wire(message)?;
                if let ToWire::Welcome(welcome) = &mut kind {
                    welcome.cluster_id.clone_from(&outgoing.cluster_id);
                }
                let message = v1::LeaderMessage { kind: Some(kind) };
                Some((Ok(message), Some(outgoing)))
            }
            // Dropped without a reason: the queue was full, or the replica stops.
            None => Some((Err(status::not_leader(None)), None)),
        }
    }
}

fn closed(reason: &CloseReason) -> Status {
    match reason {
        CloseReason::NotLeader { leader } => {
            status::not_leader(leader.as_ref().map(|peer| peer.address.as_str()))
        }
        CloseReason::Replaced => status::error(
            Code::Aborted,
            "REPLACED",
            "a newer stream of the same worker replaced this one",
            &[],
        ),
        CloseReason::Busy => status::retryable(
            Code::ResourceExhausted,
            "OVERLOADED",
            "the leader is too busy for the registration",
            &[],
            Duration::from_millis(500),
        ),
        CloseReason::Rejected(rejection) => status::status_of(rejection),
    }
}

/// `None` for messages without a wire form.
fn to_wire(message: ToWorker) -> Option<ToWire> {
    Some(match message {
        ToWorker::Welcome {
            host,
            leader,
            timings,
            replicas,
        } => ToWire::Welcome(v1::Welcome {
            host_id: host.get(),
            leadership_epoch: leader.get(),
            timings: Some(timings.into()),
            replica_addresses: replicas,
            cluster_id: String::new(),
        }),
        ToWorker::Replicas(addresses) => ToWire::Replicas(v1::ReplicaAddresses { addresses }),
        ToWorker::Desired(desired) => ToWire::Desired((&*desired).into()),
        ToWorker::HeartbeatAck {
            leader,
            sequence,
            next_heartbeat_ms,
        } => ToWire::HeartbeatAck(v1::HeartbeatAck {
            leadership_epoch: leader.get(),
            sequence,
            next_heartbeat_ms,
            time_ms: Some(WallClock.now_ms()),
        }),
        ToWorker::Logs(request) => ToWire::LogRequest(*request),
        ToWorker::Exec(order) => ToWire::Exec(*order),
        ToWorker::LogCancel { id } => ToWire::LogCancel(v1::LogCancel { id }),
        ToWorker::Inject(order) => ToWire::InjectFault(*order),
        ToWorker::Debug(order) => ToWire::Debug(*order),
        ToWorker::Close(_) => return None,
    })
}
