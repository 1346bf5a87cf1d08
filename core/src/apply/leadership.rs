//! Who leads, and whose commands count.

use crate::apply::Step;
use crate::command::Command;
use crate::event::EventKind;
use crate::ids::{LeadershipEpoch, ReplicaId};
use crate::rejection::Rejection;
use crate::state::{Answer, Leadership};

impl Step<'_> {
    /// Refuses what any other than the current leadership gives.
    pub(super) fn require_leader(&self, command: &Command) -> Result<(), Rejection> {
        let current = self.state.leadership.epoch;
        match command.leader() {
            Some(given) if given != current => Err(Rejection::StaleLeader { given, current }),
            _ => Ok(()),
        }
    }

    pub(super) fn leader_began(&mut self, replica: ReplicaId) -> Answer {
        let epoch = LeadershipEpoch(self.state.revision.get());
        self.state.leadership = Leadership {
            replica,
            epoch,
            since: self.state.time,
        };
        self.emit(EventKind::LeaderBegan { replica, epoch });
        Answer::Began
    }
}
