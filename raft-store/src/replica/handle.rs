//! Handle of a replica: the crate's public interface.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use futures::stream::BoxStream;
use muster_proto::raft::v1::{PeerRequest, PeerResponse};
use muster_tls::Dialer;
use tokio::sync::{mpsc, oneshot, watch};

use crate::apply::batcher::Proposal;
use crate::apply::shared::SharedState;
use crate::apply::state_machine::StateMachine;
use crate::error::{MembershipError, OpenError, ProposeError, ReadError};
use crate::member::leadership::Leadership;
use crate::member::member_change::{ChangePlan, Force, MemberChange};
use crate::member::peer::Peer;
use crate::recovery::backup::CapturedState;
use crate::recovery::state_history::{StateHistory, StateHistoryError};
use crate::replica::config::{BatchLimits, Config};
use crate::replica::engine::Engine;
use crate::replica::environment::Environment;
use crate::replica::log_clock::LogClock;
use crate::replica::status::Status;
use crate::replica::{open, telemetry};
use crate::sim::{Observer, Runtime};

/// Handle of one replica of `M`; clones share the replica. It runs until [`Handle::shutdown`] or until the
/// last clone is dropped.
pub struct Handle<M: StateMachine> {
    inner: Arc<Inner<M>>,
}

pub(crate) struct Inner<M: StateMachine> {
    pub(crate) engine: Arc<dyn Engine>,
    pub(crate) shared: Arc<SharedState<M>>,
    pub(crate) history: StateHistory<M>,
    pub(crate) leadership: watch::Receiver<Leadership>,
    pub(crate) clock: LogClock,
    pub(crate) proposals: mpsc::Sender<Proposal<M>>,
    pub(crate) limits: BatchLimits,
}

impl<M: StateMachine> Clone for Handle<M> {
    fn clone(&self) -> Self {
        Self {
            inner: Arc::clone(&self.inner),
        }
    }
}

impl<M: StateMachine> fmt::Debug for Handle<M> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Handle").finish_non_exhaustive()
    }
}

impl<M: StateMachine> Handle<M> {
    /// Opens the replica in `config.data_dir`, with RocksDB, files and gRPC, on the current tokio
    /// runtime. Mount [`raft_service`](crate::raft_service) so that its peers reach it.
    pub async fn open(config: Config) -> Result<Self, OpenError> {
        Self::open_dialing(config, Dialer::default()).await
    }

    /// Opens a replica as [`Handle::open`] does; the dialer opens the connections to peers, for example
    /// encrypted ones.
    pub async fn open_dialing(config: Config, dialer: Dialer) -> Result<Self, OpenError> {
        open::open_in_directory(config, dialer).await
    }

    /// Opens a replica on the given runtime and environment; `config.data_dir` is not used.
    pub async fn open_on<R: Runtime>(
        config: Config,
        environment: Environment,
    ) -> Result<Self, OpenError> {
        open::open_on::<M, R>(config, environment, None).await
    }

    /// Opens a replica as [`Handle::open_on`] does; `observer` receives every entry that is applied,
    /// including those replayed at startup.
    ///
    /// # Errors
    /// Those of [`Handle::open_on`].
    pub async fn open_observed<R: Runtime>(
        config: Config,
        environment: Environment,
        observer: Arc<dyn Observer<M>>,
    ) -> Result<Self, OpenError> {
        open::open_on::<M, R>(config, environment, Some(observer)).await
    }

    pub(crate) fn from_inner(inner: Inner<M>) -> Self {
        Self {
            inner: Arc::new(inner),
        }
    }

    pub(crate) fn engine(&self) -> Arc<dyn Engine> {
        Arc::clone(&self.inner.engine)
    }

