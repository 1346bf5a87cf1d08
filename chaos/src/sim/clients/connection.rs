//! Connection of a user to the cluster: the SDK's own calls over the simulated network.

use std::fmt::Debug;
use std::future::{Future, pending};
use std::sync::Arc;
use std::time::Duration;

use muster_client::calls::{Calls, Failure, Operation};
use muster_client::{ClientConfig, ClientError};
use muster_engine::state::{Answer, State};
use muster_harness::fingerprinted;
use muster_model::command::Command;
use muster_proto::status::{ErrorReport, LEADER_KEY, status_of};
use muster_raft_store::{Handle, Peer};
use muster_scheduler::propose_status;
use tonic::Status;

use crate::sim::checkers::Checkers;
use crate::sim::faults::coverage::Situation;
use crate::sim::links::network::SimNetwork;
use crate::sim::links::transport::Registry;
use crate::sim::runtime::{NodeId, spawn_on};

/// Timeout for one replica's answer.
pub(super) const TRY_TIMEOUT: Duration = Duration::from_secs(2);
/// Retry behaviour of a command.
const COMMAND: Operation = Operation {
    name: "execute the command",
    deadline: Duration::from_secs(30),
};
/// Retry behaviour of a query for the replicas.
const DISCOVERY: Operation = Operation {
    name: "discover the replicas",
    deadline: Duration::from_secs(10),
};

/// The SDK of one user.
#[derive(Clone, Debug)]
pub struct Connection {
    node: NodeId,
    network: SimNetwork,
    registry: Registry<State>,
    checkers: Checkers,
    calls: Arc<Calls>,
}

/// Answer of a replica, with the membership known to it.
struct Response<Word> {
    word: Word,
    membership: Option<u64>,
}

impl Connection {
    /// Connection of a user who initially knows these replicas. Its waits are drawn from `seed`.
    #[must_use]
    pub fn new(
        node: NodeId,
        network: SimNetwork,
        registry: Registry<State>,
        checkers: Checkers,
        known: impl IntoIterator<Item = Peer>,
        seed: u64,
    ) -> Self {
        let known = known.into_iter().map(|peer| peer.address);
        let config = ClientConfig {
            per_try_deadline: TRY_TIMEOUT,
            ..ClientConfig::new(known)
        };
        Self {
            node,
            network,
            registry,
            checkers,
            calls: Arc::new(Calls::seeded(config, seed)),
        }
    }

    /// Executes a command with retries, as the SDK does.
    pub(super) async fn run(&self, command: &Command) -> Result<Answer, ClientError> {
        let command = fingerprinted(command.clone());
        let serve = |handle: Handle<State>| {
            let command = command.clone();
            async move { propose(&handle, command).await }
        };
        let answer = self.call(COMMAND, serve).await?;
        if self.calls.roster().is_refresh_due() {
            let line = self.clone();
            // No random draws there.
            spawn_on(self.node, 0, async move { line.discover().await });
        }
        Ok(answer)
    }

    /// Discovers the replicas and the leader from any known replica.
    pub(super) async fn discover(&self) {
        let status = |handle: Handle<State>| async move { Ok(handle.status()) };
        let Ok(status) = self.call(DISCOVERY, status).await else {
            // The known replicas remain, and are queried again.
            return;
        };
        let all = status.voters.iter().chain(&status.learners);
        let leader = status.leader.as_ref().map(|peer| &*peer.address);
        let known = self.calls.roster().addresses();
        let is_new = |peer: &Peer| !known.contains(&peer.address);
        if all.clone().any(is_new) {
            self.reached(Situation::ReplicaDiscovered);
        }
        self.calls
            .roster()
            .learn(all.map(|peer| &*peer.address), leader);
    }

    /// One call; `serve` is its execution on a replica.
    async fn call<Word, Serve, Serving>(
        &self,
        operation: Operation,
        serve: Serve,
    ) -> Result<Word, ClientError>
    where
        Word: Debug + Send + 'static,
        Serve: Fn(Handle<State>) -> Serving,
        Serving: Future<Output = Result<Word, Status>> + Send + 'static,
    {
        let serve = &serve;
        let carry = |address: String| async move { self.try_at(&address, serve).await };
        let broken = |_: &str| self.reached(Situation::TryUnanswered);
        let (word, _) = self.calls.run(operation, carry, broken).await?;
        Ok(word)
    }

    async fn try_at<Word, Serve, Serving>(
        &self,
        address: &str,
        serve: &Serve,
    ) -> Result<Word, Failure>
    where
        Word: Send + 'static,
        Serve: Fn(Handle<State>) -> Serving,
        Serving: Future<Output = Result<Word, Status>> + Send + 'static,
    {
        let Some((replica, handle)) = self.registry.find(address) else {
            return Err(Failure::Unreachable("connection refused".to_owned()));
        };
        self.calls.roster().connected();
        let arrives = || {
            let (serving, handle) = (serve(handle.clone()), handle.clone());
            async move {
                let word = serving.await;
                let membership = handle.membership_index();
                Response { word, membership }
            }
        };
        let response = self.network.request(self.node, replica, arrives).await;
        // Lost messages cause no error.
        let Some(Response { word, membership }) = response else {
            return pending().await;
        };
        membership
            .into_iter()
            .for_each(|index| self.calls.roster().record_membership(index));
        word.map_err(|status| {
            if ErrorReport::of(&status).metadata.contains_key(LEADER_KEY) {
                self.reached(Situation::CallRedirected);
            }
            Failure::Answered(status)
        })
    }

    fn reached(&self, situation: Situation) {
        self.checkers.with(|seen| seen.coverage.reached(situation));
    }
}

/// The answer, or the error status of a replica.
async fn propose(handle: &Handle<State>, command: Command) -> Result<Answer, Status> {
    let applied = handle.propose(vec![command]).await;
    let applied = applied.map_err(propose_status)?.into_iter().next();
    let applied = applied.ok_or_else(|| Status::internal("nothing was applied"))?;
    applied.result.map_err(|rejection| status_of(&rejection))
}
