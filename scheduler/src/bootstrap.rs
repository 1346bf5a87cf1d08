//! One-time bootstrap of the replication group.

use std::time::Duration;

use muster_engine::state::State;
use muster_model::ids::ReplicaId;
use muster_raft_store::{Handle, MembershipError, Peer};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use crate::config::SchedulerConfig;
use crate::error::Error;

/// Wait before the other peers are asked again.
const RETRY: Duration = Duration::from_millis(100);

/// Bootstraps the group if it does not exist. The peer with the lowest id does so once all peers answer; the
/// others learn of the group from it. On a restart the group exists and nothing is done.
pub(crate) async fn bootstrap(
    handle: &Handle<State>,
    config: &SchedulerConfig,
    stop: &CancellationToken,
) -> Result<(), Error> {
    if !config.bootstrap {
        return Ok(());
    }
    let members = config
        .peers
        .iter()
        .map(|(id, address)| Peer::new(id.get(), address))
        .collect();
    bootstrap_with(handle, config.replica_id, members, stop).await
}

/// As [`found`], with these members, in order of their ids.
pub(crate) async fn bootstrap_with(
    handle: &Handle<State>,
    own: ReplicaId,
    members: Vec<Peer>,
    stop: &CancellationToken,
) -> Result<(), Error> {
    if members.first().map(|peer| peer.id) != Some(own.get()) {
        return Ok(());
    }
    let mut last_reason = String::new();
    while handle.status().voters.is_empty() && !stop.is_cancelled() {
        match handle.initialize(members.clone()).await {
            Ok(()) => {
                tracing::info!(members = members.len(), "group bootstrapped");
                return Ok(());
            }
            Err(MembershipError::AlreadyInitialized | MembershipError::Stopped) => return Ok(()),
            Err(error @ MembershipError::Refused(_)) => return Err(Error::Bootstrap(error)),
            Err(error) => log_once(&mut last_reason, &error),
        }
        tokio::select! {
            () = stop.cancelled() => {}
            () = sleep(RETRY) => {}
        }
    }
    Ok(())
}

/// Logs what the bootstrap waits for, once per cause: a lost data directory looks like a new one until the
/// other peers are asked, so an operator has to check.
fn log_once(last_reason: &mut String, error: &MembershipError) {
    let reason = error.to_string();
    if *last_reason == reason {
        return;
    }
    if matches!(error, MembershipError::PeerHasGroup { .. }) {
        tracing::error!(%error, "group not bootstrapped");
    } else {
        tracing::warn!(%error, "cannot bootstrap the group yet");
    }
    *last_reason = reason;
}
