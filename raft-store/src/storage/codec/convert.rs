//! Conversions between openraft's small types and protobuf messages.

use std::collections::{BTreeMap, BTreeSet};

use muster_proto::raft::v1 as proto;

use crate::apply::state_machine::DecodeError;
use crate::types::{LeaderId, LogId, Membership, Node, StoredMembership, Vote};

pub(crate) fn leader_to_proto(leader: &LeaderId) -> proto::LeaderId {
    proto::LeaderId {
        term: leader.term,
        node: leader.node_id,
    }
}

pub(crate) fn leader_from_proto(leader: Option<proto::LeaderId>) -> Result<LeaderId, DecodeError> {
    let leader = leader.ok_or_else(|| DecodeError::malformed("leader is missing"))?;
    Ok(LeaderId {
        term: leader.term,
        node_id: leader.node,
    })
}

pub(crate) fn log_id_to_proto(id: &LogId) -> proto::LogId {
    proto::LogId {
        leader: Some(leader_to_proto(&id.leader_id)),
        index: id.index,
    }
}

pub(crate) fn log_id_from_proto(id: proto::LogId) -> Result<LogId, DecodeError> {
    Ok(LogId::new(leader_from_proto(id.leader)?, id.index))
}

pub(crate) fn optional_log_id(id: Option<proto::LogId>) -> Result<Option<LogId>, DecodeError> {
    id.map(log_id_from_proto).transpose()
}

pub(crate) fn vote_to_proto(vote: &Vote) -> proto::Vote {
    proto::Vote {
        leader: Some(leader_to_proto(&vote.leader_id)),
        committed: vote.committed,
    }
}

pub(crate) fn vote_from_proto(vote: Option<proto::Vote>) -> Result<Vote, DecodeError> {
    let vote = vote.ok_or_else(|| DecodeError::malformed("vote is missing"))?;
    Ok(Vote {
        leader_id: leader_from_proto(vote.leader)?,
        committed: vote.committed,
    })
}

pub(crate) fn member_to_proto(id: u64, node: &Node) -> proto::Member {
    proto::Member {
        id,
        address: node.address.clone(),
        incarnation: node.incarnation,
    }
}

pub(crate) fn membership_to_proto(membership: &Membership) -> proto::Membership {
    proto::Membership {
        voter_sets: membership
            .get_joint_config()
            .iter()
            .map(|voters| proto::VoterSet {
                ids: voters.iter().copied().collect(),
            })
            .collect(),
        members: membership
            .nodes()
            .map(|(id, node)| member_to_proto(*id, node))
            .collect(),
    }
}

pub(crate) fn membership_from_proto(
    membership: proto::Membership,
) -> Result<Membership, DecodeError> {
    let voter_sets: Vec<BTreeSet<u64>> = membership
        .voter_sets
        .into_iter()
        .map(|voters| voters.ids.into_iter().collect())
        .collect();
    let nodes: BTreeMap<u64, Node> = membership
        .members
        .into_iter()
        .map(|member| {
            let node = Node {
                address: member.address,
                incarnation: member.incarnation,
            };
            (member.id, node)
        })
        .collect();
    // `Membership::new` rejects a membership without voters, which a new group has.
    if voter_sets.is_empty() && nodes.is_empty() {
        return Ok(Membership::default());
    }
    Membership::new(voter_sets, nodes)
        .map_err(|error| DecodeError::malformed(format!("membership: {error}")))
}

pub(crate) fn stored_membership_to_proto(stored: &StoredMembership) -> proto::StoredMembership {
    proto::StoredMembership {
        id: stored.log_id().as_ref().map(log_id_to_proto),
        membership: Some(membership_to_proto(stored.membership())),
    }
}

pub(crate) fn stored_membership_from_proto(
    stored: Option<proto::StoredMembership>,
) -> Result<StoredMembership, DecodeError> {
    let stored = stored.ok_or_else(|| DecodeError::malformed("stored membership is missing"))?;
    Ok(StoredMembership::new(
        optional_log_id(stored.id)?,
        membership_from_proto(stored.membership.unwrap_or_default())?,
    ))
}
