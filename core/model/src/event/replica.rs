//! Events about replicas.

use serde::{Deserialize, Serialize};

use crate::command::ReplicaMembership;
use crate::ids::ReplicaId;

/// A replica that was added, became a voter or a learner, or was removed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplicaChanged {
    /// The replica.
    pub replica: ReplicaId,
    /// Address of the replica.
    pub address: String,
    /// New membership.
    pub membership: ReplicaMembership,
}
