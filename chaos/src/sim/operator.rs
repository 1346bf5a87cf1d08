//! The operator: asks the leader for other replicas until they are there, as `muster cluster` does.

use std::time::Duration;

use muster_engine::state::State;
use muster_raft_store::{Force, MemberChange};
use muster_scheduler::leader::{ChangeError, LeaderInput, ReplicaChange, ReplicasChanged};
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep, timeout};

use crate::error_chain::chain;
use crate::sim::gateway::Gateway;
use crate::sim::judges::Judges;
use crate::sim::network::SimNetwork;
use crate::sim::record::{Scene, SceneKind};
use crate::sim::replicas::Replicas;
use crate::sim::runtime::NodeId;
use crate::sim::transport::Registry;

/// First node number of operators: each errand has one of its own.
pub const OPERATOR_NODES: u32 = 1_000_000;
/// Longest that an errand's step is asked for again.
const PATIENCE: Duration = Duration::from_secs(60);
/// Pause before it is asked for again.
const RETRY_PAUSE: Duration = Duration::from_millis(300);
/// How long one answer is waited for.
const TRY_TIMEOUT: Duration = Duration::from_secs(5);

/// What an operator wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Errand {
    /// A new replica votes.
    Add(u32),
    /// A replica leaves.
    Remove(u32),
    /// A new replica votes in place of another one.
    Replace {
        /// Who leaves.
        old: u32,
        /// Who comes.
        new: u32,
    },
}

/// Somebody who changes the replicas.
#[derive(Clone, Debug)]
pub struct Operator {
    /// Where it asks from.
    pub node: NodeId,
    /// The links.
    pub network: SimNetwork,
    /// Where leaders are asked.
    pub gateway: Gateway,
    /// The replicas that are up.
    pub registry: Registry<State>,
    /// Who writes down what it is told.
    pub judges: Judges,
}

impl Operator {
    /// Does one step after the other; gives up with the first that does not succeed in time.
    pub async fn run(self, errand: Errand) {
        let add = |id| MemberChange::Add(Replicas::<State>::peer(id));
        let steps = match errand {
            Errand::Add(id) => vec![add(id), MemberChange::Promote(id.into())],
            Errand::Remove(id) => vec![MemberChange::Remove(id.into())],
            Errand::Replace { old, new } => {
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
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline {
            match self.ask(change).await {
                Some(Ok(_)) => return true,
                Some(Err(refusal)) => self.judges.scene(|| {
                    let what = format_args!("{change:?} is refused: {}", chain(&refusal));
                    Scene::new(SceneKind::Answer, what)
                }),
                None => {}
            }
            sleep(RETRY_PAUSE).await;
        }
        false
    }

    /// Asks whoever leads; none if there is no answer.
    async fn ask(&self, change: &MemberChange) -> Option<Result<ReplicasChanged, ChangeError>> {
        let mut up = self.registry.up().into_iter();
        let (leader, handle) = up.find(|(_, handle)| handle.leadership().borrow().is_self)?;
        if !self.network.travel(self.node, leader).await {
            return None;
        }
        if change.removes(leader.0.into()) {
            // As a replica's service does: the next leader carries it out.
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
            .tell(leader, LeaderInput::ChangeReplicas(asked))
            .await?;
        let answer = timeout(TRY_TIMEOUT, answer).await.ok()?.ok()?;
        let arrives = self.network.travel(leader, self.node).await;
        arrives.then_some(answer)
    }
}
