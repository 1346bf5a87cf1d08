//! Start of a leadership: its epoch is committed, and a majority reports its replicated heartbeat times.

use std::collections::BTreeSet;
use std::time::Duration;

use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use muster_model::command::Command;
use muster_model::ids::LeadershipEpoch;
use muster_model::rejection::Rejection;
use muster_raft_store::ProposeError;
use tokio::time::{Instant, timeout_at};

use crate::leader::heartbeat_store::Fence;
use crate::leader::inherited_heartbeats::InheritedHeartbeats;
use crate::leader::voter_sets::VoterSets;
use crate::leader::{Clock, LeaderLoop, PeerLinks};

/// Longest wait for the replicated heartbeat times of a majority, in milliseconds; without them leases start
/// now.
pub const SHADOW_FETCH_MS_MAX: u64 = 500;
/// Pause before a leadership that could not begin is retried, in milliseconds.
const BEGIN_REST_MS: u64 = 20;

/// A leadership that has begun.
pub(super) struct StartedTerm {
    pub(super) fence: Fence,
    pub(super) inheritance: InheritedHeartbeats,
}

/// Reason why a leadership could not begin.
#[derive(Debug, thiserror::Error)]
pub(super) enum BeginError {
    #[error("proposal failed: {0}")]
    Propose(#[from] ProposeError),
    #[error("refused: {0}")]
    Rejected(#[from] Rejection),
    #[error("the proposal has no outcome")]
    NoOutcome,
}

/// Commits `LeadershipStarted` and collects the replicated heartbeat times.
pub(super) async fn begin<P: PeerLinks, C: Clock>(
    parts: &LeaderLoop<P, C>,
    term: u64,
) -> Result<StartedTerm, BeginError> {
    let began = Command::LeadershipStarted {
        replica: parts.settings.replica,
    };
    let outcomes = parts.handle.propose(vec![began]).await?;
    let applied = outcomes.into_iter().next().ok_or(BeginError::NoOutcome)?;
    applied.result?;
    let fence = Fence {
        term,
        epoch: LeadershipEpoch(applied.revision.get()),
    };
    let inheritance = inherit(parts, fence).await;
    tracing::info!(
        epoch = %fence.epoch,
        term,
        heartbeats_complete = inheritance.is_complete(),
        "leadership began"
    );
    Ok(StartedTerm { fence, inheritance })
}

/// Pauses, so that a leadership that cannot begin does not spin.
pub(super) async fn rest() {
    tokio::time::sleep(Duration::from_millis(BEGIN_REST_MS)).await;
}

async fn inherit<P: PeerLinks, C: Clock>(
    parts: &LeaderLoop<P, C>,
    fence: Fence,
) -> InheritedHeartbeats {
    let status = parts.handle.status();
    let voters = VoterSets::of(&status);
    let own = parts.settings.replica;
    let mut reported = BTreeSet::new();
    let mut reports = Vec::new();
    let of_own = parts
        .heartbeats
        .lock()
        .report(parts.clock.monotonic(), status.term, fence);
    match of_own {
        Ok(report) => {
            reported.insert(own);
            reports.push(report);
        }
        Err(error) => tracing::warn!(%error, "cannot use this replica's own heartbeat times"),
    }
    let ask = |replica| {
        let answer = parts.peers.fetch_heartbeats(replica, fence);
        async move { (replica, answer.await) }
    };
    let mut asked: FuturesUnordered<_> = voters.others(own).map(ask).collect();
    let deadline = Instant::now() + Duration::from_millis(SHADOW_FETCH_MS_MAX);
    while !voters.have_majority(&reported) {
        match timeout_at(deadline, asked.next()).await {
            Ok(Some((replica, Ok(report)))) => {
                reported.insert(replica);
                reports.push(report);
            }
            Ok(Some((_, Err(error)))) => {
                tracing::warn!(%error, "heartbeat times of a replica are missing")
            }
            Ok(None) | Err(_) => break,
        }
    }
    // The ages were reported slightly before now, which makes hosts look younger: the safe direction.
    let is_complete = voters.have_majority(&reported);
    InheritedHeartbeats::new(parts.clock.monotonic(), reports, is_complete)
}
