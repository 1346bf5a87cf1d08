//! Checks of the replicas' final states and of their answers about the past.

use muster_engine::state::State;
use muster_raft_store::{Handle, StateHistoryError};

use crate::sim::faults::coverage::Situation;
use crate::sim::results::digest::Digest;
use crate::sim::results::report::Violation;
use crate::sim::world::World;

impl World {
    /// Checks the final states.
    pub(super) fn check_final_states(&self) {
        let up = self.members_up();
        let mut revisions = Vec::new();
        for (node, handle) in &up {
            if handle.status().removal.is_some() {
                let mistaken = format!("({}) is a member but considers itself removed", node.0);
                self.checkers.violate(Violation::Replica(mistaken));
            }
            let state = handle.fork();
            revisions.push(state.revision.get());
            self.checkers.judge_final(node.0, &state);
            self.judge_past(node.0, handle);
        }
        if revisions.windows(2).any(|pair| pair[0] != pair[1]) {
            self.checkers.violate(Violation::Apart(revisions));
        }
        // In a world that ended early, deliveries to watchers are incomplete.
        if self.checkers.is_clean() {
            self.checkers.with(|seen| {
                let behind = seen.watching.behind().into_iter();
                seen.violations.extend(behind.map(Violation::Watch));
            });
        }
    }

    /// Checks a replica's answers about past states against the states that replicas had then; it may have
    /// retained too little.
    fn judge_past(&self, id: u32, handle: &Handle<State>) {
        let some: Vec<_> = self
            .checkers
            .with(|seen| seen.agreement.sampled().collect());
        for (revision, hash) in some {
            let wrong = match handle.state_at(revision.get(), &|| true) {
                Ok(state) if (state.revision, Digest::default().of(&state)) == (revision, hash) => {
                    let situation = Situation::PastRead;
                    self.checkers.with(|seen| seen.coverage.reached(situation));
                    continue;
                }
                Ok(state) => format!("returns revision {} with a different state", state.revision),
                Err(StateHistoryError::TooOld { oldest, .. }) if oldest > revision.get() => {
                    continue;
                }
                Err(error) => error.to_string(),
            };
            let text = format!("({id}) cannot read the past at revision {revision}: {wrong}");
            self.checkers.violate(Violation::Replica(text));
        }
    }
}
