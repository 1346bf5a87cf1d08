//! Test leader with real gRPC and without scheduling.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use muster_model::desired::{DesiredState, HealthDuties, TaskAssignment};
use muster_model::heartbeat::{TaskStatus, WorkerStatus};
use muster_model::ids::{HostId, LeadershipEpoch, Revision, TaskKey};
use muster_model::timings::Timings;
use muster_proto::status::not_leader;
use muster_proto::v1;
use muster_proto::v1::leader_message::Kind as LeaderKind;
use muster_proto::v1::worker_message::Kind as WorkerKind;
use muster_proto::v1::worker_service_server::{WorkerService, WorkerServiceServer};
use muster_worker::clock::wall_clock;
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio_stream::StreamExt;
use tokio_stream::wrappers::{ReceiverStream, TcpListenerStream};
use tonic::{Request, Response, Status, Streaming};

use crate::support::TIMEOUT_MS;

pub(crate) const HOST: HostId = HostId(5);

/// State and behaviour of the leader.
#[derive(Debug, Default)]
pub(crate) struct Inner {
    /// Answers `NOT_LEADER` while false.
    pub(crate) leading: bool,
    /// Does not answer greetings.
    pub(crate) silent: bool,
    /// Leader address in those answers.
    pub(crate) hint: Option<String>,
    pub(crate) epoch: u64,
    revision: u64,
    pub(crate) acking: bool,
    /// Offset of its clock; none if it sends no time.
    pub(crate) clock_ahead_ms: Option<u64>,
    timings: Timings,
    tasks: BTreeMap<TaskKey, TaskAssignment>,
    /// Health duties sent to the host.
    duties: HealthDuties,
    stream: Option<mpsc::Sender<Result<v1::LeaderMessage, Status>>>,
    pub(crate) hellos: Vec<v1::Hello>,
    pub(crate) heartbeats: u64,
    pub(crate) status: Option<WorkerStatus>,
    pub(crate) chunks: Vec<v1::LogChunk>,
    pub(crate) injected: Vec<v1::InjectResult>,
    /// Exec sessions by token: the channel to their input, and their messages.
    pub(crate) execs: BTreeMap<String, ExecCall>,
}

/// One exec session: its input, until it is dropped, and the messages received.
pub(crate) type ExecCall = (
    Option<mpsc::Sender<Result<v1::ExecRequest, Status>>>,
    Vec<v1::exec_response::Kind>,
);

/// A replica that leads, or answers that it does not.
#[derive(Clone, Debug)]
pub(crate) struct Leader {
    pub(crate) address: SocketAddr,
    inner: Arc<Mutex<Inner>>,
}

