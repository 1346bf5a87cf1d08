//! Assembly of a replica from its parts, and graceful shutdown.

use std::future::Future;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use futures::Stream;
use http::HeaderValue;
use muster_engine::state::State;
use muster_etcd::Publisher;
use muster_model::ids::ReplicaId;
use muster_model::limits::WORKER_MESSAGE_BYTES_MAX;
use muster_model::time::TimeMs;
use muster_model::timings::HEARTBEATS_PER_SECOND_MAX;
use muster_planner::Budget;
use muster_proto::v1::admin_service_server::AdminServiceServer;
use muster_proto::v1::cluster_service_server::ClusterServiceServer;
use muster_proto::v1::job_service_server::JobServiceServer;
use muster_proto::v1::join_service_server::JoinServiceServer;
use muster_proto::v1::peer_service_server::PeerServiceServer;
use muster_proto::v1::watch_service_server::WatchServiceServer;
use muster_proto::v1::worker_service_server::WorkerServiceServer;
use muster_proto::{FILE_DESCRIPTOR_SET, MEMBERSHIP_HEADER};
use muster_raft_store::{Config, Handle, Peer, raft_service};
use muster_service::exporter::{Exporter, MetricsServer, Ready};
use muster_service::systemd::Systemd;
use muster_tls::{Authority, Dialer, PeerRole, Tls};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant, sleep, timeout, timeout_at};
use tokio_util::sync::CancellationToken;
use tonic::service::Routes;
use tonic::transport::Server;
use tonic::transport::server::{Connected, TcpIncoming};
use tonic_health::pb::health_server::{Health, HealthServer};
use tower::util::MapResponseLayer;

use crate::audit_log::AuditLog;
use crate::config::SchedulerConfig;
use crate::error::Error;
use crate::etcd::{self, EtcdHealth};
use crate::leader::{
    Clock as _, HeartbeatStore, LEADER_INPUTS_MAX, LeaderInput, LeaderLoop, LeaderSettings,
    SharedHeartbeatStore, SystemClock, WorkerDirectory,
};
use crate::listeners::Listeners;
use crate::service::{
    Addresses, Admin, Cluster, Context, ContextParts, Forwarder, GateLayer, GrpcPeerLinks, Jobs,
    Joining, Leaders, PeerPool, Peers, Provider, Watches, Workers, begin_counting,
};
use crate::watch_hub::WatchHub;
use crate::{backups, bootstrap, health, join, metrics, spans, systemd_notify};

/// Longest wait for the transfer of leadership during shutdown.
const TRANSFER_TIMEOUT: Duration = Duration::from_secs(2);
/// Longest wait for requests in progress during shutdown.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(2);
/// Longest wait for connections to close during shutdown.
const CLOSE_TIMEOUT: Duration = Duration::from_millis(500);
/// Longest wait of `/readyz` for a confirmation by the leader.
const READY_TIMEOUT: Duration = Duration::from_secs(2);
/// Wait before the confirmation is requested again.
const READY_RETRY: Duration = Duration::from_millis(50);
/// Bytes that one HTTP/2 stream may send before it is answered: a large batch of log entries.
const STREAM_WINDOW_BYTES: u32 = 2 << 20;
/// Bytes that one connection may send before it is answered.
const CONNECTION_WINDOW_BYTES: u32 = 8 << 20;
/// Interval of keep-alive probes on an idle connection, and their timeout: a host without power then frees
/// its slots.
const KEEP_ALIVE: Duration = Duration::from_secs(10);

/// A replica that is opened but not yet serving.
pub(crate) struct Replica {
    config: Arc<SchedulerConfig>,
    handle: Handle<State>,
    context: Context,
    /// `None`: connections are not encrypted.
    tls: Option<Tls>,
    leader_inputs: mpsc::Receiver<LeaderInput>,
    exporter: Exporter,
    /// Stops streams and loops.
    stop: CancellationToken,
}

