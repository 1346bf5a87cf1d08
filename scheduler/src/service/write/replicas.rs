//! Changes of the replicas and of the leader.

use std::time::Duration;

use muster_model::access::Role;
use muster_proto::v1::change_replicas_request::Change;
use muster_proto::{status, v1};
use muster_raft_store::{Force, MemberChange, MembershipError, Peer};
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout_at};
use tonic::{Code, Status};

use crate::audit_log::Record;
use crate::config::is_host_and_port;
use crate::leader::{ChangeError, LeaderInput, ReplicaChange};
use crate::service::context::Context;
use crate::service::gate::Method;
use crate::service::write::request::{Reply, WriteRequest};
use crate::service::write::{UNKNOWN_OUTCOME, UNREACHABLE};

/// Retry delay for a caller that waits for the result of a change.
const RETRY: Duration = Duration::from_millis(100);

impl WriteRequest for v1::TransferLeaderRequest {
    const METHOD: Method = Method::of_admin("TransferLeader", Role::Admin);
    const IS_REPEATABLE: bool = false;
    const IS_HANDOVER: bool = true;

    type Order = Self;

    fn record(&self) -> Record {
        let subject = match self.to_replica_id {
            0 => String::new(),
            id => format!("replica {id}"),
        };
        Record::about("", subject)
    }

    fn order(self) -> Result<Self, Status> {
        Ok(self)
    }

    async fn execute(order: Self, context: &Context, _: Instant) -> Reply<Self> {
        let to = match order.to_replica_id {
            0 => context
                .handle
                .successor()
                .ok_or_else(|| no_other_replica("no other voter is reachable and up to date"))?,
            named => named,
        };
        let transferred = context.handle.transfer_leader(to).await;
        transferred.map_err(|error| membership_status(&error))?;
        Ok(v1::TransferLeaderResponse { to_replica_id: to })
    }
}

/// A checked change of the replicas.
pub(crate) struct ReplicaOrder {
    change: MemberChange,
    force: Force,
}

impl WriteRequest for v1::ChangeReplicasRequest {
    const METHOD: Method = Method::of_admin("ChangeReplicas", Role::Admin);

    type Order = ReplicaOrder;

    fn record(&self) -> Record {
        let what = match &self.change {
            None => String::new(),
            Some(Change::Add(add)) => format!("add replica {} at {}", add.replica_id, add.address),
            Some(Change::PromoteReplicaId(id)) => format!("promote replica {id}"),
            Some(Change::RemoveReplicaId(id)) => format!("remove replica {id}"),
            Some(Change::Replace(replace)) => format!(
                "replace replica {} by {}",
                replace.old_replica_id, replace.new_replica_id
            ),
        };
        let forced = if self.force { ", forced" } else { "" };
        Record::about("", format!("{what}{forced}"))
    }

    fn order(self) -> Result<ReplicaOrder, Status> {
        Ok(ReplicaOrder {
            change: change(&self)?,
            force: Force(self.force),
        })
    }

    /// Passes the change to the leader loop and waits for its result.
    async fn execute(order: ReplicaOrder, context: &Context, deadline: Instant) -> Reply<Self> {
        let ReplicaOrder { change, force } = order;
        let leadership = context.handle.leadership().borrow().clone();
        if !leadership.is_self {
            let leader = leadership.leader.as_ref();
            return Err(status::not_leader(leader.map(|peer| peer.address.as_str())));
        }
        if change.removes(context.config.replica_id.get()) {
            return Err(step_aside(context, &change, force).await);
        }
        let (reply, answer) = oneshot::channel();
        let input = LeaderInput::ChangeReplicas(ReplicaChange {
            change,
            force,
            reply,
        });
        // The loop is gone only when the replica stops; then the answer is missing, too.
        drop(context.leader_inputs.send(input).await);
        match timeout_at(deadline, answer).await {
            Ok(Ok(Ok(changed))) => Ok(v1::ChangeReplicasResponse {
                changed: changed.changed,
                warning: changed.warning.unwrap_or_default(),
            }),
            Ok(Ok(Err(error))) => Err(refusal(&error)),
            Ok(Err(_)) => Err(unknown("leadership ended")),
            Err(_) => Err(unknown("the change is still in progress")),
        }
    }
}

/// The change that a request asks for.
fn change(request: &v1::ChangeReplicasRequest) -> Result<MemberChange, Status> {
    let id = |field: &str, id: u64| {
        if id == 0 {
            return Err(invalid(field, "must not be 0"));
        }
        Ok(id)
    };
    Ok(match &request.change {
        None => return Err(invalid("change", "must be set")),
        Some(Change::Add(add)) => {
            if !is_host_and_port(&add.address) {
                let rule = format!("`{}` is not `host:port`", add.address);
                return Err(invalid("add.address", &rule));
            }
            let id = id("add.replica_id", add.replica_id)?;
            MemberChange::Add(Peer::new(id, add.address.clone()))
        }
        Some(Change::PromoteReplicaId(promoted)) => {
            MemberChange::Promote(id("promote_replica_id", *promoted)?)
        }
        Some(Change::RemoveReplicaId(removed)) => {
            MemberChange::Remove(id("remove_replica_id", *removed)?)
        }
        Some(Change::Replace(replace)) => MemberChange::Replace {
            old: id("replace.old_replica_id", replace.old_replica_id)?,
            new: id("replace.new_replica_id", replace.new_replica_id)?,
        },
    })
}

