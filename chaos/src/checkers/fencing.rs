//! Checker for I3: no command of a deposed leader takes effect.

use muster_engine::apply::Applied;
use muster_engine::state::{Answer, State};
use muster_model::command::Command;
use muster_model::ids::{LeadershipEpoch, Revision};
use muster_model::rejection::Rejection;

/// Leadership at each point of the log, derived from the outcomes of the commands.
#[derive(Clone, Debug, Default)]
pub struct Fencing {
    /// The newest leadership.
    current: LeadershipEpoch,
    found: Vec<StaleCommand>,
}

/// A command of a deposed leader was applied, or refused for another reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("revision {revision} comes from leadership {given}, deposed by leadership {current}")]
pub struct StaleCommand {
    /// Revision that the command created.
    pub revision: Revision,
    /// Leadership that proposed the command.
    pub given: LeadershipEpoch,
    /// Leadership in force.
    pub current: LeadershipEpoch,
}

impl Fencing {
    /// A new group continues from this state.
    pub const fn restored_from(&mut self, state: &State) {
        self.current = state.leadership.epoch;
    }

    /// Checks an applied command, in log order; returns true if it came from a deposed leader and was
    /// refused.
    pub fn applied(&mut self, command: &Command, outcome: &Applied) -> bool {
        let revision = outcome.revision;
        if outcome.result == Ok(Answer::Began) {
            self.current = LeadershipEpoch(revision.get());
            return false;
        }
        let current = self.current;
        let Some(given) = command.leader().filter(|given| *given < current) else {
            return false;
        };
        let is_refused = matches!(outcome.result, Err(Rejection::StaleLeader { .. }));
        if !is_refused {
            self.found.push(StaleCommand {
                revision,
                given,
                current,
            });
        }
        is_refused
    }

    /// Violations found so far, in order.
    #[must_use]
    pub fn violations(&self) -> &[StaleCommand] {
        &self.found
    }
}

#[cfg(test)]
mod tests {
    use muster_engine::apply::apply;
    use muster_model::ids::ReplicaId;
    use muster_model::time::TimeMs;

    use super::*;

    #[test]
    fn proposals_of_an_old_leader_must_be_refused() {
        let (mut state, mut fencing) = (State::default(), Fencing::default());
        let mut give = |command: &Command| {
            let outcome = apply(&mut state, TimeMs(1), command);
            (fencing.applied(command, &outcome), outcome)
        };
        let began = |replica| Command::LeadershipStarted {
            replica: ReplicaId(replica),
        };
        let prune = |epoch| Command::Prune {
            leader: LeadershipEpoch(epoch),
        };
        assert!(!give(&began(1)).0 && !give(&began(2)).0);
        assert!(
            give(&prune(1)).0,
            "the command of a deposed leader is refused"
        );
        let (is_stale, done) = give(&prune(2));
        assert!(!is_stale && done.result.is_ok());
        assert_eq!(fencing.violations(), []);
        // Pretend that it took effect.
        assert!(!fencing.applied(&prune(1), &done));
        assert_eq!(fencing.violations().len(), 1);
        // In a group restored from an earlier state, that leadership may still be the newest.
        fencing.restored_from(&State::default());
        assert!(!fencing.applied(&prune(1), &done));
        assert_eq!(fencing.violations().len(), 1);
    }
}