impl Replica {
    /// Opens the data directory and connects the parts.
    pub(crate) async fn open(settings: watch::Receiver<SchedulerConfig>) -> Result<Self, Error> {
        // Installed before any measurement: earlier values would be lost.
        let exporter = muster_service::exporter::install().map_err(Error::Metrics)?;
        metrics::describe();
        begin_counting();
        muster_raft_store::describe_metrics();
        muster_tls::describe_metrics();
        muster_tracing::describe_metrics();
        let config = Arc::new(settings.borrow().clone());
        muster_tracing::belong_to(&config.cluster_id);
        let tls = Tls::load_as(&config.tls, Some(PeerRole::Replica))?;
        // The key is read again for every certificate; opening it here detects errors at startup.
        drop(Authority::open(&config.tls)?);
        let provider = Provider::open(&config.oidc)?;
        tls.iter().for_each(Tls::keep_current);
        let dialer = Dialer::new(tls.clone());
        let handle = Handle::<State>::open_dialing(raft_config(&config), dialer.clone()).await?;
        let clock = SystemClock::start();
        let limits = config.limits;
        let revision = handle.with_state(|state| state.revision);
        let peers = Arc::new(PeerPool::new(
            config.cluster_id.clone(),
            addresses(&config, &handle),
            dialer.clone(),
            limits.message_bytes_max,
        ));
        let audit = AuditLog::open(&config.audit, &config.data_dir).map_err(Error::Audit)?;
        let (leader_sender, leader_inputs) = mpsc::channel(LEADER_INPUTS_MAX);
        let stop = CancellationToken::new();
        let context = Context::new(ContextParts {
            config: Arc::clone(&config),
            settings,
            handle: handle.clone(),
            clock,
            hub: Arc::new(WatchHub::new(
                revision,
                limits.watches_max,
                limits.watch_buffer_revisions,
            )),
            heartbeats: Arc::new(SharedHeartbeatStore::new(HeartbeatStore::new(
                clock.monotonic(),
            ))),
            directory: Arc::new(WorkerDirectory::default()),
            leader_inputs: leader_sender,
            forwarder: Forwarder::start(Arc::clone(&peers), Leaders::of(&handle)),
            peers,
            audit,
            provider,
            stop: stop.clone(),
        });
        Ok(Self {
            config,
            handle,
            context,
            tls,
            leader_inputs,
            exporter,
            stop,
        })
    }

    /// Serves until `shutdown`, then stops gracefully.
    pub(crate) async fn run(
        self,
        listeners: Listeners,
        systemd: Option<Systemd>,
        shutdown: impl Future<Output = ()> + Send + 'static,
    ) -> Result<(), Error> {
        let Self {
            config,
            handle,
            context,
            tls,
            leader_inputs,
            exporter,
            stop,
        } = self;
        let (reporter, health_service) = tonic_health::server::health_reporter();
        let routes = routes(&context, health_service)?;
        let publisher = etcd::publisher(&config, &handle)?;
        let etcd_health = publisher.as_ref().map(Publisher::health);
        let closing = CancellationToken::new();
        let mut tasks = JoinSet::new();
        if let Some(listener) = listeners.metrics {
            let ready = ready(&handle, etcd_health);
            tasks.spawn(page(listener, ready, &handle, exporter).run(stop.clone()));
        }
        let mut server = tokio::spawn(serve(
            context.clone(),
            listeners.grpc,
            tls.clone(),
            routes,
            closing.clone(),
        ));
        tasks.spawn(health::report(reporter, handle.leadership(), stop.clone()));
        tasks.spawn(run_watch_hub(context.clone(), stop.clone()));
        tasks.spawn(backups::run(context.clone(), stop.clone()));
        tasks.spawn(spans::follow(context.clone(), stop.clone()));
        tasks.spawn(leader_loop(&context, leader_inputs).run(stop.clone()));
        if let Some(publisher) = publisher {
            tasks.spawn(publisher.run(stop.clone()));
        }
        let bootstrapping = bootstrap_or_join(&handle, &config, tls, &stop);
        tracing::info!(replica = %config.replica_id, "serving");
        let stopping = CancellationToken::new();
        if let Some(systemd) = systemd {
            tasks.spawn(systemd_notify::notify(
                systemd,
                handle.leadership(),
                stopping.clone(),
            ));
        }

        let result = tokio::select! {
            () = shutdown => Ok(()),
            error = stopped(&handle) => Err(error),
            served = &mut server => served.unwrap_or_else(|error| Err(Error::Part(error))),
            error = failed(&mut tasks) => Err(error),
            ended = async { bootstrapping.await?; std::future::pending::<Result<(), Error>>().await } => ended,
        };
        stopping.cancel();
        transfer_leadership(&handle).await;
        stop.cancel();
        drop(timeout(DRAIN_TIMEOUT, context.drained()).await);
        drop(timeout(DRAIN_TIMEOUT, context.audit.sync()).await);
        while tasks.join_next().await.is_some() {}
        handle.shutdown().await;
        closing.cancel();
        close(server).await;
        tracing::info!(replica = %config.replica_id, "replica stopped");
        result
    }
}