fn invalid(field: &str, rule: &str) -> Status {
    let message = format!("{field}: {rule}");
    status::error(Code::InvalidArgument, "INVALID_REQUEST", &message, &[])
}

/// A leader that is to be removed hands leadership over, and the next one carries out the change: the error
/// names that one.
async fn step_aside(context: &Context, change: &MemberChange, force: Force) -> Status {
    let handle = &context.handle;
    if let Err(error) = handle.plan_change(change, force) {
        return membership_status(&error);
    }
    let Some(successor) = handle.successor() else {
        let message = "this replica leads, and no other voter is reachable and up to date: promote another one first";
        return no_other_replica(message);
    };
    match handle.transfer_leader(successor).await {
        Ok(()) => {
            let status = handle.status();
            let address = status.member(successor).map(|peer| peer.address.clone());
            status::not_leader(address.as_deref())
        }
        Err(error) => membership_status(&error),
    }
}

fn unknown(message: &str) -> Status {
    status::retryable(Code::Unavailable, UNKNOWN_OUTCOME, message, &[], RETRY)
}

fn refusal(error: &ChangeError) -> Status {
    let message = error.to_string();
    let (code, reason) = match error {
        ChangeError::Membership(error) => return membership_status(error),
        ChangeError::Busy { .. } => (Code::FailedPrecondition, "CHANGE_UNDER_WAY"),
        ChangeError::UsedId { .. } | ChangeError::OldBuild { .. } => {
            (Code::FailedPrecondition, "REFUSED")
        }
        ChangeError::NotTakenOver { .. } => (Code::Unavailable, UNREACHABLE),
    };
    status::error(code, reason, &message, &[])
}

fn no_other_replica(message: &str) -> Status {
    status::error(Code::FailedPrecondition, "NO_OTHER_REPLICA", message, &[])
}

/// Converts a failed change of leadership or membership for the caller.
pub(crate) fn membership_status(error: &MembershipError) -> Status {
    let message = error.to_string();
    match error {
        MembershipError::NotLeader { leader } => {
            status::not_leader(leader.as_ref().map(|peer| peer.address.as_str()))
        }
        MembershipError::Unreachable { .. } => {
            status::error(Code::Unavailable, "REPLICA_UNREACHABLE", &message, &[])
        }
        MembershipError::NotTaken { .. } | MembershipError::Unknown | MembershipError::Stopped => {
            status::error(Code::Unavailable, UNREACHABLE, &message, &[])
        }
        // A new leader has no contact to some voters yet: a retry may help.
        MembershipError::VotersSilent { .. } => {
            status::error(Code::Unavailable, "NO_QUORUM", &message, &[])
        }
        MembershipError::LearnerSilent { .. } | MembershipError::LearnerLags { .. } => {
            status::error(Code::FailedPrecondition, "NOT_LEVEL", &message, &[])
        }
        MembershipError::AlreadyInitialized
        | MembershipError::PeerHasGroup { .. }
        | MembershipError::UnknownMember { .. }
        | MembershipError::SuccessorUnresponsive { .. }
        | MembershipError::SuccessorLags { .. }
        | MembershipError::UnexpectedPeer { .. }
        | MembershipError::Refused(_) => {
            status::error(Code::FailedPrecondition, "REFUSED", &message, &[])
        }
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn a_change_request_without_its_fields_is_refused_by_field() {
        let ask = |change| v1::ChangeReplicasRequest {
            change,
            force: false,
        };
        let add = |replica_id, address: &str| {
            let address = address.to_owned();
            ask(Some(Change::Add(v1::AddReplica {
                replica_id,
                address,
            })))
        };
        assert_eq!(
            change(&add(4, "node4:7400")).unwrap(),
            MemberChange::Add(Peer::new(4, "node4:7400"))
        );
        let refused = [
            (ask(None), "change"),
            (add(0, "node4:7400"), "add.replica_id"),
            (add(4, "node4"), "add.address"),
            (ask(Some(Change::RemoveReplicaId(0))), "remove_replica_id"),
        ];
        for (request, field) in refused {
            let status = change(&request).unwrap_err();
            assert_eq!(status.code(), Code::InvalidArgument);
            let message = status.message();
            assert!(message.starts_with(&format!("{field}:")), "{message}");
        }
    }
}
