//! Heartbeat times on the other replicas, and the command formats that they read.

use muster_control::reactor::HeartbeatRecord;
use muster_engine::state::State;

use crate::leader::replication_rounds::PendingHeartbeat;
use crate::leader::session::ToWorker;
use crate::leader::term::Term;
use crate::leader::voter_sets::VoterSets;
use crate::leader::{Clock, PeerLinks, telemetry};

impl<P: PeerLinks, C: Clock> Term<'_, P, C> {
    /// Adopts the command format that all voters read.
    pub(super) fn adopt_format(&mut self) {
        let status = self.parts.handle.status();
        let own = self.parts.settings.replica;
        let voters = VoterSets::of(&status);
        let common = self.rounds.common_format(voters.others(own));
        let level = self.parts.heartbeats.lock().raise_command_format(common);
        self.rounds.set_level(level);
    }

    /// Begins a round of the replication of heartbeat times if one is due.
    pub(super) fn replicate_heartbeats(&mut self) {
        let now = self.parts.clock.monotonic();
        let reactor = &self.reactor;
        // For hosts without an entry, a later leader assumes the start of its memory.
        let known = || {
            let contacts = reactor.contacts();
            let youngest =
                |contact: &HeartbeatRecord| contact.last_contact_at.max(contact.leased_at);
            contacts
                .map(|(host, contact)| (host, youngest(contact)))
                .collect()
        };
        let Some(push) = self.rounds.begin(now, known) else {
            return;
        };
        let status = self.parts.handle.status();
        let stored = self.parts.heartbeats.lock().push(now, status.term, &push);
        match stored {
            Ok(()) => self.rounds.stored_by(self.parts.settings.replica),
            Err(error) => {
                tracing::info!(%error, "own store refused this leadership's heartbeat times")
            }
        }
        let asked = self.rounds.sets(VoterSets::of(&status));
        let own = self.parts.settings.replica;
        self.rounds
            .push(&self.parts.peers, asked.others(own), &push);
        self.acknowledge();
    }

    /// Acknowledges the heartbeats that a majority has stored, if this replica still leads in its term.
    pub(super) fn acknowledge(&mut self) {
        let status = self.parts.handle.status();
        let heartbeats = self.rounds.complete(VoterSets::of(&status));
        if status.term != self.fence.term || !self.leadership.borrow().is_self {
            return;
        }
        let slowest = heartbeats
            .iter()
            .map(|heartbeat| heartbeat.arrived.elapsed())
            .max();
        let Some(slowest) = slowest else {
            return;
        };
        let slowest_ms = u64::try_from(slowest.as_millis()).unwrap_or(u64::MAX);
        self.pace.round(self.sessions.connected(), slowest_ms);
        telemetry::heartbeat_interval(self.pace.period_ms());
        // Leases shorten the interval of a host: only an interval longer than the default needs to consult
        // them.
        let is_stretched = self.pace.period_ms() > self.parts.settings.timings.heartbeat_ms;
        let state = is_stretched.then(|| self.parts.handle.fork());
        for heartbeat in heartbeats {
            self.acknowledge_one(heartbeat, state.as_ref());
        }
    }

    /// Acknowledges a heartbeat, with the interval until the next one if it differs from the default
    /// according to `state`.
    fn acknowledge_one(&mut self, heartbeat: PendingHeartbeat, state: Option<&State>) {
        let Some(host) = self.sessions.host_of(heartbeat.session) else {
            return;
        };
        let usual_ms = self.parts.settings.timings.heartbeat_ms;
        let period_ms = state.map_or(usual_ms, |state| {
            self.reactor.period_ms(state, host, self.pace.period_ms())
        });
        let message = ToWorker::HeartbeatAck {
            leader: self.fence.epoch,
            sequence: heartbeat.sequence,
            next_heartbeat_ms: (period_ms > usual_ms).then_some(period_ms),
        };
        if self.sessions.send(heartbeat.session, message) {
            self.reactor
                .record_period(host, heartbeat.sequence, period_ms);
        }
    }
}
