//! Transfer of leadership.
//!
//! openraft sends no heartbeat and takes no write from the moment at which a transfer begins, and never
//! takes it back: a transfer that fails ends with an election by the others. So it begins only if the
//! successor is alive and up to date.

use std::time::Duration;

use openraft::RaftMetrics;

use crate::apply::state_machine::StateMachine;
use crate::error::MembershipError;
use crate::replica::config::Timings;
use crate::replica::engine::{RaftEngine, followers, leader_of};
use crate::replica::status::FollowerStatus;
use crate::sim::Runtime;
use crate::types::Types;

/// Number of heartbeats within which a successor must have answered: as many as may be lost before an
/// election starts with the usual timings, i.e. their shortest election timeout.
pub const SUCCESSOR_HEARTBEATS_MAX: u64 = 5;
/// Most log entries that a successor may lag: about the size of one append. It leads only once it has all
/// of them.
pub const SUCCESSOR_LAG_ENTRIES_MAX: u64 = 256;

impl<M: StateMachine, R: Runtime> RaftEngine<M, R> {
    /// Transfers leadership to a voter, and waits until it leads.
    pub(crate) async fn transfer_leadership(&self, to: u64) -> Result<(), MembershipError> {
        self.check_leads()?;
        if to == self.config.replica_id {
            return Ok(());
        }
        let metrics = self.metrics();
        let mut voters = metrics.membership_config.voter_ids();
        if !voters.any(|voter| voter == to) {
            return Err(MembershipError::Refused(format!(
                "replica {to} is not a voter"
            )));
        }
        self.await_ready_successor(to).await?;
        let trigger = self.raft.trigger().transfer_leader(to).await;
        trigger.map_err(|_| MembershipError::Stopped)?;
        self.await_successor(to).await
    }

    /// Waits until the successor answers and is up to date: it may not have answered a new leader yet, and
    /// under load a voter lags for moments.
    async fn await_ready_successor(&self, to: u64) -> Result<(), MembershipError> {
        let timings = self.config.timings;
        let silence_max = Duration::from_millis(timings.successor_silence_ms_max());
        let this = self.config.replica_id;
        let settled = move |metrics: &RaftMetrics<Types<M, R>>| {
            metrics.current_leader != Some(this) || check_fit(metrics, to, timings).is_ok()
        };
        let waited = self.raft.wait(Some(silence_max));
        // Whatever ended the wait, the current status decides.
        drop(waited.metrics(settled, "the successor is fit").await);
        self.check_leads()?;
        check_fit(&self.metrics(), to, timings)
    }

    async fn await_successor(&self, to: u64) -> Result<(), MembershipError> {
        let this = self.config.replica_id;
        let moved = self
            .raft
            .wait(Some(self.peer_timeout()))
            .metrics(
                |metrics| metrics.current_leader.is_some_and(|leader| leader != this),
                "leadership moves",
            )
            .await;
        match moved {
            Ok(metrics) if metrics.current_leader == Some(to) => Ok(()),
            Ok(metrics) => Err(MembershipError::NotTaken {
                to,
                leader: leader_of(&metrics),
            }),
            Err(_) => Err(MembershipError::NotTaken { to, leader: None }),
        }
    }

    /// Returns an error on a replica that does not lead.
    pub(crate) fn check_leads(&self) -> Result<(), MembershipError> {
        let metrics = self.metrics();
        if metrics.current_leader == Some(self.config.replica_id) {
            return Ok(());
        }
        Err(MembershipError::NotLeader {
            leader: leader_of(&metrics),
        })
    }
}

fn check_fit<M: StateMachine, R: Runtime>(
    metrics: &RaftMetrics<Types<M, R>>,
    to: u64,
    timings: Timings,
) -> Result<(), MembershipError> {
    let follower = followers(metrics)
        .into_iter()
        .find(|follower| follower.id == to);
    fitness(follower.as_ref(), to, timings.successor_silence_ms_max())
}

fn fitness(
    follower: Option<&FollowerStatus>,
    to: u64,
    silence_ms_max: u64,
) -> Result<(), MembershipError> {
    match follower {
        Some(follower) if follower.is_responsive(silence_ms_max) => {
            if follower.lag_entries > SUCCESSOR_LAG_ENTRIES_MAX {
                return Err(MembershipError::SuccessorLags {
                    to,
                    lag_entries: follower.lag_entries,
                });
            }
            Ok(())
        }
        _ => Err(MembershipError::SuccessorUnresponsive {
            to,
            last_heartbeat_age_ms: follower.and_then(|follower| follower.last_answer_ago_ms),
            silence_ms_max,
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_successor_is_refused_by_what_it_lacks() {
        let follower = |lag_entries, last_heartbeat_age_ms| FollowerStatus {
            id: 2,
            matched: Some(9),
            lag_entries,
            last_answer_ago_ms: last_heartbeat_age_ms,
        };
        let refusal = |follower: Option<FollowerStatus>| {
            let result = fitness(follower.as_ref(), 2, 500);
            result.err().map(|error| error.to_string())
        };
        assert_eq!(refusal(Some(follower(256, Some(500)))), None);
        assert_eq!(
            refusal(Some(follower(257, Some(0)))).as_deref(),
            Some(
                "replica 2 is 257 log entries behind, more than the 256 allowed to take over \
                 (SUCCESSOR_LAG_ENTRIES_MAX): wait until it has caught up, or name another replica"
            )
        );
        let silent = "replica 2 last answered 501 ms ago, more than the 500 ms allowed to take over \
                      (5 heartbeats): name another replica, or bring it back first";
        assert_eq!(
            refusal(Some(follower(0, Some(501)))).as_deref(),
            Some(silent)
        );
        let no_answer = "replica 2 has not answered this leader within the 500 ms required to take over \
                       (5 heartbeats): name another replica, or bring it back first";
        assert_eq!(refusal(Some(follower(0, None))).as_deref(), Some(no_answer));
        assert_eq!(refusal(None).as_deref(), Some(no_answer));
    }
}
