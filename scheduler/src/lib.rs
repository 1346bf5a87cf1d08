//! Scheduler replica: the gRPC server, the leader loop, the watch hub and the metrics around one replicated
//! state.
//!
//! Start reading at [`leader`]: the duties of the leader and how its leases survive it. [`run`] assembles a
//! replica from real parts; the deterministic simulation runs [`leader::LeaderLoop`] and
//! [`watch_hub::WatchHub`] on its own, and answers its users by [`propose_status`].
#![forbid(unsafe_code)]

mod audit_log;
mod backups;
mod bootstrap;
mod config;
mod error;
mod etcd;
mod health;
mod join;
pub mod leader;
mod listeners;
mod metrics;
pub mod offline;
mod replica;
mod service;
mod spans;
mod systemd_notify;
pub mod view;
pub mod watch_hub;

use std::future::Future;

use muster_service::systemd::Systemd;
use tokio::sync::watch;

pub use config::{
    AuditSettings, BackupSettings, EtcdPublishSettings, GRPC_PORT, GroupRole, Limits, LogSettings,
    METRICS_PORT, OidcSettings, PEERS_MAX, RaftTimings, SchedulerConfig,
};
pub use error::Error;
pub use listeners::Listeners;
pub use service::{propose_status, set_health_rules_command};

/// Runs a replica until `shutdown` completes, then stops gracefully: leadership is transferred, requests in
/// progress are finished, streams and the log are closed.
///
/// # Errors
/// The reason why it did not start, or had to stop.
pub async fn run(
    config: SchedulerConfig,
    shutdown: impl Future<Output = ()> + Send + 'static,
) -> Result<(), Error> {
    let (_, settings) = watch::channel(config);
    run_reloading(settings, shutdown).await
}

/// As [`run`], with settings that change: reloadable options are read at each use. A parent systemd is
/// notified that the replica is ready, alive and stopping.
///
/// # Errors
/// As [`run`].
pub async fn run_reloading(
    settings: watch::Receiver<SchedulerConfig>,
    shutdown: impl Future<Output = ()> + Send + 'static,
) -> Result<(), Error> {
    let config = settings.borrow().clone();
    config.validate()?;
    let listeners = Listeners::bind(&config).await?;
    let replica = replica::Replica::open(settings).await?;
    let systemd = Systemd::of_this_process();
    replica.run(listeners, systemd, shutdown).await
}

/// Runs a replica on open listeners; `config.listen` and `config.metrics_listen` are ignored.
///
/// # Errors
/// As [`run`].
pub async fn run_on(
    config: SchedulerConfig,
    listeners: Listeners,
    shutdown: impl Future<Output = ()> + Send + 'static,
) -> Result<(), Error> {
    config.validate()?;
    let (_, settings) = watch::channel(config);
    let replica = replica::Replica::open(settings).await?;
    replica.run(listeners, None, shutdown).await
}