    /// Proposes commands; they are applied together, in this order, in one log entry. Returns their
    /// outcomes once a majority holds the entry on disk and this replica has applied it.
    pub async fn propose(
        &self,
        commands: Vec<M::Command>,
    ) -> Result<Vec<M::Outcome>, ProposeError> {
        if commands.is_empty() {
            return Ok(Vec::new());
        }
        self.check_leader()?;
        let (encoded, bytes) = self.encode(&commands)?;
        let (reply, outcome) = oneshot::channel();
        let proposal = Proposal {
            commands,
            encoded,
            bytes,
            reply,
        };
        self.inner
            .proposals
            .try_send(proposal)
            .map_err(|error| match error {
                mpsc::error::TrySendError::Full(_) => {
                    telemetry::proposal_refused("overloaded");
                    ProposeError::Overloaded {
                        limit: self.inner.limits.queued_proposals_max,
                    }
                }
                mpsc::error::TrySendError::Closed(_) => ProposeError::Stopped,
            })?;
        outcome.await.unwrap_or(Err(ProposeError::Unknown))
    }

    fn check_leader(&self) -> Result<(), ProposeError> {
        let leadership = self.inner.leadership.borrow();
        if leadership.stopped {
            return Err(ProposeError::Stopped);
        }
        if !leadership.is_self {
            telemetry::proposal_refused("not_leader");
            return Err(ProposeError::NotLeader {
                leader: leadership.leader.clone(),
            });
        }
        Ok(())
    }

    fn encode(&self, commands: &[M::Command]) -> Result<(Vec<Bytes>, usize), ProposeError> {
        let limits = &self.inner.limits;
        if commands.len() > limits.entry_commands_max {
            return Err(ProposeError::TooMany {
                commands: commands.len(),
                limit: limits.entry_commands_max,
            });
        }
        let too_large = |bytes, limit, name| Err(ProposeError::TooLarge { bytes, limit, name });
        let mut encoded = Vec::with_capacity(commands.len());
        let mut total = 0;
        for command in commands {
            let mut bytes = Vec::new();
            M::encode_command(command, &mut bytes);
            if bytes.len() > limits.command_bytes_max {
                return too_large(bytes.len(), limits.command_bytes_max, "command_bytes_max");
            }
            total += bytes.len();
            encoded.push(Bytes::from(bytes));
        }
        if total > limits.proposal_bytes_max {
            return too_large(total, limits.proposal_bytes_max, "proposal_bytes_max");
        }
        Ok((encoded, total))
    }

    /// Waits until a read of this replica's state is linearizable: the state then holds every
    /// command that was acknowledged before the call. Works on the leader and on followers.
    pub async fn read_linearizable(&self) -> Result<(), ReadError> {
        self.inner.engine.read_linearizable().await
    }

    /// Reads the applied state. Keep it short: apply is blocked meanwhile.
    pub fn with_state<T>(&self, read: impl FnOnce(&M) -> T) -> T {
        read(&self.inner.shared.read().state)
    }

    /// A cheap clone of the applied state.
    pub fn fork(&self) -> M {
        self.inner.shared.read().state.clone()
    }

    /// Returns the state right after the command that produced `revision`, rebuilt from the snapshots and
    /// the log that this replica keeps. Reads the disk and replays a part of the log, which may take
    /// seconds: call it where blocking is allowed. It is aborted once `may_continue`, which is called before every
    /// entry, returns false.
    ///
    /// # Errors
    /// [`StateHistoryError`] if this replica cannot rebuild the state.
    pub fn state_at(
        &self,
        revision: u64,
        may_continue: &dyn Fn() -> bool,
    ) -> Result<M, StateHistoryError> {
        self.inner.history.state_at(revision, may_continue)
    }

    /// A cheap clone of the applied state, with its log position.
    pub fn capture(&self) -> CapturedState<M> {
        CapturedState(self.inner.shared.read().clone())
    }

    /// The revision of the applied state, after each applied entry.
    pub fn applied(&self) -> watch::Receiver<u64> {
        self.inner.shared.watch()
    }

    /// Time stamp that an entry would get now, in milliseconds since 1970: never earlier than the newest
    /// time in the state, and always advancing, whatever the wall clock does.
    pub fn now_ms(&self) -> u64 {
        let floor_ms = self.inner.shared.read().state.time_ms();
        self.inner.clock.read(floor_ms)
    }

