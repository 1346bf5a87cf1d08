//! Data that the publisher reads from this replica.

use muster_engine::state::State;
use muster_etcd::Publication;
use muster_etcd::mirror::Contents;
use muster_model::ids::ReplicaId;
use muster_raft_store::{Handle, Leadership};
use tokio::sync::watch;

use crate::etcd::plan::Plan;

/// Live view of a replica.
pub(crate) struct ReplicaSource {
    handle: Handle<State>,
    replica: ReplicaId,
    leadership: watch::Receiver<Leadership>,
    applied: watch::Receiver<u64>,
    /// `None` if the plan is not mirrored.
    plan: Option<Plan>,
}

impl ReplicaSource {
    pub(super) fn new(handle: Handle<State>, replica: ReplicaId, plan: Option<Plan>) -> Self {
        Self {
            leadership: handle.leadership(),
            applied: handle.applied(),
            handle,
            replica,
            plan,
        }
    }
}

impl Publication for ReplicaSource {
    /// The leadership epoch in the log, once the log has this replica as the leader: before that it is still
    /// its predecessor's.
    fn leadership_epoch(&self) -> Option<u64> {
        let now = self.leadership.borrow();
        let in_log = self.handle.with_state(|state| state.leadership);
        let leads = now.is_self && !now.stopped && in_log.replica == self.replica;
        leads.then(|| in_log.epoch.get())
    }

    fn plan(&mut self) -> Contents {
        let Some(plan) = &mut self.plan else {
            // Keys mirrored by an earlier leader are removed.
            return Contents::new();
        };
        plan.contents(&self.handle.fork())
    }

    async fn changed(&mut self) {
        let leads = self.leadership.borrow_and_update().is_self;
        let (leadership, applied) = (&mut self.leadership, &mut self.applied);
        let is_gone = tokio::select! {
            changed = leadership.changed() => changed.is_err(),
            changed = applied.changed(), if leads => changed.is_err(),
        };
        if is_gone {
            // The replica has stopped, and the publisher is about to.
            std::future::pending::<()>().await;
        }
    }
}
