//! HTTP page of this worker's metrics.

use std::net::SocketAddr;
use std::sync::Arc;

use muster_service::exporter::MetricsServer;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::error::Error;
use crate::metrics;

/// Serves the page until `stop`, if configured. Call it before any metric is updated: earlier updates are
/// lost.
pub(crate) async fn serve(
    address: Option<SocketAddr>,
    stop: &CancellationToken,
) -> Result<(), Error> {
    let Some(address) = address else {
        return Ok(());
    };
    let failed = |reason: String| Error::Metrics { address, reason };
    let listener = TcpListener::bind(address).await;
    let listener = listener.map_err(|error| failed(error.to_string()))?;
    let exporter = muster_service::exporter::install().map_err(failed)?;
    metrics::describe();
    muster_tracing::describe_metrics();
    let render = Arc::new(move || exporter.render());
    let page = MetricsServer {
        listener,
        render,
        ready: Arc::new(|| Box::pin(async { has_session() })),
    };
    tokio::spawn(page.run(stop.clone()));
    Ok(())
}

fn has_session() -> Result<String, String> {
    let is_open = metrics::session_is_open();
    is_open
        .then(String::new)
        .ok_or_else(|| "the worker has no session with a leader".to_owned())
}
