//! Watcher of openraft's metrics: publishes leadership, feeds our metrics, triggers snapshots by size,
//! truncates the log at the start of the kept history, and stops the replica when its state has diverged.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use openraft::async_runtime::Select2;
use openraft::async_runtime::watch::WatchReceiver as _;
use openraft::metrics::RaftServerMetrics;
use openraft::{Instant as _, Raft, RaftMetrics, ServerState};
use tokio::sync::watch;

use crate::apply::applier::Applier;
use crate::apply::state_machine::{DecodeError, StateMachine};
use crate::member::follower_metrics::ReportedFollowers;
use crate::member::leadership::Leadership;
use crate::network::DataAcceptance;
use crate::replica::config::{SnapshotPolicy, Timings};
use crate::replica::engine::{followers, leader_of};
use crate::replica::telemetry;
use crate::sim::Runtime;
use crate::storage::snapshot::SnapshotStore;
use crate::types::Types;

/// Dependencies of a watcher.
pub(crate) struct WatcherParts<M: StateMachine, R: Runtime> {
    pub(crate) raft: Raft<Types<M, R>, Applier<M, R>>,
    pub(crate) leadership: watch::Sender<Leadership>,
    pub(crate) acceptance: DataAcceptance,
    pub(crate) divergence: watch::Receiver<Option<String>>,
    pub(crate) bytes_since_snapshot: Arc<AtomicU64>,
    pub(crate) timings: Timings,
    pub(crate) snapshots: Arc<SnapshotStore>,
    pub(crate) policy: SnapshotPolicy,
}

/// The watching task of one replica.
pub(crate) struct Watcher<M: StateMachine, R: Runtime> {
    parts: WatcherParts<M, R>,
    /// Origin of the clock of the follower metrics.
    started_at: R::Instant,
    /// Number of leader messages when the last one was noticed, and its time.
    last_leader_message: (u64, R::Instant),
    /// Last time at which a leader was known.
    leader_known_at: R::Instant,
    followers: ReportedFollowers,
}

impl<M: StateMachine, R: Runtime> Watcher<M, R> {
    pub(crate) fn new(parts: WatcherParts<M, R>) -> Self {
        let began = R::Instant::now();
        Self {
            last_leader_message: (parts.acceptance.leader_message_count(), began),
            leader_known_at: began,
            parts,
            started_at: began,
            followers: ReportedFollowers::default(),
        }
    }

    /// Runs until the replica has stopped.
    pub(crate) async fn run(mut self) {
        let mut metrics = self.parts.raft.metrics();
        let mut roles = self.parts.raft.server_metrics();
        let pause = Duration::from_millis(self.parts.timings.heartbeat_ms);
        let mut truncated_for = None;
        loop {
            let current = metrics.borrow_watched().clone();
            self.publish(&current);
            if current.running_state.is_err() {
                return;
            }
            let is_removed = self.parts.acceptance.removal().is_some();
            if is_removed || self.parts.divergence.borrow().is_some() {
                self.stop().await;
            }
            self.snapshot_by_size().await;
            let snapshot = current.snapshot.map(|id| id.index);
            if self.parts.policy.keeps_history() && snapshot > truncated_for {
                truncated_for = snapshot;
                self.truncate_log().await;
            }
            // A lost lease shows only as silence, so check again even without changes.
            let next_check = R::sleep(pause);
            let changed = if self.is_settled(&current, &roles.borrow_watched()) {
                // Every entry changes the log's metrics several times, none of which matters here.
                R::select2(roles.changed(), next_check).await
            } else {
                R::select2(metrics.changed(), next_check).await
            };
            if let Select2::First(Err(_)) = changed {
                return self.publish_stopped(&current);
            }
        }
    }

    /// Whether leadership can change only through a change of roles: the metrics describe the current
    /// roles, and a leader has answers from its majority.
    fn is_settled(
        &self,
        metrics: &RaftMetrics<Types<M, R>>,
        roles: &RaftServerMetrics<Types<M, R>>,
    ) -> bool {
        let is_current = metrics.state == roles.state
            && metrics.vote == roles.vote
            && metrics.current_leader == roles.current_leader;
        is_current && (metrics.state != ServerState::Leader || self.has_quorum(metrics))
    }

    fn publish(&mut self, metrics: &RaftMetrics<Types<M, R>>) {
        let stopped = metrics.running_state.is_err();
        if let Err(fatal) = &metrics.running_state {
            tracing::error!(%fatal, "replication has stopped");
        }
        let leads = metrics.state == ServerState::Leader;
        let is_self = leads && !stopped && self.has_quorum(metrics);
        let has_live_leader = self.has_live_leader();
        let is_known = !stopped && if leads { is_self } else { has_live_leader };
        let leader = leader_of(metrics).filter(|_| is_known);
        if leader.is_some() {
            self.leader_known_at = R::Instant::now();
        }
        let current = Leadership {
            leader,
            term: metrics.current_term,
            is_self,
            is_lost: stopped
                || self.leader_known_at.elapsed() >= self.parts.timings.replaced_within(),
            stopped,
        };
        telemetry::leadership(&current);
        self.parts.leadership.send_if_modified(|published| {
            let changed = *published != current;
            if changed {
                *published = current;
            }
            changed
        });
        self.record(metrics, is_self);
    }

