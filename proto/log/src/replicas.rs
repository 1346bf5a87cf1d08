//! The replicas in commands and states.

use muster_model::command::ReplicaRecord;
use muster_model::ids::ReplicaId;

use crate::v1;

pub(super) fn to_wire(replicas: &[ReplicaRecord]) -> Vec<v1::ReplicaRecord> {
    let one = |replica: &ReplicaRecord| v1::ReplicaRecord {
        id: replica.id.get(),
        address: replica.address.clone(),
        votes: replica.votes,
    };
    replicas.iter().map(one).collect()
}

pub(super) fn from_wire(wire: Vec<v1::ReplicaRecord>) -> Vec<ReplicaRecord> {
    let one = |replica: v1::ReplicaRecord| ReplicaRecord {
        id: ReplicaId(replica.id),
        address: replica.address,
        votes: replica.votes,
    };
    wire.into_iter().map(one).collect()
}
