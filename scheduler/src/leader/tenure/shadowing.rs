//! What the other replicas remember of the workers' beats, and which commands they read.

use muster_core::ids::ReplicaId;
use muster_proto::log::command_format_shown;

use crate::leader::session::ToWorker;
use crate::leader::tenure::Tenure;
use crate::leader::{Clock, PeerLinks};

impl<P: PeerLinks, C: Clock> Tenure<'_, P, C> {
    /// What is in the state already is read by all replicas: a new leader need not ask before it goes on with it.
    pub(super) fn learn_level_shown(&self) {
        let shown = command_format_shown(&self.parts.handle.fork());
        self.parts.shadows.lock().raise_command_format(shown);
    }

    /// Takes over which command format all voters read.
    pub(super) fn learn_level(&mut self) {
        let status = self.parts.handle.status();
        let own = self.parts.settings.replica;
        let voters = status.voters.iter().map(|voter| ReplicaId(voter.id));
        let common = self
            .rounds
            .common_format(voters.filter(|voter| *voter != own));
        let level = self.parts.shadows.lock().raise_command_format(common);
        self.rounds.set_level(level);
    }

    /// Begins a shadow round if one is due.
    pub(super) fn tell_shadows(&mut self) {
        let now = self.parts.clock.monotonic();
        let Some(push) = self.rounds.begin(now) else {
            return;
        };
        let status = self.parts.handle.status();
        let stored = self.parts.shadows.lock().push(now, status.term, &push);
        match stored {
            Ok(()) => self.rounds.stored_here(),
            Err(error) => tracing::info!(%error, "this leadership's shadows are refused here"),
        }
        let others = status.voters.iter().map(|voter| ReplicaId(voter.id));
        let own = self.parts.settings.replica;
        self.rounds.push(
            &self.parts.peers,
            others.filter(|replica| *replica != own),
            &push,
        );
        self.acknowledge();
    }

    /// Acknowledges the beats that a majority remembers, if this replica still leads in its term.
    pub(super) fn acknowledge(&mut self) {
        let status = self.parts.handle.status();
        let beats = self.rounds.complete(status.voters.len());
        if status.term != self.fence.term || !self.leadership.borrow().is_self {
            return;
        }
        for beat in beats {
            let leader = self.fence.epoch;
            self.sessions.send(
                beat.session,
                ToWorker::BeatAck {
                    leader,
                    sequence: beat.sequence,
                },
            );
        }
    }
}
