//! Running replica behind an interface free of openraft and runtime types.

use std::collections::BTreeSet;
use std::time::Duration;

use futures::future::{BoxFuture, FutureExt as _};
use futures::stream::BoxStream;
use muster_proto::raft::v1::{PeerRequest, PeerResponse};
use openraft::async_runtime::watch::WatchReceiver as _;
use openraft::errors::{ForwardToLeader, LinearizableReadError, RaftError};
use openraft::raft::linearizable_read::{Linearizer, ReadLogId};
use openraft::{Instant as _, Raft, RaftMetrics, ReadPolicy};
use tokio::sync::watch;

use crate::apply::applier::Applier;
use crate::apply::state_machine::StateMachine;
use crate::error::{MembershipError, ReadError};
use crate::member::member_change::{ChangePlan, Force, MemberChange};
use crate::member::peer::Peer;
use crate::network::{DataAcceptance, Network, Server};
use crate::replica::config::Config;
use crate::replica::status::{FollowerStatus, Status};
use crate::sim::Runtime;
use crate::storage::codec::convert;
use crate::types::{LogId, Node, Types};

/// Operations of the replica that a handle needs.
pub(crate) trait Engine: Send + Sync {
    fn serve(&self, request: PeerRequest) -> BoxFuture<'_, PeerResponse>;
    fn serve_stream(
        &self,
        requests: BoxStream<'static, PeerRequest>,
    ) -> BoxStream<'static, PeerResponse>;
    fn read_linearizable(&self) -> BoxFuture<'_, Result<(), ReadError>>;
    fn status(&self) -> Status;
    fn membership_index(&self) -> Option<u64>;
    fn initialize(&self, members: Vec<Peer>) -> BoxFuture<'_, Result<(), MembershipError>>;
    fn add_learner(&self, peer: Peer) -> BoxFuture<'_, Result<(), MembershipError>>;
    fn change_members(&self, voters: BTreeSet<u64>) -> BoxFuture<'_, Result<(), MembershipError>>;
    fn remove_member(&self, id: u64) -> BoxFuture<'_, Result<(), MembershipError>>;
    fn finish_change(&self) -> BoxFuture<'_, Result<(), MembershipError>>;
    fn plan_change(
        &self,
        change: &MemberChange,
        force: Force,
    ) -> Result<ChangePlan, MembershipError>;
    fn transfer_leader(&self, to: u64) -> BoxFuture<'_, Result<(), MembershipError>>;
    fn successor(&self) -> Option<u64>;
    fn trigger_snapshot(&self) -> BoxFuture<'_, Result<(), MembershipError>>;
    fn shutdown(&self) -> BoxFuture<'_, ()>;
}

/// A replica on runtime `R`.
pub(crate) struct RaftEngine<M: StateMachine, R: Runtime> {
    pub(crate) config: Config,
    pub(crate) raft: Raft<Types<M, R>, Applier<M, R>>,
    pub(crate) server: Server<M, R>,
    pub(crate) network: Network,
    /// Whether the group accepts this replica's data.
    pub(crate) acceptance: DataAcceptance,
    /// Reason of divergence, once the replica has diverged and stopped itself.
    pub(crate) divergence: watch::Receiver<Option<String>>,
}

impl<M: StateMachine, R: Runtime> RaftEngine<M, R> {
    pub(crate) fn metrics(&self) -> RaftMetrics<Types<M, R>> {
        self.raft.metrics().borrow_watched().clone()
    }

    pub(crate) fn peer_timeout(&self) -> Duration {
        Duration::from_millis(self.config.peer_timeout_ms)
    }

    async fn read(&self) -> Result<(), ReadError> {
        let read = self.raft.ensure_linearizable(ReadPolicy::ReadIndex).await;
        match read {
            Ok(_) => Ok(()),
            Err(RaftError::APIError(LinearizableReadError::ForwardToLeader(forward))) => {
                self.read_from_leader(forward).await
            }
            Err(RaftError::APIError(LinearizableReadError::QuorumNotEnough(error))) => Err(
                ReadError::NoQuorum(describe_answers(&error.got, self.config.replica_id)),
            ),
            Err(RaftError::Fatal(_)) => Err(ReadError::Stopped),
        }
    }

