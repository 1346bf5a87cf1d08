//! Recipient check for messages between replicas: an address may have been reused by another replica or
//! cluster.

use muster_model::ids::ReplicaId;
use muster_proto::status::{self, FOREIGN_CLUSTER, NOT_LEADER, WRONG_REPLICA};
use tonic::{Code, Status};

/// The intended recipient of a message, as far as its sender gives it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Recipient<'a> {
    /// Id of its cluster; `None` from an older build.
    pub(crate) cluster_id: Option<&'a str>,
    /// Id of the replica; `None` from an older build.
    pub(crate) replica_id: Option<u64>,
}

impl Recipient<'_> {
    /// Refuses a message for another recipient, before anything is done.
    pub(crate) fn check(self, cluster_id: &str, replica: ReplicaId) -> Result<(), Status> {
        if let Some(meant) = self.cluster_id.filter(|meant| *meant != cluster_id) {
            let message = format!(
                "replica {replica} belongs to cluster `{cluster_id}`, the message is for cluster `{meant}`: \
                 correct the address of the replica that listened here before"
            );
            return Err(refusal(FOREIGN_CLUSTER, &message));
        }
        if let Some(meant) = self.replica_id.filter(|meant| *meant != replica.get()) {
            let message = format!(
                "this is replica {replica}, the message is for replica {meant}: correct its address"
            );
            return Err(refusal(WRONG_REPLICA, &message));
        }
        Ok(())
    }
}

fn refusal(reason: &str, message: &str) -> Status {
    status::error(Code::Unavailable, reason, message, &[])
}

/// Whether a failure with this reason means that the write was certainly not done, and may be tried
/// elsewhere.
pub(crate) fn is_undone(reason: &str) -> bool {
    [NOT_LEADER, FOREIGN_CLUSTER, WRONG_REPLICA].contains(&reason)
}

#[cfg(test)]
mod tests {
    use muster_proto::status::ErrorReport;

    use super::*;

    #[test]
    fn messages_for_this_replica_or_without_a_recipient_are_accepted() {
        let reason = |cluster_id, replica_id| {
            let recipient = Recipient {
                cluster_id,
                replica_id,
            };
            let refused = recipient.check("lab", ReplicaId(2)).err()?;
            assert_eq!(refused.code(), Code::Unavailable);
            Some(ErrorReport::of(&refused).reason)
        };
        assert_eq!(reason(Some("lab"), Some(2)), None);
        assert_eq!(reason(None, None), None);
        assert_eq!(reason(Some("lab"), Some(3)).as_deref(), Some(WRONG_REPLICA));
        assert_eq!(reason(None, Some(3)).as_deref(), Some(WRONG_REPLICA));
        // Replica ids repeat between clusters.
        for replica_id in [Some(2), Some(3), None] {
            let refused = reason(Some("other"), replica_id);
            assert_eq!(refused.as_deref(), Some(FOREIGN_CLUSTER));
        }
        assert_eq!(reason(Some(""), Some(2)).as_deref(), Some(FOREIGN_CLUSTER));
    }
}
