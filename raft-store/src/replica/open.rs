//! Startup of a replica: checks and loads the data on disk, starts openraft and the accompanying tasks.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher as _, Hasher as _};
use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use muster_tls::Dialer;
use openraft::Raft;
use openraft::errors::Fatal;
use tokio::sync::{mpsc, watch};

use crate::apply::applier::{Applier, ApplierParts};
use crate::apply::batcher::{Batcher, BatcherParts};
use crate::apply::hash_ledger::HashLedger;
use crate::apply::shared::{Applied, SharedState};
use crate::apply::state_machine::StateMachine;
use crate::error::OpenError;
use crate::member::leadership::Leadership;
use crate::member::removal_detection::RemovalDetector;
use crate::network::{
    DataAcceptance, GrpcTransport, Network, Server, ServerIdentity, SnapshotReceiver,
};
use crate::recovery::disaster_recovery;
use crate::recovery::state_history::StateHistory;
use crate::replica::config::Config;
use crate::replica::engine::RaftEngine;
use crate::replica::environment::{Environment, WallClock};
use crate::replica::handle::{Handle, Inner};
use crate::replica::identity::{self, DirectoryLock};
use crate::replica::log_clock::LogClock;
use crate::replica::watcher::{Watcher, WatcherParts};
use crate::sim::{Observer, ProductionRuntime, Runtime, detach};
use crate::storage::disk::{RocksLog, SnapshotDirectory};
use crate::storage::log_store::{LogLimits, LogStore};
use crate::storage::snapshot::SnapshotStore;
use crate::types::Types;

/// Folder of the log's database inside the data directory.
pub(crate) const LOG_FOLDER: &str = "log";
/// Folder of the snapshots inside the data directory.
pub(crate) const SNAPSHOT_FOLDER: &str = "snapshots";
/// First and longest wait before an unreachable peer is retried.
const BACKOFF: &str = "50ms 100ms 200ms ...500ms";

/// Opens a replica with RocksDB, files and gRPC.
pub(crate) async fn open_in_directory<M: StateMachine>(
    config: Config,
    dialer: Dialer,
) -> Result<Handle<M>, OpenError> {
    config.validate()?;
    let directory = config.data_dir.clone();
    let opened = tokio::task::spawn_blocking(move || {
        let lock = DirectoryLock::take(&directory)?;
        disaster_recovery::check_not_interrupted(&directory)?;
        let path = directory.join(LOG_FOLDER);
        let log = RocksLog::open(&path)
            .map_err(|source| from_io(format!("the log at {}", path.display()), source))?
            .guarded_by(lock);
        let path = directory.join(SNAPSHOT_FOLDER);
        let snapshots = SnapshotDirectory::open(&path).map_err(|source| OpenError::Disk {
            operation: format!("opening {}", path.display()),
            source,
        })?;
        Ok::<_, OpenError>((log, snapshots))
    });
    let (log, snapshots) = opened.await.map_err(|error| OpenError::Disk {
        operation: "opening the data directory".to_owned(),
        source: io::Error::other(error),
    })??;
    let environment = Environment {
        log: Arc::new(log),
        snapshots: Arc::new(snapshots),
        transport: Arc::new(GrpcTransport::new(dialer)),
        clock: Arc::new(WallClock),
        fresh_incarnation: random_incarnation(),
    };
    open_on::<M, ProductionRuntime>(config, environment, None).await
}

/// Opens a replica on any runtime and environment, optionally with an observer.
pub(crate) async fn open_on<M: StateMachine, R: Runtime>(
    config: Config,
    environment: Environment,
    observer: Option<Arc<dyn Observer<M>>>,
) -> Result<Handle<M>, OpenError> {
    config.validate()?;
    let incarnation =
        identity::claim(&*environment.log, &config, environment.fresh_incarnation).await?;
    let limits = LogLimits {
        cached_entries_max: config.cached_entries_max,
        cached_bytes_max: config.cached_bytes_max,
        read_bytes_max: config.append_bytes_max,
    };
    let log = LogStore::<M>::open(Arc::clone(&environment.log), limits)?;
    let store = SnapshotStore::new(
        Arc::clone(&environment.snapshots),
        config.cluster_id.clone(),
    );
    let snapshots = Arc::new(store.keeping(config.snapshots.history_snapshots));
    let applied = load_newest::<M, R>(&snapshots).await?;
    log.check_start(applied.last)?;
    let parts = ApplierParts {
        shared: Arc::new(SharedState::new(applied)),
        snapshots,
        ledger: Arc::new(HashLedger::new()),
        bytes_since_snapshot: Arc::new(AtomicU64::new(0)),
        observer,
    };
    let identity = ServerIdentity {
        cluster_id: config.cluster_id.clone(),
        replica_id: config.replica_id,
        incarnation,
        acceptance: DataAcceptance::default(),
    };
    start::<M, R>(config, &environment, log, parts, identity).await
}

/// Loads the newest snapshot, or the empty state if there is none.
async fn load_newest<M: StateMachine, R: Runtime>(
    snapshots: &Arc<SnapshotStore>,
) -> Result<Applied<M>, OpenError> {
    let folder = |source| OpenError::Disk {
        operation: "reading the snapshot folder".to_owned(),
        source,
    };
    snapshots.disk().discard_staged().map_err(folder)?;
    let Some(file) = snapshots.newest().map_err(folder)? else {
        return Ok(Applied::default());
    };
    let what = format!("snapshot {}", file.name);
    let store = Arc::clone(snapshots);
    let loaded = R::spawn_blocking(move || store.load::<M>(&file)).await;
    loaded
        .map_err(|source| OpenError::Disk {
            operation: format!("loading {what}"),
            source,
        })?
        .map_err(|error| OpenError::from_decode(what, error))
}