/// Waits a limited time for connections to close.
async fn close(mut server: JoinHandle<Result<(), Error>>) {
    if !server.is_finished() && timeout(CLOSE_TIMEOUT, &mut server).await.is_err() {
        server.abort();
    }
}

/// Makes this replica a member of a group: bootstraps or joins one, according to the settings.
async fn bootstrap_or_join(
    handle: &Handle<State>,
    config: &SchedulerConfig,
    tls: Option<Tls>,
    stop: &CancellationToken,
) -> Result<(), Error> {
    if !config.join.is_empty() {
        join::join(handle, config, &Dialer::new(tls), stop).await
    } else if config.etcd_publish.bootstrap_expect > 0 {
        etcd::bootstrap(handle, config, stop).await
    } else {
        bootstrap::bootstrap(handle, config, stop).await
    }
}

/// Addresses of the other replicas, with the group's membership before the settings.
fn addresses(config: &SchedulerConfig, handle: &Handle<State>) -> Addresses {
    let handle = handle.clone();
    let member = move |replica: ReplicaId| {
        let status = handle.status();
        status
            .member(replica.get())
            .map(|peer| peer.address.clone())
    };
    Addresses {
        members: Box::new(member),
        configured: config.members(),
    }
}

fn raft_config(config: &SchedulerConfig) -> Config {
    let mut raft = Config::new(
        config.replica_id.get(),
        &config.cluster_id,
        &config.data_dir,
    );
    raft.timings = config.raft.into();
    raft.snapshots.snapshot_every_entries = config.log.snapshot_every_entries;
    raft.snapshots.keep_entries = config.log.keep_entries;
    raft.snapshots.history_snapshots = config.log.history_snapshots;
    raft
}

fn leader_loop(
    context: &Context,
    inputs: mpsc::Receiver<LeaderInput>,
) -> LeaderLoop<GrpcPeerLinks, SystemClock> {
    let config = &context.config;
    LeaderLoop {
        handle: context.handle.clone(),
        peers: GrpcPeerLinks::new(config.replica_id, Arc::clone(&context.peers)),
        clock: context.clock,
        heartbeats: Arc::clone(&context.heartbeats),
        directory: Arc::clone(&context.directory),
        inputs,
        settings: LeaderSettings {
            replica: config.replica_id,
            timings: config.timings,
            budget: Budget::default(),
            heartbeats_per_second_max: HEARTBEATS_PER_SECOND_MAX,
        },
    }
}

