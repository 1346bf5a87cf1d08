//! Context shared by all services.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use muster_engine::state::State;
use muster_proto::status;
use muster_raft_store::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, watch};
use tokio_util::sync::CancellationToken;
use tonic::{Code, Status};

use crate::audit_log::{AuditLog, Record};
use crate::config::SchedulerConfig;
use crate::leader::{LeaderInput, SharedHeartbeatStore, SystemClock, WorkerDirectory};
use crate::service::gate::Provider;
use crate::service::jobs::exec::{EXEC_SESSIONS_MAX, PendingPairs};
use crate::service::jobs::logs::LOG_CONNECTIONS_MAX;
use crate::service::peer::peer_pool::PeerPool;
use crate::service::read::page;
use crate::service::read::past_state::PastViews;
use crate::service::replies::Replies;
use crate::service::write::audited_call::Unanswered;
use crate::service::write::forward::Forwarder;
use crate::watch_hub::WatchHub;

/// Retry delay for a caller that was refused for load.
const RETRY_BUSY: Duration = Duration::from_millis(100);
/// Concurrent exports of the state: each keeps a thread and a core busy.
const EXPORTS_MAX: usize = 2;

/// Components of a [`Context`].
pub(crate) struct ContextParts {
    /// The settings at startup.
    pub(crate) config: Arc<SchedulerConfig>,
    /// The current settings, for reloadable options.
    pub(crate) settings: watch::Receiver<SchedulerConfig>,
    pub(crate) handle: Handle<State>,
    pub(crate) clock: SystemClock,
    pub(crate) hub: Arc<WatchHub>,
    pub(crate) heartbeats: Arc<SharedHeartbeatStore>,
    pub(crate) directory: Arc<WorkerDirectory>,
    pub(crate) leader_inputs: mpsc::Sender<LeaderInput>,
    pub(crate) peers: Arc<PeerPool>,
    pub(crate) forwarder: Forwarder,
    pub(crate) audit: AuditLog,
    /// Identity provider whose tokens are accepted beside the cluster's own.
    pub(crate) provider: Option<Provider>,
    /// Stops every stream.
    pub(crate) stop: CancellationToken,
}

/// Context shared by all services of a replica; clones are cheap.
#[derive(Clone)]
pub(crate) struct Context(Arc<Inner>);

pub(crate) struct Inner {
    pub(crate) parts: ContextParts,
    pub(crate) replies: Replies,
    pub(crate) next_session: AtomicU64,
    requests: Arc<Semaphore>,
    workers: Arc<Semaphore>,
    exports: Arc<Semaphore>,
    execs: Arc<Semaphore>,
    log_connections: Arc<Semaphore>,
    pairings: PendingPairs,
    views: PastViews,
}

impl std::ops::Deref for Context {
    type Target = ContextParts;

    fn deref(&self) -> &ContextParts {
        &self.0.parts
    }
}

impl Context {
    pub(crate) fn new(parts: ContextParts) -> Self {
        let limits = parts.config.limits;
        Self(Arc::new(Inner {
            parts,
            replies: Replies::default(),
            next_session: AtomicU64::new(1),
            requests: Arc::new(Semaphore::new(limits.requests_in_flight_max)),
            workers: Arc::new(Semaphore::new(limits.worker_streams_max)),
            exports: Arc::new(Semaphore::new(EXPORTS_MAX)),
            execs: Arc::new(Semaphore::new(EXEC_SESSIONS_MAX)),
            log_connections: Arc::new(Semaphore::new(LOG_CONNECTIONS_MAX)),
            pairings: PendingPairs::default(),
            views: PastViews::default(),
        }))
    }

    /// Pending answers of workers.
    pub(crate) fn replies(&self) -> &Replies {
        &self.0.replies
    }

    /// Number of the next stream.
    pub(crate) fn next_session(&self) -> u64 {
        self.0.next_session.fetch_add(1, Ordering::Relaxed)
    }

    /// Takes a permit for a request in progress.
    pub(crate) fn admit(&self) -> Result<OwnedSemaphorePermit, Status> {
        take(
            &self.0.requests,
            "requests_in_flight_max",
            self.config.limits.requests_in_flight_max,
        )
    }

    /// Takes a permit for a worker stream.
    pub(crate) fn admit_worker(&self) -> Result<OwnedSemaphorePermit, Status> {
        take(
            &self.0.workers,
            "worker_streams_max",
            self.config.limits.worker_streams_max,
        )
    }

    /// Takes a permit for an export of the state.
    pub(crate) fn admit_export(&self) -> Result<OwnedSemaphorePermit, Status> {
        take(&self.0.exports, "EXPORTS_MAX", EXPORTS_MAX)
    }

    /// Takes a permit for an exec session.
    pub(crate) fn admit_exec(&self) -> Result<OwnedSemaphorePermit, Status> {
        take(&self.0.execs, "EXEC_SESSIONS_MAX", EXEC_SESSIONS_MAX)
    }

    /// Takes a permit for a log reader's connection to the leader.
    pub(crate) fn admit_log_connection(&self) -> Result<OwnedSemaphorePermit, Status> {
        take(
            &self.0.log_connections,
            "LOG_CONNECTIONS_MAX",
            LOG_CONNECTIONS_MAX,
        )
    }

    /// Worker streams awaited by users of commands.
    pub(crate) fn pairings(&self) -> &PendingPairs {
        &self.0.pairings
    }

    /// Views of past revisions.
    pub(crate) fn views(&self) -> &PastViews {
        &self.0.views
    }

    /// A call that is recorded in the audit log once it is answered, or when its caller has gone.
    pub(crate) fn unanswered(&self, record: Record) -> Unanswered<'_> {
        let record = Record {
            replica: self.config.replica_id.get(),
            ..record
        };
        Unanswered::new(&self.audit, record, move || self.handle.now_ms())
    }

    /// Writes a call with its answer to the audit log.
    pub(crate) async fn record_audit(&self, record: Record) {
        self.unanswered(record).answer(|record| record).await;
    }

    /// Waits until no request is in progress.
    pub(crate) async fn drained(&self) {
        let all = u32::try_from(self.config.limits.requests_in_flight_max).unwrap_or(u32::MAX);
        // Closed only with the last clone of the context, so this only waits.
        drop(self.0.requests.acquire_many(all).await);
    }

    /// Time that a request without a deadline waits for a leader.
    pub(crate) fn default_wait(&self) -> Duration {
        Duration::from_millis(self.request_ms_default())
    }

    /// Default timeout of a request, in milliseconds.
    pub(crate) fn request_ms_default(&self) -> u64 {
        self.settings.borrow().limits.request_ms_default
    }

    /// Size limit of the pages of lists.
    pub(crate) fn page_limit(&self) -> page::Limit {
        let rows = self.settings.borrow().limits.page_rows_max;
        page::Limit::new(rows, self.config.limits.message_bytes_max)
    }

    /// A cheap copy of the applied state.
    pub(crate) fn fork(&self) -> State {
        self.handle.fork()
    }
}

fn take(
    places: &Arc<Semaphore>,
    limit_name: &str,
    limit: usize,
) -> Result<OwnedSemaphorePermit, Status> {
    Arc::clone(places).try_acquire_owned().map_err(|_| {
        status::retryable(
            Code::ResourceExhausted,
            "OVERLOADED",
            &format!("this replica is at its limit of {limit} ({limit_name})"),
            &[
                ("limit_name", limit_name.to_owned()),
                ("limit", limit.to_string()),
            ],
            RETRY_BUSY,
        )
    })
}