impl Leader {
    /// Starts one; it leads if `epoch` is not 0.
    pub(crate) async fn start(epoch: u64) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let leader = Self {
            address: listener.local_addr().unwrap(),
            inner: Arc::new(Mutex::new(Inner {
                leading: epoch != 0,
                epoch,
                acking: true,
                timings: Timings {
                    heartbeat_ms: 200,
                    suspect_ms: 5_000,
                    lost_ms: 15_000,
                },
                ..Inner::default()
            })),
        };
        let service = WorkerServiceServer::new(leader.clone());
        // Without it every second message waits 40 ms for an acknowledgement.
        let incoming = TcpListenerStream::new(listener).map(|stream| {
            let stream = stream?;
            stream.set_nodelay(true)?;
            Ok::<_, std::io::Error>(stream)
        });
        tokio::spawn(
            tonic::transport::Server::builder()
                .add_service(service)
                .serve_with_incoming(incoming),
        );
        leader
    }

    pub(crate) fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap()
    }

    /// Loses the leadership: its streams end.
    pub(crate) fn step_down(&self) {
        let mut inner = self.inner();
        inner.leading = false;
        inner.stream = None;
    }

    /// Leads from now on.
    pub(crate) fn lead(&self, epoch: u64) {
        let mut inner = self.inner();
        inner.leading = true;
        inner.epoch = epoch;
    }

    /// Replaces the desired tasks of the host.
    pub(crate) fn want(&self, tasks: impl IntoIterator<Item = TaskAssignment>) {
        let mut inner = self.inner();
        inner.revision += 1;
        inner.tasks = tasks.into_iter().map(|task| (task.key, task)).collect();
        inner.send_desired();
    }

    /// Replaces the health duties sent to the host.
    pub(crate) fn set_duties(&self, duties: HealthDuties) {
        let mut inner = self.inner();
        inner.revision += 1;
        inner.duties = duties;
        inner.send_desired();
    }

    pub(crate) fn send(&self, kind: LeaderKind) {
        self.inner().send(kind);
    }

    /// Waits until a condition holds on the leader's state.
    pub(crate) async fn eventually<T>(
        &self,
        what: &str,
        mut find: impl FnMut(&Inner) -> Option<T>,
    ) -> T {
        let until = tokio::time::Instant::now() + Duration::from_millis(TIMEOUT_MS);
        loop {
            let found = find(&self.inner());
            if let Some(found) = found {
                return found;
            }
            assert!(
                tokio::time::Instant::now() < until,
                "{what}: not within {TIMEOUT_MS} ms: {:?}",
                self.inner()
            );
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    /// Waits until the worker reports a task in a state.
    pub(crate) async fn eventually_task<T>(
        &self,
        what: &str,
        mut find: impl FnMut(&TaskStatus) -> Option<T>,
    ) -> T {
        self.eventually(what, |inner| {
            let status = inner.status.as_ref()?;
            status.tasks.iter().find_map(&mut find)
        })
        .await
    }
}

impl Inner {
    fn send(&mut self, kind: LeaderKind) {
        if let Some(stream) = &self.stream {
            drop(stream.try_send(Ok(v1::LeaderMessage { kind: Some(kind) })));
        }
    }

    fn send_desired(&mut self) {
        let desired = DesiredState {
            leader: LeadershipEpoch(self.epoch),
            revision: Revision(self.revision),
            host: HOST,
            tasks: self.tasks.values().cloned().collect(),
            health: self.duties.clone(),
        };
        self.send(LeaderKind::Desired((&desired).into()));
    }

    fn receive(&mut self, kind: WorkerKind) {
        match kind {
            WorkerKind::Hello(hello) => {
                self.hellos.push(hello);
                self.send(LeaderKind::Welcome(v1::Welcome {
                    host_id: HOST.get(),
                    leadership_epoch: self.epoch,
                    timings: Some(self.timings.into()),
                    replica_addresses: Vec::new(),
                    cluster_id: "test".to_owned(),
                }));
                self.send_desired();
            }
            WorkerKind::Heartbeat(heartbeat) => {
                self.heartbeats += 1;
                if let Some(status) = heartbeat.status {
                    self.status = Some(status.try_into().unwrap());
                }
                if self.acking {
                    self.send(LeaderKind::HeartbeatAck(v1::HeartbeatAck {
                        leadership_epoch: self.epoch,
                        sequence: heartbeat.sequence,
                        next_heartbeat_ms: None,
                        time_ms: self
                            .clock_ahead_ms
                            .map(|ahead_ms| wall_clock().after(ahead_ms).0),
                    }));
                }
            }
            WorkerKind::LogChunk(chunk) => self.chunks.push(chunk),
            WorkerKind::InjectResult(result) => self.injected.push(result),
            WorkerKind::Debug(_) => {}
        }
    }
}

#[tonic::async_trait]
impl WorkerService for Leader {
    type ExecStream = ReceiverStream<Result<v1::ExecRequest, Status>>;

    async fn exec(
        &self,
        request: Request<Streaming<v1::ExecUp>>,
    ) -> Result<Response<Self::ExecStream>, Status> {
        let (sender, receiver) = mpsc::channel(64);
        let leader = self.clone();
        let mut messages = request.into_inner();
        let first = messages.message().await?.unwrap();
        leader
            .inner()
            .execs
            .insert(first.token.clone(), (Some(sender), Vec::new()));
        tokio::spawn(async move {
            while let Ok(Some(message)) = messages.message().await {
                let mut inner = leader.inner();
                let (_, responses) = inner.execs.get_mut(&first.token).unwrap();
                responses.extend(message.response.and_then(|response| response.kind));
            }
        });
        Ok(Response::new(ReceiverStream::new(receiver)))
    }

    type SessionStream = ReceiverStream<Result<v1::LeaderMessage, Status>>;

    async fn session(
        &self,
        request: Request<Streaming<v1::WorkerMessage>>,
    ) -> Result<Response<Self::SessionStream>, Status> {
        if self.inner().silent {
            std::future::pending::<()>().await;
        }
        let (sender, receiver) = mpsc::channel(1_024);
        {
            let mut inner = self.inner();
            if !inner.leading {
                return Err(not_leader(inner.hint.as_deref()));
            }
            inner.stream = Some(sender);
        }
        let leader = self.clone();
        let mut messages = request.into_inner();
        tokio::spawn(async move {
            while let Ok(Some(message)) = messages.message().await {
                let mut inner = leader.inner();
                if inner.leading {
                    inner.receive(message.kind.unwrap());
                }
            }
        });
        Ok(Response::new(ReceiverStream::new(receiver)))
    }
}
