//! Check soon after the last repair: there is a leader, its writes are committed, and every replica has
//! them. No calls are made for it, since they would change later draws.

use std::time::Duration;

use muster_engine::state::State;
use muster_model::ids::{ReplicaId, Revision};
use muster_raft_store::Handle;
use tokio::time::{Instant, sleep};

use crate::sim::results::report::Violation;
use crate::sim::runtime::NodeId;
use crate::sim::world::World;

/// Maximum recovery time, in simulated time from when all replicas are up and connected. An election takes
/// a second, a snapshot some more, and operators may still be changing the replicas: four times what chaos
/// runs allow real processes.
const RECOVERED_MAX: Duration = Duration::from_secs(120);
/// Polling interval.
const LOOK: Duration = Duration::from_millis(500);

impl World {
    /// Waits until the replicas have recovered, up to the maximum time.
    pub(super) async fn recover(&self, repaired: Instant) {
        let mut due = None;
        while self.goes_on() {
            let Some(lacking) = self.lacking(&mut due) else {
                return;
            };
            if repaired.elapsed() > RECOVERED_MAX {
                let seconds = RECOVERED_MAX.as_secs();
                let text = format!("{seconds} s after the last repair: {lacking}");
                self.checkers.violate(Violation::Unrecovered(text));
                return;
            }
            sleep(LOOK).await;
        }
    }

    /// The first failed condition. Replicas of a busy cluster are never all at one revision: they must
    /// reach the revision `due`, where the first observed leader was.
    fn lacking(&self, due: &mut Option<Revision>) -> Option<&'static str> {
        let members = self.members_up();
        *due = due.or_else(|| self.written(&members));
        let Some(due) = *due else {
            return Some("there is no leader with a committed entry of its term");
        };
        let lags =
            |(_, handle): &(NodeId, Handle<State>)| handle.with_state(|it| it.revision) < due;
        let has_laggard = members.iter().any(lags);
        has_laggard.then_some("a replica lacks entries of the leader")
    }

    /// Revision of the replica that considers itself leader, if its term has begun and an entry of it is
    /// committed.
    fn written(&self, members: &[(NodeId, Handle<State>)]) -> Option<Revision> {
        members.iter().find_map(|(node, handle)| {
            let now = handle.leadership().borrow().clone();
            let commits = || {
                let checkers = &self.checkers;
                checkers.with(|seen| seen.raft.has_committed_in(now.term))
            };
            let (leader, revision) =
                handle.with_state(|state| (state.leadership.replica, state.revision));
            let has_begun = now.is_self && leader == ReplicaId(u64::from(node.0));
            (has_begun && commits()).then_some(revision)
        })
    }
}