/// The HTTP pages: metrics and probes.
fn page(
    listener: TcpListener,
    ready: Ready,
    handle: &Handle<State>,
    exporter: Exporter,
) -> MetricsServer {
    let sampled = handle.clone();
    let render = Arc::new(move || {
        let state = sampled.fork();
        metrics::sample(&state);
        exporter.render() + &metrics::lists(&state, TimeMs(sampled.now_ms()))
    });
    MetricsServer {
        listener,
        render,
        ready,
    }
}

/// Answer of `/readyz`. Includes the state of etcd, which does not affect readiness.
fn ready(handle: &Handle<State>, etcd: EtcdHealth) -> Ready {
    let handle = handle.clone();
    Arc::new(move || {
        let handle = handle.clone();
        let etcd = etcd.as_ref().map(|health| health.borrow().line());
        Box::pin(async move {
            answers_reads(&handle).await?;
            Ok(etcd.unwrap_or_default())
        })
    })
}

/// Whether this replica can answer a linearizable read: it knows a leader with a majority and has caught up
/// with it. Waits for an election.
async fn answers_reads(handle: &Handle<State>) -> Result<(), String> {
    let deadline = Instant::now() + READY_TIMEOUT;
    loop {
        let reason = match timeout_at(deadline, handle.read_linearizable()).await {
            Ok(Ok(())) => return Ok(()),
            Ok(Err(error)) => error.to_string(),
            Err(_) => return Err(format!("no read was confirmed within {READY_TIMEOUT:?}")),
        };
        if Instant::now() + READY_RETRY >= deadline {
            return Err(reason);
        }
        sleep(READY_RETRY).await;
    }
}

async fn run_watch_hub(context: Context, stop: CancellationToken) {
    let applied = context.handle.applied();
    let hub = Arc::clone(&context.hub);
    hub.run(applied, || context.fork(), stop).await;
}

/// All services on one listener.
fn routes<H: Health>(context: &Context, health_service: HealthServer<H>) -> Result<Routes, Error> {
    let bytes_max = context.config.limits.message_bytes_max;
    let reflection = tonic_reflection::server::Builder::configure()
        .register_encoded_file_descriptor_set(FILE_DESCRIPTOR_SET)
        .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
        .build_v1()
        .map_err(|error| Error::Reflection(error.to_string()))?;
    macro_rules! bounded {
        ($server:ident, $service:expr) => {
            $server::new($service)
                .max_decoding_message_size(bytes_max)
                .max_encoding_message_size(bytes_max)
        };
    }
    Ok(Routes::new(health_service)
        .add_service(reflection)
        .add_service(raft_service(&context.handle))
        .add_service(bounded!(JobServiceServer, Jobs(context.clone())))
        .add_service(bounded!(ClusterServiceServer, Cluster(context.clone())))
        .add_service(bounded!(AdminServiceServer, Admin(context.clone())))
        .add_service(bounded!(WatchServiceServer, Watches(context.clone())))
        .add_service(
            // A desired state is one message, which the worker accepts up to that size.
            bounded!(WorkerServiceServer, Workers(context.clone()))
                .max_encoding_message_size(WORKER_MESSAGE_BYTES_MAX),
        )
        .add_service(bounded!(JoinServiceServer, Joining(context.clone())))
        .add_service(bounded!(PeerServiceServer, Peers(context.clone()))))
}

async fn serve(
    context: Context,
    listener: TcpListener,
    tls: Option<Tls>,
    routes: Routes,
    closing: CancellationToken,
) -> Result<(), Error> {
    match tls {
        Some(tls) => {
            serve_on(
                context,
                muster_tls::incoming(listener, tls),
                routes,
                closing,
            )
            .await
        }
        None => {
            // The server's own `tcp_nodelay` is ignored for a listener passed to it; without it, every second
            // small message to a worker waits 40 ms for the acknowledgement of the one before.
            let incoming = TcpIncoming::from(listener).with_nodelay(Some(true));
            serve_on(context, incoming, routes, closing).await
        }
    }
}

