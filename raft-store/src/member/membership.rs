//! Membership changes on the leader.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use muster_proto::raft::v1::HelloResponse;
use openraft::errors::{ClientWriteError, InitializeError, RaftError};
use openraft::{ChangeMembers, Instant as _, Precondition};

use crate::apply::batcher::to_peer;
use crate::apply::state_machine::StateMachine;
use crate::error::MembershipError;
use crate::member::peer::Peer;
use crate::network::TransportError;
use crate::replica::engine::RaftEngine;
use crate::sim::Runtime;
use crate::types::{LogId, Node, Types};

/// Pause between two attempts to reach a member that should be starting.
const HELLO_PAUSE: Duration = Duration::from_millis(50);

impl<M: StateMachine, R: Runtime> RaftEngine<M, R> {
    /// Asks a member for its incarnation.
    async fn resolve_node(&self, peer: &Peer) -> Result<Node, MembershipError> {
        let incarnation = if peer.id == self.config.replica_id {
            self.network.identity.incarnation
        } else {
            self.query_identity(peer).await?.incarnation
        };
        Ok(Node {
            address: peer.address.clone(),
            incarnation,
        })
    }

    /// Asks a member for its identity, with retries, because it may still be starting.
    async fn query_identity(&self, peer: &Peer) -> Result<HelloResponse, MembershipError> {
        let unidentified = Node {
            address: peer.address.clone(),
            incarnation: 0,
        };
        let client = self.network.client(peer.id, &unidentified);
        let deadline = <R::Instant as openraft::Instant>::now() + self.peer_timeout();
        loop {
            match client.hello().await {
                Ok(answer) => return Ok(answer),
                Err(TransportError::UnexpectedPeer(detail)) => {
                    return Err(MembershipError::UnexpectedPeer {
                        peer: peer.clone(),
                        detail,
                    });
                }
                Err(error) if R::Instant::now() >= deadline => {
                    return Err(MembershipError::Unreachable {
                        peer: peer.clone(),
                        detail: error.to_string(),
                    });
                }
                Err(_) => R::sleep(HELLO_PAUSE).await,
            }
        }
    }

    /// Asks the members of a new group for their identity, and fails unless every other one belongs to no
    /// group: if some replicas have lost their data, the empty ones would outvote those that still hold the
    /// log.
    async fn query_new_members(
        &self,
        members: &[Peer],
    ) -> Result<BTreeMap<u64, Node>, MembershipError> {
        let (this, others): (Vec<_>, Vec<_>) = members
            .iter()
            .partition(|peer| peer.id == self.config.replica_id);
        let asked = others
            .into_iter()
            .map(|peer| async move { (peer, self.query_identity(peer).await) });
        let answers = futures::future::join_all(asked).await;
        // One member of an existing group decides, even if others do not answer.
        for (peer, answer) in &answers {
            if matches!(answer, Ok(answer) if answer.belongs_to_group == Some(true)) {
                return Err(MembershipError::PeerHasGroup {
                    peer: (*peer).clone(),
                });
            }
        }
        let mut nodes = BTreeMap::new();
        for peer in this {
            nodes.insert(peer.id, self.resolve_node(peer).await?);
        }
        for (peer, answer) in answers {
            nodes.insert(peer.id, to_new_member(peer, &answer?)?);
        }
        Ok(nodes)
    }

    pub(crate) async fn form_group(&self, members: Vec<Peer>) -> Result<(), MembershipError> {
        if matches!(self.raft.is_initialized().await, Ok(true)) {
            return Err(MembershipError::AlreadyInitialized);
        }
        let nodes = self.query_new_members(&members).await?;
        self.raft
            .initialize(nodes)
            .await
            .map_err(|error| match error {
                RaftError::APIError(InitializeError::NotAllowed(_)) => {
                    MembershipError::AlreadyInitialized
                }
                RaftError::APIError(InitializeError::NotInMembers(error)) => {
                    MembershipError::Refused(error.to_string())
                }
                RaftError::Fatal(_) => MembershipError::Stopped,
            })
    }

