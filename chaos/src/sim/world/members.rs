//! Membership of a world's group, and its changes.

use muster_engine::state::State;
use muster_raft_store::{Handle, Status};
use tokio::sync::oneshot;

use crate::sim::operator::{MembershipChange, OPERATOR_NODES, Operator};
use crate::sim::random_streams::{StreamOwner, seed_of};
use crate::sim::runtime::{NodeId, spawn_on};
use crate::sim::world::World;

impl World {
    /// Running replicas that are members according to the leader; without a leader, according to each
    /// replica itself.
    #[must_use]
    pub fn members_up(&self) -> Vec<(NodeId, Handle<State>)> {
        let mut up = self.replicas.registry.up();
        let mut leaders = up.iter().map(|(_, handle)| handle);
        let leader = leaders.find(|handle| handle.leadership().borrow().is_self);
        let word = leader.map(Handle::status);
        up.retain(|(node, handle)| {
            let own = || handle.status().member(node.0.into()).is_some();
            let by_leader = |status: &Status| status.member(node.0.into()).is_some();
            word.as_ref().map_or_else(own, by_leader)
        });
        up
    }

    /// Sends an operator to change the membership; completes when it is done or has given up.
    #[must_use]
    pub fn send_operator(&self, number: u32, errand: MembershipChange) -> oneshot::Receiver<()> {
        let operator = Operator {
            node: NodeId(OPERATOR_NODES + number),
            network: self.network.clone(),
            gateway: self.gateway.clone(),
            registry: self.replicas.registry.clone(),
            checkers: self.checkers.clone(),
        };
        let (done, finished) = oneshot::channel();
        let own = seed_of(self.options.seed, StreamOwner::Errand, number, 0);
        spawn_on(operator.node, own, async move {
            operator.run(errand).await;
            // The world may have given up meanwhile.
            let _unheard = done.send(());
        });
        finished
    }
}
