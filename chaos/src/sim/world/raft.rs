//! Observation of a replica's Raft metrics.

use muster_engine::state::State;
use muster_raft_store::{Handle, Leadership};

use crate::sim::record::{Scene, SceneKind};
use crate::sim::runtime::{NodeId, spawn_on};
use crate::sim::world::{LOOK, World};

impl World {
    /// Observes a replica's term, leadership and log: on every change, and each second.
    pub(super) fn start_raft_watch(&self, id: u32, handle: Handle<State>) {
        let checkers = self.checkers.clone();
        let node = NodeId(id);
        spawn_on(node, u64::from(id), async move {
            let mut leadership = handle.leadership();
            loop {
                let now = leadership.borrow_and_update().clone();
                checkers.with(|seen| {
                    // Initially it reports 0.
                    if now.term > 0 {
                        seen.raft.in_term(id, now.term);
                    }
                    let status = handle.status();
                    if now.is_self {
                        seen.raft.leads(u64::from(id), now.term);
                        let last = status.last_log_index;
                        seen.raft.leader_has(u64::from(id), now.term, last);
                    }
                    seen.raft
                        .log_bounds(id, status.purged_index, status.snapshot_index);
                    seen.scene(|| scene_of(node, &now));
                });
                let changed = tokio::time::timeout(LOOK, leadership.changed()).await;
                if now.stopped || matches!(changed, Ok(Err(_))) {
                    return;
                }
            }
        });
    }
}

fn scene_of(node: NodeId, now: &Leadership) -> Scene {
    let leader = now.leader.as_ref().map_or(0, |leader| leader.id);
    let role = match (now.stopped, now.is_self) {
        (true, _) => "stopped".to_owned(),
        (false, true) => "leads".to_owned(),
        (false, false) if leader > 0 => format!("follows replica {leader}"),
        (false, false) => "knows no leader".to_owned(),
    };
    Scene::new(SceneKind::Leader, format_args!("term {}: {role}", now.term)).on(node)
}