    /// Asks the leader for the read position, then waits until it is applied here.
    async fn read_from_leader(
        &self,
        forward: ForwardToLeader<Types<M, R>>,
    ) -> Result<(), ReadError> {
        let Some((id, node)) = forward.leader_id.zip(forward.leader_node) else {
            return Err(ReadError::NotLeader { leader: None });
        };
        let leader = Some(Peer::new(id, node.address.clone()));
        let not_leader = || ReadError::NotLeader {
            leader: leader.clone(),
        };
        let answer = self
            .network
            .client(id, &node)
            .read_index()
            .await
            .map_err(|_| not_leader())?;
        let position = convert::optional_log_id(answer.read)
            .ok()
            .flatten()
            .ok_or_else(not_leader)?;
        self.await_applied(id, position).await
    }

    async fn await_applied(&self, leader: u64, position: LogId) -> Result<(), ReadError> {
        let applied = self.metrics().last_applied;
        let linearizer = Linearizer::new(leader, ReadLogId::from_log_id(position), applied);
        match linearizer
            .try_await_ready(&self.raft, Some(self.peer_timeout()))
            .await
        {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(_)) => Err(ReadError::NoQuorum(format!(
                "log index {} was not applied here within {} ms",
                position.index, self.config.peer_timeout_ms
            ))),
            Err(_) => Err(ReadError::Stopped),
        }
    }
}

/// Describes a missed majority for operators. openraft counts the leader, `own`, among those that answered.
fn describe_answers(got: &BTreeSet<u64>, own: u64) -> String {
    let others: Vec<String> = got
        .iter()
        .filter(|id| **id != own)
        .map(u64::to_string)
        .collect();
    match &others[..] {
        [] => "no other replica answered".to_owned(),
        [only] => format!("only replica {only} answered"),
        others => format!("only replicas {} answered", others.join(", ")),
    }
}

pub(crate) fn leader_of<M: StateMachine, R: Runtime>(
    metrics: &RaftMetrics<Types<M, R>>,
) -> Option<Peer> {
    let id = metrics.current_leader?;
    let node = metrics.membership_config.get_node(&id)?;
    Some(Peer::new(id, node.address.clone()))
}

impl<M: StateMachine, R: Runtime> Engine for RaftEngine<M, R> {
    fn serve(&self, request: PeerRequest) -> BoxFuture<'_, PeerResponse> {
        self.server.serve(request).boxed()
    }

    fn serve_stream(
        &self,
        requests: BoxStream<'static, PeerRequest>,
    ) -> BoxStream<'static, PeerResponse> {
        self.server.serve_stream(requests)
    }

    fn read_linearizable(&self) -> BoxFuture<'_, Result<(), ReadError>> {
        self.read().boxed()
    }

    fn status(&self) -> Status {
        let mut status = to_status(&self.metrics());
        status.is_disowned = self.acceptance.is_disowned() && status.leader.is_none();
        status.removal = self.acceptance.removal().cloned();
        if let Some(detail) = &*self.divergence.borrow() {
            status.stopped = Some(detail.clone());
        }
        status
    }

    fn membership_index(&self) -> Option<u64> {
        let metrics = self.raft.metrics();
        let metrics = metrics.borrow_watched();
        metrics.membership_config.log_id().map(|id| id.index)
    }

    fn initialize(&self, members: Vec<Peer>) -> BoxFuture<'_, Result<(), MembershipError>> {
        self.form_group(members).boxed()
    }

    fn add_learner(&self, peer: Peer) -> BoxFuture<'_, Result<(), MembershipError>> {
        self.admit_learner(peer).boxed()
    }

    fn change_members(&self, voters: BTreeSet<u64>) -> BoxFuture<'_, Result<(), MembershipError>> {
        self.set_voters(voters).boxed()
    }

    fn remove_member(&self, id: u64) -> BoxFuture<'_, Result<(), MembershipError>> {
        self.remove(id).boxed()
    }

    fn finish_change(&self) -> BoxFuture<'_, Result<(), MembershipError>> {
        self.finish().boxed()
    }

    fn plan_change(
        &self,
        change: &MemberChange,
        force: Force,
    ) -> Result<ChangePlan, MembershipError> {
        self.check_leads()?;
        let timings = self.config.timings;
        self.status().plan_change(change, timings, force)
    }

    fn transfer_leader(&self, to: u64) -> BoxFuture<'_, Result<(), MembershipError>> {
        self.transfer_leadership(to).boxed()
    }

    fn successor(&self) -> Option<u64> {
        let silence_ms_max = self.config.timings.successor_silence_ms_max();
        self.status().successor(silence_ms_max)
    }

    fn trigger_snapshot(&self) -> BoxFuture<'_, Result<(), MembershipError>> {
        async move {
            let triggered = self.raft.trigger().snapshot().await;
            triggered.map_err(|_| MembershipError::Stopped)
        }
        .boxed()
    }

    fn shutdown(&self) -> BoxFuture<'_, ()> {
        async move {
            if let Err(error) = self.raft.shutdown().await {
                tracing::error!(%error, "replication ended with an error");
            }
        }
        .boxed()
    }
}