    fn publish_stopped(&self, metrics: &RaftMetrics<Types<M, R>>) {
        self.parts.leadership.send_replace(Leadership {
            leader: None,
            term: metrics.current_term,
            is_self: false,
            is_lost: true,
            stopped: true,
        });
    }

    /// Whether a leader has sent a message recently. openraft itself keeps following the last leader until
    /// another is elected: because of pre-vote, a partitioned replica would never learn that it is
    /// partitioned.
    fn has_live_leader(&mut self) -> bool {
        let count = self.parts.acceptance.leader_message_count();
        if count != self.last_leader_message.0 {
            self.last_leader_message = (count, R::Instant::now());
        }
        self.last_leader_message.1.elapsed() < self.parts.timings.leader_silence_max()
    }

    /// Whether a majority has answered recently, or no other vote is needed. A new leader has no lease
    /// before the first answer, and openraft takes no entry from it until then.
    fn has_quorum(&self, metrics: &RaftMetrics<Types<M, R>>) -> bool {
        if metrics.membership_config.voter_ids().take(2).count() < 2 {
            return true;
        }
        let silence_max = self.parts.timings.leader_silence_max();
        let acked = metrics.last_quorum_acked.as_ref();
        acked.is_some_and(|acked| acked.elapsed() < silence_max)
    }

    fn record(&mut self, metrics: &RaftMetrics<Types<M, R>>, is_leader: bool) {
        let is_disowned = self.parts.acceptance.is_disowned() && metrics.current_leader.is_none();
        telemetry::disowned(is_disowned);
        telemetry::removed(self.parts.acceptance.removal().is_some());
        let membership = metrics.membership_config.membership();
        telemetry::members(
            membership.voter_ids().count(),
            membership.learner_ids().count(),
            metrics.membership_config.log_id().map_or(0, |id| id.index),
            membership.get_joint_config().len() > 1,
        );
        telemetry::log_position(
            metrics.last_log_index.unwrap_or(0),
            metrics.last_applied.map_or(0, |id| id.index),
        );
        if !is_leader {
            // A missing series looks like one that is not collected.
            for voter in metrics.membership_config.voter_ids() {
                telemetry::follower_lag(voter, 0);
                telemetry::follower_silence(voter, 0);
            }
        }
        let now_ms = u64::try_from(self.started_at.elapsed().as_millis()).unwrap_or(u64::MAX);
        let term = metrics.current_term;
        for follower in self.followers.report(term, now_ms, &followers(metrics)) {
            telemetry::follower_lag(follower.id, follower.lag_entries);
            telemetry::follower_silence(follower.id, follower.silence_ms);
        }
    }

    async fn snapshot_by_size(&self) {
        let bytes = self.parts.bytes_since_snapshot.load(Ordering::Relaxed);
        if bytes < self.parts.policy.snapshot_every_bytes {
            return;
        }
        self.parts.bytes_since_snapshot.store(0, Ordering::Relaxed);
        if let Err(fatal) = self.parts.raft.trigger().snapshot().await {
            tracing::warn!(%fatal, "a snapshot could not be triggered");
        }
    }

    /// Removes the log before the oldest snapshot of the history; with fewer snapshots the log is complete.
    async fn truncate_log(&self) {
        let upto = match self.history_start_index() {
            Ok(upto) => upto,
            Err(error) => {
                // The log keeps its length until the next snapshot.
                tracing::warn!(%error, "the log was not truncated: the oldest snapshot of its history is unreadable");
                return;
            }
        };
        let Some(upto) = upto else { return };
        if let Err(fatal) = self.parts.raft.trigger().purge_log(upto).await {
            tracing::warn!(%fatal, "the log could not be truncated");
        }
    }

    /// Last log index that is needed neither by the history nor by slightly lagging replicas.
    fn history_start_index(&self) -> Result<Option<u64>, DecodeError> {
        let policy = &self.parts.policy;
        let files = self.parts.snapshots.all()?;
        let oldest = files.iter().nth_back(policy.history_snapshots - 1);
        let (Some(oldest), Some(newest)) = (oldest, files.last()) else {
            return Ok(None);
        };
        let index = |file| {
            let (_, last) = self.parts.snapshots.read_position(file)?;
            Ok::<_, DecodeError>(last.map(|last| last.index))
        };
        let lagging = index(newest)?.and_then(|newest| newest.checked_sub(policy.keep_entries));
        Ok(index(oldest)?
            .zip(lagging)
            .map(|(one, other)| one.min(other)))
    }

    async fn stop(&self) {
        if let Err(error) = self.parts.raft.shutdown().await {
            tracing::error!(%error, "replication ended with an error");
        }
    }
}
