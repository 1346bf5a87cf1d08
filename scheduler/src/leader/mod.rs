//! Leader loop: one async function that turns heartbeats, registrations, time and applied changes into
//! batches of commands, and their outcomes into desired states for workers.
//!
//! It runs on every replica and acts only while that one leads. It spawns nothing and reads time only
//! through [`Clock`] and tokio's timers, so the simulation runs the same code on a paused clock.
//!
//! # A leadership
//!
//! 1. `LeadershipStarted` is proposed; its revision is the *epoch*, the fencing token of everything after.
//! 2. A majority of replicas report their replicated heartbeat times (below), within [`SHADOW_FETCH_MS_MAX`].
//! 3. Steps, until leadership is lost: take the input, ask the reactor and the planner, propose all
//!    of it as one batch, await the outcomes, send every host whose desired state changed its new one.
//!    A lost message does no harm: a heartbeat that shows an outdated desired state repairs it.
//! 4. Every stream is ended with the new leader's address, so that workers move at once.
//!
//! # Leases are acknowledged by a majority
//!
//! A worker kills its tasks some time after the *send* of its last *acknowledged* heartbeat (see
//! `muster_model::timings`); a leader may reassign a task a longer time after the last
//! heartbeat that *any leader acknowledged*. A new leader was not there when the old one acknowledged. It
//! could
//! wait a whole lease from its election for every host (Nomad does so: 300 s); instead:
//!
//! * Each [`SHADOW_ROUND_MS`] (at once after a pause) the leader sends all replicas the age of the last
//!   heartbeat
//!   of each host that sent one since. A replica stores the latest time of each host,
//!   on its own clock, from receipt: an upper bound of the heartbeat's time.
//! * A heartbeat is acknowledged only once a majority, the leader included, has stored it; while the voters
//!   change, a majority of every set of voters. Before a change is proposed, a majority of the future voters
//!   stores everything that the leader knows, and from then on all that it acknowledges (`term::membership`).
//! * A replica refuses pushes of a leader whose term or epoch is older than one it knows of, by a push,
//!   by a new leader's request, or by its vote, which is on disk; a leader acknowledges only
//!   while it leads in the term in which it pushed.
//!
//! So no acknowledgement of an old leader can complete after a new one has queried a majority, and of
//! those completed before, the queried majority has at least one replica that stored the heartbeat: the
//! latest time among its answers bounds every acknowledgement. A restarted replica has lost its memory,
//! reports
//! since when it remembers, and bounds by that. If no majority answers in time, leases start now.

mod batch;
mod changes;
mod clock;
mod directory;
pub(crate) mod feature_level;
mod heartbeat_store;
mod inherited_heartbeats;
mod peer_links;
mod planning;
mod progress;
mod replication_rounds;
mod session;
mod sessions;
mod start;
mod telemetry;
mod term;
mod voter_sets;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use muster_model::ids::ReplicaId;
use muster_model::timings::Timings;
use muster_planner::Budget;
use muster_raft_store::{Handle, Leadership, Peer};
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

pub use batch::{PROPOSAL_COMMANDS_MAX, PROPOSAL_TASKS_MAX};
pub use clock::{Clock, MONOTONIC_START_MS, SystemClock};
pub use directory::WorkerDirectory;
pub use heartbeat_store::{Fence, HeartbeatPush, HeartbeatReport, HeartbeatStore, Superseded};
pub use peer_links::{PeerError, PeerLinks};
pub use planning::PLAN_REST_MS_MAX;
pub use replication_rounds::{SHADOW_PUSH_MS_MAX, SHADOW_ROUND_MS};
pub use session::{
    ChangeError, CloseReason, LEADER_INPUTS_MAX, LeaderInput, ReplicaChange, ReplicasChanged,
    SessionId, TO_WORKER_MAX, ToWorker,
};
pub use start::SHADOW_FETCH_MS_MAX;
pub use term::CHANGE_MS_MAX;

use muster_engine::state::State;
use term::Term;

/// A replica's store of heartbeat times, shared by its peer service and its leader loop.
#[derive(Debug)]
pub struct SharedHeartbeatStore(Mutex<HeartbeatStore>);

impl SharedHeartbeatStore {
    /// Wraps a store.
    #[must_use]
    pub const fn new(store: HeartbeatStore) -> Self {
        Self(Mutex::new(store))
    }

    /// Locks the store; never held across an await.
    pub fn lock(&self) -> MutexGuard<'_, HeartbeatStore> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Settings of the leader loop.
#[derive(Clone, Copy, Debug)]
pub struct LeaderSettings {
    /// Id of this replica.
    pub replica: ReplicaId,
    /// Periods of the heartbeat protocol.
    pub timings: Timings,
    /// Limits of one planning round.
    pub budget: Budget,
    /// Heartbeats per second above which workers are asked to send fewer.
    pub heartbeats_per_second_max: u64,
}

/// The leader loop and its dependencies.
pub struct LeaderLoop<P, C> {
    /// Replication.
    pub handle: Handle<State>,
    /// Links to the other replicas.
    pub peers: P,
    /// Time source.
    pub clock: C,
    /// Heartbeat times stored on this replica.
    pub heartbeats: Arc<SharedHeartbeatStore>,
    /// Lookup of workers' streams for the services.
    pub directory: Arc<WorkerDirectory>,
    /// Input from workers' streams; at most [`LEADER_INPUTS_MAX`] should be queued.
    pub inputs: mpsc::Receiver<LeaderInput>,
    /// Settings.
    pub settings: LeaderSettings,
}

impl<P: PeerLinks, C: Clock> LeaderLoop<P, C> {
    /// Leads whenever this replica is the leader, until `stop`, until the replica has stopped, or until
    /// every sender of `inputs` is gone.
    pub async fn run(mut self, stop: CancellationToken) {
        let mut leadership = self.handle.leadership();
        loop {
            let now = leadership.borrow_and_update().clone();
            if now.stopped || stop.is_cancelled() || self.inputs.is_closed() {
                break;
            }
            telemetry::leading(now.is_self);
            if now.is_self {
                self.lead(now.term, &mut leadership, &stop).await;
            } else if self.follow(&mut leadership, &stop).await.is_none() {
                break;
            }
        }
        telemetry::leading(false);
    }

    /// Redirects workers until the leadership changes; `None` if there is no more work.
    async fn follow(
        &mut self,
        leadership: &mut watch::Receiver<Leadership>,
        stop: &CancellationToken,
    ) -> Option<()> {
        loop {
            tokio::select! {
                biased;
                () = stop.cancelled() => return None,
                changed = leadership.changed() => return changed.ok(),
                input = self.inputs.recv() => redirect(input?, leadership.borrow().leader.clone()),
            }
        }
    }

    async fn lead(
        &mut self,
        term: u64,
        leadership: &mut watch::Receiver<Leadership>,
        stop: &CancellationToken,
    ) {
        let beginning = tokio::select! {
            biased;
            () = stop.cancelled() => return,
            beginning = start::begin(self, term) => beginning,
        };
        match beginning {
            Ok(beginning) => {
                let term = Term::new(self, beginning, leadership.clone());
                term.run(stop).await;
            }
            Err(error) => {
                tracing::warn!(%error, term, "cannot begin a leadership");
                start::rest().await;
            }
        }
    }
}

fn redirect(input: LeaderInput, leader: Option<Peer>) {
    if let LeaderInput::Hello { to_worker, .. } = input {
        // A worker that no longer receives needs no answer.
        drop(to_worker.try_send(ToWorker::Close(CloseReason::NotLeader { leader })));
    }
}
