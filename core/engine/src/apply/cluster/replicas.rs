//! Records of replica membership changes.

use std::collections::BTreeMap;
use std::sync::Arc;

use muster_model::command::{ReplicaMembership, ReplicaRecord};
use muster_model::event::{EventKind, ReplicaChanged};
use muster_model::ids::ReplicaId;

use crate::apply::Step;
use crate::state::{Answer, Replicas};

impl Step<'_> {
    /// Records the current replicas and emits events for changes since the last record. The first record
    /// emits none. A repetition changes nothing.
    pub(in crate::apply) fn record_replicas(&mut self, replicas: &[ReplicaRecord]) -> Answer {
        let found: BTreeMap<ReplicaId, &ReplicaRecord> = replicas
            .iter()
            .map(|replica| (replica.id, replica))
            .collect();
        let known = Arc::clone(&self.state.replicas);
        if !known.is_empty() {
            self.emit_replica_changes(&known, &found);
        }
        let newest = found.keys().next_back().copied().unwrap_or_default();
        self.state.replicas = Arc::new(Replicas {
            present: found.into_values().cloned().collect(),
            highest: known.highest.max(newest),
        });
        Answer::Done
    }

    fn emit_replica_changes(
        &mut self,
        known: &Replicas,
        found: &BTreeMap<ReplicaId, &ReplicaRecord>,
    ) {
        for replica in &known.present {
            if !found.contains_key(&replica.id) {
                self.emit_replica_change(replica, ReplicaMembership::Removed);
            }
        }
        for replica in found.values() {
            if known.get(replica.id) != Some(*replica) {
                let membership = if replica.votes {
                    ReplicaMembership::Voter
                } else {
                    ReplicaMembership::Learner
                };
                self.emit_replica_change(replica, membership);
            }
        }
    }

    fn emit_replica_change(&mut self, replica: &ReplicaRecord, membership: ReplicaMembership) {
        self.emit(EventKind::ReplicaChanged(ReplicaChanged {
            replica: replica.id,
            address: replica.address.clone(),
            membership,
        }));
    }
}
