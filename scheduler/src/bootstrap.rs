//! Founding the group, once.

use std::time::Duration;

use muster_engine::state::State;
use muster_model::ids::ReplicaId;
use muster_raft_store::{Handle, MembershipError, Peer};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use crate::config::SchedulerConfig;
use crate::error::Error;

/// Wait before the others are asked again.
const RETRY: Duration = Duration::from_millis(100);

/// Founds the group if nobody has. The peer with the lowest id does it, once all of them answer; the
/// others learn of the group from it. On a restart there is a group already and nothing is done.
pub(crate) async fn found(
    handle: &Handle<State>,
    config: &SchedulerConfig,
    stop: &CancellationToken,
) -> Result<(), Error> {
    if !config.bootstrap {
        return Ok(());
    }
    let members = config.peers.iter();
    let members = members.map(|(id, address)| Peer::new(id.get(), address));
    found_with(handle, (config.replica_id, members.collect()), stop).await
}

/// As [`found`], with these members, in order of their ids.
pub(crate) async fn found_with(
    handle: &Handle<State>,
    (own, members): (ReplicaId, Vec<Peer>),
    stop: &CancellationToken,
) -> Result<(), Error> {
    if members.first().map(|peer| peer.id) != Some(own.get()) {
        return Ok(());
    }
    let mut told = String::new();
    while handle.status().voters.is_empty() && !stop.is_cancelled() {
        match handle.initialize(members.clone()).await {
            Ok(()) => {
                tracing::info!(members = members.len(), "the group is founded");
                return Ok(());
            }
            Err(MembershipError::AlreadyInitialized | MembershipError::Stopped) => return Ok(()),
            Err(error @ MembershipError::Refused(_)) => return Err(Error::Bootstrap(error)),
            Err(error) => tell_once(&mut told, &error),
        }
        tokio::select! {
            () = stop.cancelled() => {}
            () = sleep(RETRY) => {}
        }
    }
    Ok(())
}

/// Says what founding waits for, once for each thing: a lost data directory looks like a new one until the
/// others are asked, and somebody must look after it.
fn tell_once(told: &mut String, error: &MembershipError) {
    let reason = error.to_string();
    if *told == reason {
        return;
    }
    if matches!(error, MembershipError::PeerHasGroup { .. }) {
        tracing::error!(%error, "the group is not founded");
    } else {
        tracing::warn!(%error, "the group cannot be founded yet");
    }
    *told = reason;
}
