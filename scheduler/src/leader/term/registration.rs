//! Registration of workers.

use muster_engine::apply::Applied;
use muster_engine::state::{Answer, State};
use muster_model::command::HostRegistration;
use muster_model::ids::LeadershipEpoch;
use muster_model::rejection::Rejection;

use crate::leader::batch::CommandBatch;
use crate::leader::session::{CloseReason, SessionId, ToWorker};
use crate::leader::term::Term;
use crate::leader::{Clock, PeerLinks};

impl<P: PeerLinks, C: Clock> Term<'_, P, C> {
    /// Handles a registration. A worker that has obeyed a later leader shows that this leadership is over.
    pub(super) fn register(
        &mut self,
        state: &State,
        id: SessionId,
        leader_seen: LeadershipEpoch,
        batch: &mut CommandBatch,
    ) {
        if leader_seen > self.fence.epoch {
            self.sessions
                .end(id, CloseReason::NotLeader { leader: None });
            return;
        }
        let Some(registration) = self.sessions.registration(id) else {
            return;
        };
        if self.is_held(state, &registration) {
            let rejection = Rejection::HostIdentityTaken(registration.name.clone());
            tracing::warn!(%rejection, "registration refused: the worker's identity is in use");
            self.sessions.end(id, CloseReason::Rejected(rejection));
            return;
        }
        batch.register(self.fence.epoch, id, registration);
    }

    /// Whether an earlier start of the same worker is still alive: the newer one would disown its tasks.
    fn is_held(&self, state: &State, registration: &HostRegistration) -> bool {
        let Some(host) = state.host_names.get(registration.name.as_str()) else {
            return false;
        };
        let now = self.parts.clock.monotonic();
        self.reactor.is_in_contact(*host, now)
            && self.sessions.is_held_by_earlier_start(*host, registration)
    }

    /// Delivers the outcome of a registration.
    pub(super) fn registered(&mut self, id: SessionId, outcome: &Applied) {
        match &outcome.result {
            Ok(Answer::Host(host)) => {
                self.sessions.bind(id, *host);
                let timings = self.parts.settings.timings;
                let leader = self.fence.epoch;
                self.sessions.send(
                    id,
                    ToWorker::Welcome {
                        host: *host,
                        leader,
                        timings,
                        replicas: self.replica_addresses(),
                    },
                );
                self.unsent.insert(*host);
            }
            Ok(answer) => {
                tracing::error!(?answer, "unexpected outcome of a registration");
                self.sessions.end(id, CloseReason::Busy);
            }
            Err(rejection) => {
                tracing::warn!(%rejection, "registration refused");
                self.sessions
                    .end(id, CloseReason::Rejected(rejection.clone()));
            }
        }
    }
}
