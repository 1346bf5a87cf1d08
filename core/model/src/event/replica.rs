//! What an event tells of a replica.

use serde::{Deserialize, Serialize};

use crate::command::ReplicaStanding;
use crate::ids::ReplicaId;

/// A replica that came, votes from now on, votes no more, or is gone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplicaChanged {
    /// Which one.
    pub replica: ReplicaId,
    /// Where it is reached.
    pub address: String,
    /// What it is to the group from now on.
    pub standing: ReplicaStanding,
}