    /// Leadership as this replica knows it, after each change.
    pub fn leadership(&self) -> watch::Receiver<Leadership> {
        self.inner.leadership.clone()
    }

    /// Status of the replica and, on the leader, of the other members.
    pub fn status(&self) -> Status {
        let mut status = self.inner.engine.status();
        if !status.is_leader && self.inner.leadership.borrow().leader.is_none() {
            // openraft keeps following the last leader until another is elected.
            status.leader = None;
        }
        status
    }

    /// Log index of the membership in effect on this replica; it grows with every change. Cheaper than
    /// [`Self::status`].
    pub fn membership_index(&self) -> Option<u64> {
        self.inner.engine.membership_index()
    }

    /// Forms a new group of these members, once, from one of them. All must be running: each is asked for
    /// its incarnation, and whether it belongs to a group already, which rejects the call.
    pub async fn initialize(&self, members: Vec<Peer>) -> Result<(), MembershipError> {
        self.inner.engine.initialize(members).await
    }

    /// Adds a member that receives the log but does not vote.
    pub async fn add_learner(&self, peer: Peer) -> Result<(), MembershipError> {
        self.inner.engine.add_learner(peer).await
    }

    /// Makes exactly these members voters; each must be a voter or learner already. Voters left out leave
    /// the group.
    pub async fn change_members(&self, voters: BTreeSet<u64>) -> Result<(), MembershipError> {
        self.inner.engine.change_members(voters).await
    }

    /// Removes a voter or learner from the group; any other id is rejected. The id should not be reused.
    pub async fn remove_member(&self, id: u64) -> Result<(), MembershipError> {
        self.inner.engine.remove_member(id).await
    }

    /// Plans a change of the members; on the leader only.
    ///
    /// # Errors
    /// The reason of rejection.
    pub fn plan_change(
        &self,
        change: &MemberChange,
        force: Force,
    ) -> Result<ChangePlan, MembershipError> {
        self.inner.engine.plan_change(change, force)
    }

    /// Finishes a change of voters that was half committed when its leader was lost; does nothing if there
    /// is none.
    pub async fn finish_change(&self) -> Result<(), MembershipError> {
        self.inner.engine.finish_change().await
    }

    /// Transfers leadership to a voter; returns once it leads. Rejected, with this replica remaining
    /// leader, unless the voter answered within
    /// [`SUCCESSOR_HEARTBEATS_MAX`](crate::SUCCESSOR_HEARTBEATS_MAX) heartbeats and is at most
    /// [`SUCCESSOR_LAG_ENTRIES_MAX`](crate::SUCCESSOR_LAG_ENTRIES_MAX) entries behind. If a transfer fails
    /// after it has begun, the other replicas elect a leader, as after a leader's crash.
    pub async fn transfer_leader(&self, to: u64) -> Result<(), MembershipError> {
        self.inner.engine.transfer_leader(to).await
    }

    /// The best voter to transfer leadership to; none if none is reachable and up to date.
    pub fn successor(&self) -> Option<u64> {
        self.inner.engine.successor()
    }

    /// Starts a snapshot of the applied state. [`Status::snapshot_index`] shows when it is complete.
    pub async fn trigger_snapshot(&self) -> Result<(), MembershipError> {
        self.inner.engine.trigger_snapshot().await
    }

    /// Stops the replica and waits until it has stopped. A leader should transfer leadership first.
    pub async fn shutdown(&self) {
        self.inner.engine.shutdown().await;
    }

    /// Answers a message of another replica, for transports other than gRPC.
    pub async fn serve(&self, request: PeerRequest) -> PeerResponse {
        self.inner.engine.serve(request).await
    }

    /// Answers a stream of appends, for transports other than gRPC.
    pub fn serve_stream(
        &self,
        requests: BoxStream<'static, PeerRequest>,
    ) -> BoxStream<'static, PeerResponse> {
        self.inner.engine.serve_stream(requests)
    }
}
