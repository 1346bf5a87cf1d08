//! Samples of the fourth version: a cluster whose replicas have changed.

use std::sync::Arc;

use muster_engine::state::{Replicas, State};
use muster_model::command::{Command, ReplicaMembership, ReplicaRecord};
use muster_model::event::{EventKind, ReplicaChanged};
use muster_model::ids::ReplicaId;

use crate::frozen::samples::LEADER;

/// The command, under the name of its file.
pub(crate) fn command() -> (&'static str, Command) {
    let command = Command::RecordReplicas {
        leader: LEADER,
        replicas: present(),
    };
    ("record_replicas", command)
}

/// One event of every kind.
pub(crate) fn kind() -> EventKind {
    EventKind::ReplicaChanged(ReplicaChanged {
        replica: ReplicaId(5),
        address: "node5:7400".to_owned(),
        membership: ReplicaMembership::Learner,
    })
}

/// The first version's state, with replicas of which one is gone.
pub(crate) fn state() -> State {
    let mut parts = super::state::parts();
    parts.replicas = Arc::new(Replicas {
        present: present(),
        highest: ReplicaId(6),
    });
    State::restore(parts)
}

fn present() -> Vec<ReplicaRecord> {
    let replica = |id: u64, votes| ReplicaRecord {
        id: ReplicaId(id),
        address: format!("node{id}:7400"),
        votes,
    };
    vec![replica(1, true), replica(3, true), replica(5, false)]
}