    /// Adds a learner. A new member must come without data: its stored votes and entries may belong to
    /// another group, or to a time before it was removed.
    pub(crate) async fn admit_learner(&self, peer: Peer) -> Result<(), MembershipError> {
        self.check_leads()?;
        let answer = self.query_identity(&peer).await?;
        let node = Node {
            address: peer.address.clone(),
            incarnation: answer.incarnation,
        };
        let metrics = self.metrics();
        let known = metrics.membership_config.get_node(&peer.id);
        match known {
            Some(known) if *known != node => {
                return Err(MembershipError::Refused(format!(
                    "replica {} is a member with a different address or different data; remove it first",
                    peer.id
                )));
            }
            Some(_) => return Ok(()),
            None if answer.belongs_to_group == Some(true) => {
                return Err(MembershipError::Refused(format!(
                    "{peer} already holds the data of a group: start it with an empty data directory and an id that \
                     was never used"
                )));
            }
            None => {}
        }
        let added = self
            .raft
            .add_learner(peer.id, node, false)
            .await
            .map_err(to_membership_error)?;
        self.await_committed(added.log_id.index).await
    }

    pub(crate) async fn remove(&self, id: u64) -> Result<(), MembershipError> {
        self.check_leads()?;
        let metrics = self.metrics();
        if metrics.membership_config.get_node(&id).is_none() {
            return Err(MembershipError::UnknownMember { id });
        }
        let is_voter = metrics
            .membership_config
            .voter_ids()
            .any(|voter| voter == id);
        let ids = BTreeSet::from([id]);
        let change: ChangeMembers<u64, Node> = if is_voter {
            ChangeMembers::RemoveVoters(ids)
        } else {
            ChangeMembers::RemoveNodes(ids)
        };
        let base = *metrics.membership_config.log_id();
        self.commit_change(change, base).await
    }

    /// Makes exactly these members voters; each must be a member already. Voters that are left out leave
    /// the group.
    pub(crate) async fn set_voters(&self, voters: BTreeSet<u64>) -> Result<(), MembershipError> {
        self.check_leads()?;
        let metrics = self.metrics();
        let now: BTreeSet<u64> = metrics.membership_config.voter_ids().collect();
        let change = ChangeMembers::Batch(vec![
            ChangeMembers::AddVoterIds(voters.difference(&now).copied().collect()),
            ChangeMembers::RemoveVoters(now.difference(&voters).copied().collect()),
        ]);
        let base = *metrics.membership_config.log_id();
        self.commit_change(change, base).await
    }

    /// Finishes a change that was half committed when its leader was lost.
    pub(crate) async fn finish(&self) -> Result<(), MembershipError> {
        self.check_leads()?;
        let metrics = self.metrics();
        let joint = metrics.membership_config.membership().get_joint_config();
        if joint.len() < 2 {
            return Ok(());
        }
        let base = *metrics.membership_config.log_id();
        let nothing_more = ChangeMembers::AddVoterIds(BTreeSet::new());
        self.commit_change(nothing_more, base).await
    }

    /// Commits a change if the membership is still the one for which it was planned.
    async fn commit_change(
        &self,
        change: ChangeMembers<u64, Node>,
        base: Option<LogId>,
    ) -> Result<(), MembershipError> {
        let unchanged = Precondition::LastMembershipLogId {
            last_membership_log_id: base,
        };
        let changed = self
            .raft
            .change_membership_if(change, false, [unchanged])
            .await
            .map_err(to_membership_error)?;
        self.await_committed(changed.log_id.index).await
    }

    /// Waits until the status shows a committed membership.
    async fn await_committed(&self, index: u64) -> Result<(), MembershipError> {
        let waited = self
            .raft
            .wait(Some(self.peer_timeout()))
            .metrics(
                |metrics| {
                    let shown = metrics.membership_config.log_id();
                    shown.is_some_and(|shown| shown.index >= index)
                },
                "the new membership shows",
            )
            .await;
        waited.map(drop).map_err(|_| MembershipError::Unknown)
    }
}

/// Converts the answer of a new group's member; fails if it belongs to a group.
fn to_new_member(peer: &Peer, answer: &HelloResponse) -> Result<Node, MembershipError> {
    if answer.belongs_to_group.is_none() {
        return Err(MembershipError::Unreachable {
            peer: peer.clone(),
            detail: "its build does not report whether it belongs to a group".to_owned(),
        });
    }
    Ok(Node {
        address: peer.address.clone(),
        incarnation: answer.incarnation,
    })
}

fn to_membership_error<M: StateMachine, R: Runtime>(
    error: RaftError<Types<M, R>, ClientWriteError<Types<M, R>>>,
) -> MembershipError {
    match error {
        RaftError::APIError(ClientWriteError::ForwardToLeader(forward)) => {
            MembershipError::NotLeader {
                leader: to_peer(forward.leader_id, forward.leader_node),
            }
        }
        RaftError::APIError(ClientWriteError::LogEntryDiscarded(_)) => MembershipError::Unknown,
        RaftError::APIError(error) => MembershipError::Refused(error.to_string()),
        RaftError::Fatal(_) => MembershipError::Stopped,
    }
}
