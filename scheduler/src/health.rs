//! `grpc.health.v1`: whether this replica serves, and whether it leads.

use muster_raft_store::Leadership;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tonic_health::ServingStatus;
use tonic_health::server::HealthReporter;

/// Health service name for leadership.
pub(crate) const LEADER: &str = "muster.leader";
/// Service name of the replica as a whole: it serves while it knows a leader.
const WHOLE: &str = "";

/// Keeps the reported health up to date until `stop`; then no service is reported as serving.
pub(crate) async fn report(
    reporter: HealthReporter,
    mut leadership: watch::Receiver<Leadership>,
    stop: CancellationToken,
) {
    while !stop.is_cancelled() {
        let now = leadership.borrow_and_update().clone();
        set(&reporter, WHOLE, now.leader.is_some() && !now.stopped).await;
        set(&reporter, LEADER, now.is_self && !now.stopped).await;
        tokio::select! {
            () = stop.cancelled() => {}
            changed = leadership.changed() => if changed.is_err() {
                break;
            },
        }
    }
    set(&reporter, WHOLE, false).await;
    set(&reporter, LEADER, false).await;
}

async fn set(reporter: &HealthReporter, name: &str, is_serving: bool) {
    let status = if is_serving {
        ServingStatus::Serving
    } else {
        ServingStatus::NotServing
    };
    reporter.set_service_status(name, status).await;
}
