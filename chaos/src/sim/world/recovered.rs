//! What must be so soon after everything was repaired: somebody leads, what it writes is committed, and every replica has it.
//! Nobody is asked anything for it: a call more would change what comes after.

use std::time::Duration;

use muster_engine::state::State;
use muster_model::ids::{ReplicaId, Revision};
use muster_raft_store::Handle;
use tokio::time::{Instant, sleep};

use crate::sim::report::Violation;
use crate::sim::runtime::NodeId;
use crate::sim::world::World;

/// How long that may take, in simulated time, from when all replicas are up and connected. An election takes a second, a snapshot
/// some more, and operators may still be changing the replicas: four times what chaos runs allow real processes.
const RECOVERED_MAX: Duration = Duration::from_secs(120);
/// Between two looks.
const LOOK: Duration = Duration::from_millis(500);

impl World {
    /// Waits until the replicas have recovered, but not beyond what that may take.
    pub(super) async fn recover(&self, repaired: Instant) {
        let mut due = None;
        while self.goes_on() {
            let Some(lacking) = self.lacking(&mut due) else {
                return;
            };
            if repaired.elapsed() > RECOVERED_MAX {
                let seconds = RECOVERED_MAX.as_secs();
                let text = format!("{seconds} s after the last repair {lacking}");
                self.judges.violate(Violation::Unrecovered(text));
                return;
            }
            sleep(LOOK).await;
        }
    }

    /// What is not as it must be. Replicas of a cluster at work are never all at one revision: they must come to the one that
    /// is `due`, which the first leader that was seen had come to.
    fn lacking(&self, due: &mut Option<Revision>) -> Option<&'static str> {
        let members = self.members_up();
        *due = due.or_else(|| self.written(&members));
        let Some(due) = *due else {
            return Some("nobody leads whose writes are committed");
        };
        let lags =
            |(_, handle): &(NodeId, Handle<State>)| handle.with_state(|it| it.revision) < due;
        let has_laggard = members.iter().any(lags);
        has_laggard.then_some("a replica lacks what the leader had written")
    }

    /// The revision of who leads by its own word, if it has begun, and something of its term is committed.
    fn written(&self, members: &[(NodeId, Handle<State>)]) -> Option<Revision> {
        members.iter().find_map(|(node, handle)| {
            let now = handle.leadership().borrow().clone();
            let commits = || {
                let judges = &self.judges;
                judges.with(|seen| seen.raft.has_committed_in(now.term))
            };
            let (leader, revision) =
                handle.with_state(|state| (state.leadership.replica, state.revision));
            let has_begun = now.is_self && leader == ReplicaId(u64::from(node.0));
            (has_begun && commits()).then_some(revision)
        })
    }
}