async fn serve_on<Connection>(
    context: Context,
    incoming: impl Stream<Item = io::Result<Connection>>,
    routes: Routes,
    closing: CancellationToken,
) -> Result<(), Error>
where
    Connection: AsyncRead + AsyncWrite + Connected + Unpin + Send + 'static,
{
    let handle = context.handle.clone();
    Server::builder()
        .initial_stream_window_size(Some(STREAM_WINDOW_BYTES))
        .initial_connection_window_size(Some(CONNECTION_WINDOW_BYTES))
        .http2_keepalive_interval(Some(KEEP_ALIVE))
        .http2_keepalive_timeout(Some(KEEP_ALIVE))
        .max_concurrent_streams(Some(context.config.limits.streams_per_connection_max))
        .layer(GateLayer::new(context))
        .layer(MapResponseLayer::new(move |response| {
            with_membership(response, handle.membership_index())
        }))
        .add_routes(routes)
        .serve_with_incoming_shutdown(incoming, async move {
            closing.cancelled().await;
        })
        .await
        .map_err(Error::Serve)
}

/// Adds to every answer whether this replica knows the current membership.
fn with_membership<Body>(
    mut response: http::Response<Body>,
    index: Option<u64>,
) -> http::Response<Body> {
    if let Some(index) = index {
        response
            .headers_mut()
            .insert(MEMBERSHIP_HEADER, HeaderValue::from(index));
    }
    response
}

/// Waits until one of the replica's tasks has panicked: without that task the replica would keep running, and
/// leading, as if healthy. Tasks that end normally are complete.
async fn failed(parts: &mut JoinSet<()>) -> Error {
    while let Some(ended) = parts.join_next().await {
        if let Err(error) = ended {
            return Error::Part(error);
        }
    }
    std::future::pending().await
}

/// Waits until replication has stopped by itself; returns the reason.
async fn stopped(handle: &Handle<State>) -> Error {
    let mut leadership = handle.leadership();
    // An error means that the replica is gone, which is a stop too.
    drop(leadership.wait_for(|now| now.stopped).await);
    let status = handle.status();
    if let Some(removal) = status.removal {
        let members: Vec<String> = removal.members.iter().map(Peer::to_string).collect();
        return Error::Removed {
            members: members.join(", "),
        };
    }
    let reason = status.stopped;
    Error::Stopped(reason.unwrap_or_else(|| "the engine is gone".to_owned()))
}

/// Transfers leadership to another replica, so that the group does not wait for an election.
async fn transfer_leadership(handle: &Handle<State>) {
    if !handle.leadership().borrow().is_self {
        return;
    }
    let Some(successor) = handle.successor() else {
        tracing::warn!("no other voter is reachable and up to date: leadership is not transferred");
        return;
    };
    match timeout(TRANSFER_TIMEOUT, handle.transfer_leader(successor)).await {
        Ok(Ok(())) => tracing::info!(successor, "leadership transferred"),
        Ok(Err(error)) => tracing::warn!(%error, "cannot transfer leadership"),
        Err(_) => tracing::warn!(
            successor,
            "the successor did not take over before the timeout"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Long enough to conclude that nothing happens, on a paused clock.
    const LONG: Duration = Duration::from_secs(60);

    #[tokio::test(start_paused = true)]
    async fn a_component_that_panics_is_a_failure_and_one_that_ends_is_not() {
        let mut parts = JoinSet::new();
        assert!(timeout(LONG, failed(&mut parts)).await.is_err());
        parts.spawn(async {});
        parts.spawn(std::future::pending());
        assert!(timeout(LONG, failed(&mut parts)).await.is_err());
        parts.spawn(async { panic!("a bug") });
        let failure = timeout(LONG, failed(&mut parts)).await;
        assert!(
            matches!(&failure, Ok(Error::Part(error)) if error.is_panic()),
            "{failure:?}"
        );
    }
}
