//! Fake worker that reports whatever the test wants, true or not.

use std::time::Duration;

use muster_proto::v1;
use muster_proto::v1::leader_message::Kind as FromLeader;
use muster_proto::v1::worker_message::Kind as ToLeader;
use muster_proto::v1::worker_service_client::WorkerServiceClient;
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Streaming;
use tonic::transport::{Channel, Endpoint};

/// Capacity of the outgoing queue.
const OUTBOX_MAX: usize = 16;

/// The leader's answer to a worker's first message.
#[derive(Debug)]
pub enum Greeting {
    /// The host is registered.
    Welcome(Box<FakeWorker>),
    /// The host is rejected.
    Rejected(v1::Rejected),
}

impl Greeting {
    /// The session.
    ///
    /// # Panics
    /// If the worker was rejected.
    #[must_use]
    pub fn welcome(self) -> FakeWorker {
        match self {
            Self::Welcome(worker) => *worker,
            Self::Rejected(rejected) => panic!("rejected: {rejected:?}"),
        }
    }

    /// The rejection.
    ///
    /// # Panics
    /// If the worker was accepted.
    #[must_use]
    pub fn rejected(self) -> v1::Rejected {
        match self {
            Self::Rejected(rejected) => rejected,
            Self::Welcome(worker) => panic!("welcome as host {}", worker.welcome.host_id),
        }
    }
}

/// A session with the leader that the test drives.
#[derive(Debug)]
pub struct FakeWorker {
    /// The leader's first message.
    pub welcome: v1::Welcome,
    /// The newest desired state.
    pub desired: v1::DesiredState,
    outbox: mpsc::Sender<v1::WorkerMessage>,
    messages: Streaming<v1::LeaderMessage>,
    sequence: u64,
    acknowledged: u64,
}

impl FakeWorker {
    /// The registration of a host with these GPUs.
    #[must_use]
    pub fn registration(name: &str, gpus: &[&str]) -> v1::HostRegistration {
        let gpus = gpus
            .iter()
            .zip(0..)
            .map(|(uuid, index)| v1::GpuDescription {
                uuid: (*uuid).to_owned(),
                index,
                model: "H100".to_owned(),
                memory_mib: 81_920,
            });
        v1::HostRegistration {
            name: name.to_owned(),
            address: "127.0.0.1".to_owned(),
            worker_id: uuid::Uuid::new_v4().to_string(),
            incarnation: 1,
            boot_id: "boot".to_owned(),
            gpus: gpus.collect(),
            cpus_milli: 64_000,
            memory_mib: 512_000,
            ..v1::HostRegistration::default()
        }
    }

    /// Registers with the leader.
    ///
    /// # Panics
    /// If that replica does not lead or does not answer.
    pub async fn register(leader: &str, registration: v1::HostRegistration) -> Greeting {
        let endpoint = Endpoint::from_shared(format!("http://{leader}")).unwrap();
        let channel = endpoint.connect().await.unwrap();
        let greeting = Self::try_greet(channel, registration).await;
        greeting.expect("this replica leads")
    }

    /// Registers with a replica over a connection; `None` if that replica does not lead.
    ///
    /// # Panics
    /// On any other answer.
    pub async fn try_greet(
        channel: Channel,
        registration: v1::HostRegistration,
    ) -> Option<Greeting> {
        let (outbox, outgoing) = mpsc::channel(OUTBOX_MAX);
        let hello = v1::Hello {
            registration: Some(registration),
            leadership_epoch: 0,
            version: "test".to_owned(),
            can_hold: false,
        };
        send(&outbox, ToLeader::Hello(hello)).await;
        let mut client = WorkerServiceClient::new(channel);
        let answer = client.session(ReceiverStream::new(outgoing)).await;
        let mut messages = answer.ok()?.into_inner();
        let first = messages.message().await.unwrap().unwrap().kind.unwrap();
        Some(match first {
            FromLeader::Rejected(rejected) => Greeting::Rejected(rejected),
            FromLeader::Welcome(welcome) => Greeting::Welcome(Box::new(Self {
                welcome,
                desired: v1::DesiredState::default(),
                outbox,
                messages,
                sequence: 0,
                acknowledged: 0,
            })),
            other => panic!("neither welcome nor rejected: {other:?}"),
        })
    }

    /// Sends a heartbeat with this status, and processes the leader's messages until it is acknowledged.
    /// False if the leader ended the stream instead.
    pub async fn heartbeat(&mut self, status: v1::WorkerStatus) -> bool {
        self.sequence += 1;
        let heartbeat = v1::Heartbeat {
            sequence: self.sequence,
            acknowledged: self.acknowledged,
            leadership_epoch: self.welcome.leadership_epoch,
            desired_revision: self.desired.revision,
            status: Some(status),
        };
        send(&self.outbox, ToLeader::Heartbeat(heartbeat)).await;
        while self.acknowledged < self.sequence {
            if !self.receive().await {
                return false;
            }
        }
        true
    }

    /// Processes one message; false at the end of the stream.
    pub async fn receive(&mut self) -> bool {
        let Ok(Some(message)) = self.messages.message().await else {
            return false;
        };
        match message.kind {
            Some(FromLeader::Desired(desired)) => self.desired = desired,
            Some(FromLeader::HeartbeatAck(ack)) => self.acknowledged = ack.sequence,
            _ => {}
        }
        true
    }

    /// Processes messages for a while.
    pub async fn listen(&mut self, duration: Duration) {
        let all = async { while self.receive().await {} };
        // The timeout is the expected end.
        drop(timeout(duration, all).await);
    }
}

async fn send(to: &mpsc::Sender<v1::WorkerMessage>, kind: ToLeader) {
    // A broken stream shows at the receiving end.
    drop(to.send(v1::WorkerMessage { kind: Some(kind) }).await);
}
