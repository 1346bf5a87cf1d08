//! Barriers for gangs: a gang waits until all members are prepared, if it may and the workers of its hosts
//! support it.

use muster_engine::state::State;
use muster_model::command::{Command, Placement};
use muster_planner::Plan;

use crate::leader::sessions::Sessions;
use crate::leader::term::Term;
use crate::leader::{Clock, PeerLinks};

impl<P: PeerLinks, C: Clock> Term<'_, P, C> {
    /// Adds barriers to the gangs of a plan where possible. Elsewhere the members begin one by one, as
    /// without barriers.
    pub(super) fn with_barriers(&self, state: &State, mut plan: Plan) -> Plan {
        for step in &mut plan.steps {
            if let Command::Place(placement) = step {
                placement.barrier = waits(state, &self.sessions, placement);
            }
        }
        plan
    }
}

fn waits(state: &State, sessions: &Sessions, placement: &Placement) -> bool {
    let Some(job) = state.job(placement.job) else {
        return false;
    };
    let several = job.spec.gang && placement.tasks.len() > 1;
    let mut hosts = placement.tasks.iter().map(|task| task.host);
    several
        && job.spec.lifecycle.barrier.unwrap_or(true)
        && hosts.all(|host| sessions.can_hold(host))
}
