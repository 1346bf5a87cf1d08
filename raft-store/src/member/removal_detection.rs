//! Detection of this replica's own removal from the group.
//!
//! The log alone cannot show it: the leader stops sending to a removed replica, and the last entry it
//! received may be older than its removal. So a replica without messages from any leader asks the members
//! that it knows. A member that knows a later committed membership without this replica is authoritative,
//! because an id is never reused.

use std::time::Duration;

use futures::future::join_all;
use muster_proto::raft::v1::HelloResponse;
use openraft::async_runtime::watch::WatchReceiver as _;
use openraft::{Raft, RaftMetrics, ServerState};

use crate::apply::applier::Applier;
use crate::apply::state_machine::StateMachine;
use crate::member::peer::Peer;
use crate::network::{DataAcceptance, Network, Removal};
use crate::replica::config::Timings;
use crate::sim::Runtime;
use crate::types::{Node, Types};

/// Number of longest election timeouts without a message from a leader after which a replica asks.
const SILENT_TIMEOUTS: u64 = 4;

/// Inquiry task of one replica.
pub(crate) struct RemovalDetector<M: StateMachine, R: Runtime> {
    raft: Raft<Types<M, R>, Applier<M, R>>,
    network: Network,
    acceptance: DataAcceptance,
    timings: Timings,
}

impl<M: StateMachine, R: Runtime> RemovalDetector<M, R> {
    pub(crate) fn new(
        raft: &Raft<Types<M, R>, Applier<M, R>>,
        network: &Network,
        timings: Timings,
    ) -> Self {
        Self {
            raft: raft.clone(),
            network: network.clone(),
            acceptance: network.identity.acceptance.clone(),
            timings,
        }
    }

    /// Runs until the replica has stopped or knows that it was removed.
    pub(crate) async fn run(self) {
        let pause = Duration::from_millis(SILENT_TIMEOUTS * self.timings.election_ms_max);
        let receiver = self.raft.metrics();
        let mut last_count = self.acceptance.leader_message_count();
        let mut was_member = false;
        loop {
            R::sleep(pause).await;
            let metrics = receiver.borrow_watched().clone();
            if metrics.running_state.is_err() {
                return;
            }
            let is_member = metrics.membership_config.get_node(&metrics.id).is_some();
            let count = self.acceptance.leader_message_count();
            let is_silent = count == last_count && metrics.state != ServerState::Leader;
            last_count = count;
            let removal = if was_member && !is_member {
                without_this(&metrics)
            } else if is_member && is_silent {
                self.ask(&metrics).await
            } else {
                None
            };
            was_member |= is_member;
            if let Some(removal) = removal {
                log_removed(metrics.id, &removal);
                self.acceptance.record_removal(removal);
                return;
            }
        }
    }

    async fn ask(&self, metrics: &RaftMetrics<Types<M, R>>) -> Option<Removal> {
        let own_index = metrics.membership_config.log_id().as_ref()?.index;
        let nodes = metrics.membership_config.nodes();
        let others = nodes.filter(|(id, _)| **id != metrics.id);
        let asked = others.map(|(id, node)| {
            // Any incarnation may answer: a group rebuilt by disaster recovery has new incarnations and is
            // authoritative.
            let node = Node {
                incarnation: 0,
                ..node.clone()
            };
            let client = self.network.client(*id, &node);
            async move { client.hello().await }
        });
        // Unreachable members are skipped: they contribute nothing.
        let answers = join_all(asked).await.into_iter().flatten();
        let removals = answers.filter_map(|answer| removal(metrics.id, own_index, &answer));
        removals.max_by_key(|removal| removal.index)
    }
}

/// A membership committed by a leader that does not contain this replica.
///
/// A new replica passes through memberships older than its own admission while it catches up: this is not
/// checked for such a replica, and other members' memberships do not count for it either.
fn without_this<M: StateMachine, R: Runtime>(
    metrics: &RaftMetrics<Types<M, R>>,
) -> Option<Removal> {
    let index = metrics.membership_config.log_id().as_ref()?.index;
    let applied = metrics.last_applied.as_ref()?.index;
    let nodes = metrics.membership_config.nodes();
    (index <= applied).then(|| Removal {
        index,
        members: nodes
            .map(|(id, node)| Peer::new(*id, node.address.clone()))
            .collect(),
    })
}

/// Removal of this replica according to an answer, if any.
fn removal(id: u64, own_index: u64, answer: &HelloResponse) -> Option<Removal> {
    let index = answer.membership_index.filter(|index| *index > own_index)?;
    let is_member = answer.members.iter().any(|member| member.id == id);
    (!is_member && !answer.members.is_empty()).then(|| Removal {
        index,
        members: answer
            .members
            .iter()
            .map(|member| Peer::new(member.id, member.address.clone()))
            .collect(),
    })
}

/// Without this log line a removed replica would silently stand for election forever.
fn log_removed(id: u64, removal: &Removal) {
    let members: Vec<String> = removal.members.iter().map(Peer::to_string).collect();
    tracing::error!(
        replica = id,
        membership_index = removal.index,
        members = members.join(", "),
        "this replica was removed from the group and no longer serves. Its id is never used again: its data directory \
         may be deleted, and a new replica needs a new id"
    );
}

#[cfg(test)]
mod tests {
    use muster_proto::raft::v1::Member;

    use super::*;

    fn answer(index: Option<u64>, members: &[u64]) -> HelloResponse {
        HelloResponse {
            incarnation: 7,
            belongs_to_group: Some(true),
            membership_index: index,
            members: members
                .iter()
                .map(|id| Member {
                    id: *id,
                    address: format!("host-{id}:1"),
                    incarnation: 0,
                })
                .collect(),
        }
    }

    #[test]
    fn only_a_later_membership_without_this_replica_removes_it() {
        let is_removed = |index, members: &[u64]| removal(3, 10, &answer(index, members)).is_some();
        assert!(is_removed(Some(11), &[1, 2, 4]));
        assert!(!is_removed(Some(11), &[1, 2, 3]));
        // A membership older than the own one predates this replica's admission.
        assert!(!is_removed(Some(10), &[1, 2]));
        assert!(!is_removed(Some(9), &[1, 2]));
        // An older build does not report it, and a new replica knows no members.
        assert!(!is_removed(None, &[]));
        assert!(!is_removed(Some(11), &[]));
    }
}
