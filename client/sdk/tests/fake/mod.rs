//! Scripted replicas on real sockets.

mod services;

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use muster_client::ClientConfig;
use muster_proto::v1;
use muster_proto::v1::cluster_service_server::ClusterServiceServer;
use muster_proto::v1::job_service_server::JobServiceServer;
use muster_proto::v1::watch_service_server::WatchServiceServer;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::Status;

/// A replica's reaction to the next call.
#[derive(Debug)]
pub(crate) enum Act {
    /// Answers correctly.
    Serve,
    /// Processes the request, and loses the answer.
    ServeAndLose(Status),
    /// Rejects the request.
    Refuse(Status),
    /// Never answers.
    Hang,
}

/// One part of a streamed answer.
pub(crate) type Part<T> = Result<T, Status>;

/// State shared by all replicas of a fake cluster.
#[derive(Debug, Default)]
pub(crate) struct Cluster {
    /// Jobs by request id: the idempotency that the state machine guarantees.
    pub(crate) jobs: Mutex<BTreeMap<String, u64>>,
    /// Addresses in status answers.
    pub(crate) members: Mutex<Vec<String>>,
    /// Address of the leader in status answers.
    pub(crate) leader: Mutex<String>,
}

/// One fake replica.
#[derive(Debug, Default)]
pub(crate) struct Replica {
    pub(crate) cluster: Arc<Cluster>,
    /// Reactions to the next unary calls; calls are served correctly once it is empty.
    pub(crate) acts: Mutex<VecDeque<Act>>,
    /// Calls received, in order: method and arguments.
    pub(crate) calls: Mutex<Vec<String>>,
    /// For submissions and watches, in order: the caller's timeout, in gRPC's encoding.
    pub(crate) deadlines: Mutex<Vec<Option<String>>>,
    /// Answers to the next watches.
    pub(crate) watches: Mutex<VecDeque<Vec<Part<v1::WatchResponse>>>>,
    /// Answers to the next log requests.
    pub(crate) logs: Mutex<VecDeque<Vec<Part<v1::StreamLogsResponse>>>>,
    /// Answers to the next exports.
    pub(crate) exports: Mutex<VecDeque<Vec<Part<v1::ExportStateResponse>>>>,
    /// Phases that the next reads of a job return; the last one stays.
    pub(crate) phases: Mutex<VecDeque<v1::JobPhase>>,
}

/// A listening replica.
pub(crate) struct Running {
    pub(crate) address: String,
    pub(crate) replica: Arc<Replica>,
    /// A separate runtime, because only its end closes the connections that a server spawned.
    runtime: Option<Runtime>,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.kill();
    }
}

impl Running {
    /// Starts a replica of a cluster.
    pub(crate) fn start(cluster: &Arc<Cluster>) -> std::io::Result<Self> {
        let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?.to_string();
        let replica = Arc::new(Replica {
            cluster: Arc::clone(cluster),
            ..Replica::default()
        });
        let server = tonic::transport::Server::builder()
            .add_service(JobServiceServer::from_arc(Arc::clone(&replica)))
            .add_service(ClusterServiceServer::from_arc(Arc::clone(&replica)))
            .add_service(WatchServiceServer::from_arc(Arc::clone(&replica)));
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()?;
        runtime.spawn(async move {
            let incoming = TcpListenerStream::new(TcpListener::from_std(listener)?);
            let served = server.serve_with_incoming(incoming).await;
            served.map_err(std::io::Error::other)
        });
        lock(&cluster.members).push(address.clone());
        Ok(Self {
            address,
            replica,
            runtime: Some(runtime),
        })
    }

    /// Stops it with all its connections, as `kill -9` does.
    pub(crate) fn kill(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }

    /// Sets the reactions to the next unary calls.
    pub(crate) fn react_with(&self, acts: impl IntoIterator<Item = Act>) {
        lock(&self.replica.acts).extend(acts);
    }

    /// The calls received so far.
    pub(crate) fn calls(&self) -> Vec<String> {
        lock(&self.replica.calls).clone()
    }
}

/// Locks even if a test has panicked meanwhile.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Client settings for tests: short timeouts, and no discovery.
pub(crate) fn config(addresses: &[&str]) -> ClientConfig {
    ClientConfig {
        deadline: Duration::from_secs(10),
        per_try_deadline: Duration::from_millis(500),
        backoff_base: Duration::from_millis(1),
        backoff_max: Duration::from_millis(10),
        discover: false,
        ..ClientConfig::new(addresses.iter().copied())
    }
}

/// An address without a listener.
pub(crate) async fn nowhere() -> std::io::Result<String> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    Ok(listener.local_addr()?.to_string())
}