fn to_status<M: StateMachine, R: Runtime>(metrics: &RaftMetrics<Types<M, R>>) -> Status {
    let membership = metrics.membership_config.membership();
    let membership_index = metrics.membership_config.log_id().map(|id| id.index);
    let voters: BTreeSet<u64> = membership.voter_ids().collect();
    let (voting, learning): (Vec<_>, Vec<_>) =
        membership.nodes().partition(|(id, _)| voters.contains(id));
    let to_peers = |nodes: Vec<(&u64, &Node)>| {
        let peer = |(id, node): (&u64, &Node)| Peer::new(*id, node.address.clone());
        nodes.into_iter().map(peer).collect::<Vec<_>>()
    };
    Status {
        replica_id: metrics.id,
        voters: to_peers(voting),
        learners: to_peers(learning),
        voter_sets: membership.get_joint_config().clone(),
        membership_is_changing: membership.get_joint_config().len() > 1,
        membership_index,
        membership_is_committed: membership_index <= metrics.last_applied.map(|id| id.index),
        leader: leader_of(metrics),
        is_leader: metrics.current_leader == Some(metrics.id),
        term: metrics.current_term,
        vote: metrics.vote.to_string(),
        last_log_index: metrics.last_log_index,
        applied_index: metrics.last_applied.map(|id| id.index),
        snapshot_index: metrics.snapshot.map(|id| id.index),
        purged_index: metrics.purged.map(|id| id.index),
        followers: followers(metrics),
        is_disowned: false,
        removal: None,
        stopped: metrics
            .running_state
            .as_ref()
            .err()
            .map(ToString::to_string),
    }
}

pub(crate) fn followers<M: StateMachine, R: Runtime>(
    metrics: &RaftMetrics<Types<M, R>>,
) -> Vec<FollowerStatus> {
    let next = metrics.last_log_index.map_or(0, |index| index + 1);
    let replication = metrics.replication.iter().flatten();
    let last_heartbeat_age_ms = |id: &u64| {
        let sent_at = metrics.heartbeat.as_ref()?.get(id)?.as_ref()?;
        Some(u64::try_from(sent_at.elapsed().as_millis()).unwrap_or(u64::MAX))
    };
    replication
        .filter(|(id, _)| **id != metrics.id)
        .map(|(id, matched)| FollowerStatus {
            id: *id,
            matched: matched.map(|matched| matched.index),
            lag_entries: next.saturating_sub(matched.map_or(0, |matched| matched.index + 1)),
            last_answer_ago_ms: last_heartbeat_age_ms(id),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_majority_is_described_by_the_replicas_that_answered() {
        let described = |got: &[u64]| describe_answers(&got.iter().copied().collect(), 1);
        assert_eq!(described(&[1]), "no other replica answered");
        assert_eq!(described(&[3, 1]), "only replica 3 answered");
        assert_eq!(described(&[4, 1, 2]), "only replicas 2, 4 answered");
    }
}
