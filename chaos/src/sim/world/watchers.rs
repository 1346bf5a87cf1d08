//! Watchers of a world, and the watch hubs of its replicas.

use std::sync::Arc;

use muster_engine::state::State;
use muster_raft_store::Handle;
use muster_scheduler::watch_hub::WatchHub;
use tokio_util::sync::CancellationToken;

use crate::sim::mutant::Mutant;
use crate::sim::random_streams::{StreamOwner, draws, seed_of};
use crate::sim::runtime::{NodeId, spawn_on};
use crate::sim::watchers::{QUEUED_REVISIONS, SimWatcher, WATCHES_MAX};
use crate::sim::world::World;

/// Number of watchers of a world.
const WATCHERS: u32 = 2;

impl World {
    /// Starts the watch hub of a replica.
    pub(super) fn start_hub(&self, id: u32, handle: Handle<State>) {
        let revision = handle.with_state(|state| state.revision);
        let hub = Arc::new(WatchHub::new(revision, WATCHES_MAX, QUEUED_REVISIONS));
        let node = NodeId(id);
        self.hubs.listen(node, Arc::clone(&hub), handle.clone());
        let seed = seed_of(
            self.options.seed,
            StreamOwner::Watch,
            id,
            self.replicas.life(id),
        );
        spawn_on(node, seed, async move {
            let applied = handle.applied();
            hub.run(applied, || handle.fork(), CancellationToken::new())
                .await;
        });
    }

    /// Starts all watchers.
    pub(super) fn start_watchers(&self) {
        for number in 0..WATCHERS {
            self.checkers.with(|seen| seen.watching.began(number));
            let watcher = SimWatcher {
                number,
                network: self.network.clone(),
                hubs: self.hubs.clone(),
                checkers: self.checkers.clone(),
                random: draws(self.options.seed, StreamOwner::Watcher, number, 0),
                skips: self.options.mutant == Some(Mutant::SkipsOnResume),
            };
            let seed = seed_of(self.options.seed, StreamOwner::Watcher, number, 1);
            spawn_on(watcher.node(), seed, watcher.run());
        }
    }
}
