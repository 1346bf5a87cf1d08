//! Simulated operator: requests membership changes from the leader until they are done, as `muster cluster`
//! does.

use std::time::Duration;

use muster_engine::state::State;
use muster_raft_store::{Force, MemberChange};
use muster_scheduler::leader::{ChangeError, LeaderInput, ReplicaChange, ReplicasChanged};
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep, timeout};

use crate::error_chain::chain;
use crate::sim::checkers::Checkers;
use crate::sim::links::gateway::Gateway;
use crate::sim::links::network::SimNetwork;
use crate::sim::links::transport::Registry;
use crate::sim::record::{Scene, SceneKind};
use crate::sim::replicas::Replicas;
use crate::sim::runtime::NodeId;

/// First node number of operators: each errand has its own.
pub const OPERATOR_NODES: u32 = 1_000_000;
/// Maximum time to retry a step of an errand.
const TIMEOUT: Duration = Duration::from_secs(60);
/// Pause between two tries.
const RETRY_PAUSE: Duration = Duration::from_millis(300);
/// Timeout of one answer.
const TRY_TIMEOUT: Duration = Duration::from_secs(5);

/// Membership change wanted by an operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MembershipChange {
    /// Add a new replica as a voter.
    Add(u32),
    /// Remove a replica.
    Remove(u32),
    /// Add a new replica as a voter in place of another one.
    Replace {
        /// The replica to remove.
        old: u32,
        /// The replica to add.
        new: u32,
    },
}

/// An operator who changes the replicas.
#[derive(Clone, Debug)]
pub struct Operator {
    /// Its node.
    pub node: NodeId,
    /// The network.
    pub network: SimNetwork,
    /// Access to leaders.
    pub gateway: Gateway,
    /// The running replicas.
    pub registry: Registry<State>,
    /// Checkers that record its answers.
    pub checkers: Checkers,
}

impl Operator {
    /// Executes one step after the other; gives up at the first that does not succeed in time.
    pub async fn run(self, errand: MembershipChange) {
        let add = |id| MemberChange::Add(Replicas::<State>::peer(id));
        let steps = match errand {
            MembershipChange::Add(id) => vec![add(id), MemberChange::Promote(id.into())],
            MembershipChange::Remove(id) => vec![MemberChange::Remove(id.into())],
            MembershipChange::Replace { old, new } => {
                let (old, id) = (old.into(), new.into());
                vec![add(new), MemberChange::Replace { old, new: id }]
            }
        };
        for step in steps {
            if !self.is_done(&step).await {
                return;
            }
        }
    }

    async fn is_done(&self, change: &MemberChange) -> bool {
        let deadline = Instant::now() + TIMEOUT;
        while Instant::now() < deadline {
            match self.ask(change).await {
                Some(Ok(_)) => return true,
                Some(Err(refusal)) => self.checkers.scene(|| {
                    let what = format_args!("{change:?} is refused: {}", chain(&refusal));
                    Scene::new(SceneKind::Answer, what)
                }),
                None => {}
            }
            sleep(RETRY_PAUSE).await;
        }
        false
    }

    /// Sends a request to the leader; `None` without an answer.
    async fn ask(&self, change: &MemberChange) -> Option<Result<ReplicasChanged, ChangeError>> {
        let mut up = self.registry.up().into_iter();
        let (leader, handle) = up.find(|(_, handle)| handle.leadership().borrow().is_self)?;
        if !self.network.travel(self.node, leader).await {
            return None;
        }
        if change.removes(leader.0.into()) {
            // As in a replica's service: the next leader executes it.
            let successor = handle.successor()?;
            drop(timeout(TRY_TIMEOUT, handle.transfer_leader(successor)).await);
            return None;
        }
        let (reply, answer) = oneshot::channel();
        let asked = ReplicaChange {
            change: change.clone(),
            force: Force(false),
            reply,
        };
        self.gateway
            .send(leader, LeaderInput::ChangeReplicas(asked))
            .await?;
        let answer = timeout(TRY_TIMEOUT, answer).await.ok()?.ok()?;
        let arrives = self.network.travel(leader, self.node).await;
        arrives.then_some(answer)
    }
}