async fn start<M: StateMachine, R: Runtime>(
    config: Config,
    environment: &Environment,
    log: LogStore<M>,
    parts: ApplierParts<M>,
    identity: ServerIdentity,
) -> Result<Handle<M>, OpenError> {
    let network = network(&config, environment, &identity);
    let applier = Applier::<M, R>::new(parts.clone(), config.hash_every_entries);
    let raft_config = Arc::new(to_raft_config(&config)?);
    let raft = Raft::new(
        config.replica_id,
        raft_config,
        network.clone(),
        log,
        applier,
    )
    .await
    .map_err(from_fatal)?;
    // One exchange with the core: before it, the status of a replica with data looks like that of a new
    // one.
    raft.is_initialized().await.map_err(from_fatal)?;
    let receiver = SnapshotReceiver::new(Arc::clone(&parts.snapshots));
    let (leadership_sender, leadership) = watch::channel(Leadership::default());
    let (proposals, incoming) = mpsc::channel(config.batch.queued_proposals_max);
    let clock = LogClock::new(Arc::clone(&environment.clock));
    let batcher = Batcher::new(BatcherParts {
        raft: raft.clone(),
        limits: config.batch,
        clock: clock.clone(),
        shared: Arc::clone(&parts.shared),
        ledger: Arc::clone(&parts.ledger),
        leadership: leadership.clone(),
        incoming,
    });
    detach::<R>(batcher.run());
    let watcher = Watcher::new(WatcherParts {
        raft: raft.clone(),
        leadership: leadership_sender,
        acceptance: identity.acceptance.clone(),
        divergence: parts.ledger.divergence(),
        bytes_since_snapshot: Arc::clone(&parts.bytes_since_snapshot),
        timings: config.timings,
        snapshots: Arc::clone(&parts.snapshots),
        policy: config.snapshots,
    });
    detach::<R>(watcher.run());
    detach::<R>(RemovalDetector::new(&raft, &network, config.timings).run());
    let limits = config.batch;
    let engine = RaftEngine {
        acceptance: identity.acceptance.clone(),
        server: Server::new(identity, raft.clone(), receiver),
        config,
        raft,
        network,
        divergence: parts.ledger.divergence(),
    };
    Ok(Handle::from_inner(Inner {
        history: StateHistory::new(&environment.log, &parts.snapshots, &parts.shared),
        clock,
        engine: Arc::new(engine),
        shared: parts.shared,
        leadership,
        proposals,
        limits,
    }))
}

fn network(config: &Config, environment: &Environment, identity: &ServerIdentity) -> Network {
    Network {
        identity: identity.clone(),
        transport: Arc::clone(&environment.transport),
        chunk_bytes: config.snapshots.chunk_bytes,
        peer_timeout: Duration::from_millis(config.peer_timeout_ms),
        append_timeout: Duration::from_millis(config.timings.election_ms_max.max(APPEND_MS_MIN)),
    }
}

/// Shortest timeout of a follower's answer to an append: a shared disk may stall that long.
const APPEND_MS_MIN: u64 = 1_000;

fn to_raft_config(config: &Config) -> Result<openraft::Config, OpenError> {
    let timings = config.timings;
    let raft_config = openraft::Config {
        cluster_name: config.cluster_id.clone(),
        heartbeat_interval: timings.heartbeat_ms,
        election_timeout_min: timings.election_ms_min,
        election_timeout_max: timings.election_ms_max,
        max_payload_entries: config.append_entries_max,
        snapshot_policy: openraft::SnapshotPolicy::LogsSinceLast(
            config.snapshots.snapshot_every_entries,
        ),
        max_in_snapshot_log_to_keep: if config.snapshots.keeps_history() {
            // The watcher truncates the log where its history begins.
            u64::MAX
        } else {
            config.snapshots.keep_entries
        },
        replication_lag_threshold: config
            .snapshots
            .snapshot_every_entries
            .saturating_add(config.snapshots.keep_entries),
        install_snapshot_timeout: config.peer_timeout_ms,
        backoff: BACKOFF.to_owned(),
        // A node that cannot win must not depose a healthy leader when it returns.
        enable_pre_vote: Some(true),
        // A restarted leader must win an election: its state may be stale.
        enable_leader_restore: Some(false),
        // A leader without answers must let the others elect, even if its messages still reach them.
        quorum_loss_probe_interval: Some(2 * timings.election_ms_max),
        ..openraft::Config::default()
    };
    raft_config
        .validate()
        .map_err(|error| OpenError::Engine(error.to_string()))
}

fn from_fatal<M: StateMachine, R: Runtime>(fatal: Fatal<Types<M, R>>) -> OpenError {
    OpenError::Engine(fatal.to_string())
}

fn from_io(what: String, source: io::Error) -> OpenError {
    if source.kind() == io::ErrorKind::InvalidData {
        return OpenError::Corrupt {
            what,
            detail: source.to_string(),
        };
    }
    OpenError::Disk {
        operation: format!("opening {what}"),
        source,
    }
}

/// Random enough to distinguish two data directories of one replica; never 0.
pub(crate) fn random_incarnation() -> u64 {
    let mut hasher = RandomState::new().build_hasher();
    hasher.write_u32(std::process::id());
    hasher.finish().max(1)
}
