//! Detection of a changed or lost leader, for requests that wait for the old leader's answer.
//!
//! A leader that is frozen or cut off keeps its connections and answers nothing: without this, a request
//! forwarded to it would wait until its deadline, although the next leader may already exist. A replica that
//! is itself cut off knows no leader, while the others may have one: its clients should ask another replica.

use std::future::pending;
use std::time::Duration;

use muster_engine::state::State;
use muster_raft_store::{Handle, Leadership};
use tokio::sync::watch;
use tokio::time::timeout;

/// Time that an isolated replica holds a request.
const ISOLATION_HOLD: Duration = Duration::from_millis(250);

/// The current leader, for tasks that wait for a change.
#[derive(Clone, Debug)]
pub(crate) struct Leaders(watch::Receiver<Leadership>);

impl Leaders {
    /// Follows the leadership known to a replica.
    pub(crate) fn of(handle: &Handle<State>) -> Self {
        Self(handle.leadership())
    }

    /// The address of the current leader, if known.
    pub(crate) fn address(&self) -> Option<String> {
        address(&self.0.borrow()).map(str::to_owned)
    }

    /// Completes once a leader other than this one is known; never, if the replica stops before.
    pub(crate) async fn changed_from(&self, leader: Option<&str>) {
        let mut changes = self.0.clone();
        let is_another = |now: &Leadership| address(now).is_some_and(|it| Some(it) != leader);
        if changes.wait_for(is_another).await.is_err() {
            pending::<()>().await;
        }
    }

    /// Completes once this replica is isolated and its clients should ask another one. It holds them for a
    /// moment, in which the leader may return: without any leader, clients then do not retry every few
    /// milliseconds.
    pub(crate) async fn isolated(&self) {
        let mut changes = self.0.clone();
        loop {
            if changes.wait_for(|now| now.is_lost).await.is_err() {
                // The channel closes with the replica, which reports isolation when it stops.
                pending::<()>().await;
            }
            match timeout(ISOLATION_HOLD, changes.wait_for(|now| now.leader.is_some())).await {
                Ok(Ok(_)) => {}
                Ok(Err(_)) | Err(_) => return,
            }
        }
    }
}

fn address(leadership: &Leadership) -> Option<&str> {
    let leader = leadership.leader.as_ref();
    leader.map(|peer| peer.address.as_str())
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;
    use muster_raft_store::Peer;

    use super::*;

    fn led_by(address: Option<&str>) -> Leadership {
        Leadership {
            leader: address.map(|address| Peer::new(1, address.to_owned())),
            ..Leadership::default()
        }
    }

    #[tokio::test]
    async fn neither_an_election_nor_the_same_leader_counts_as_another_leader() {
        let (sender, receiver) = watch::channel(led_by(Some("a:1")));
        let leaders = Leaders(receiver);
        let mut waiting = Box::pin(leaders.changed_from(Some("a:1")));
        for now in [None, Some("a:1")] {
            sender.send_replace(led_by(now));
            assert!(waiting.as_mut().now_or_never().is_none(), "{now:?}");
        }
        sender.send_replace(led_by(Some("b:1")));
        assert!(waiting.as_mut().now_or_never().is_some());
        assert_eq!(leaders.address().as_deref(), Some("b:1"));
        assert!(leaders.changed_from(None).now_or_never().is_some());
    }

    /// Long enough to conclude that nothing happens, on a paused clock.
    const LONG: Duration = Duration::from_secs(60);

    #[tokio::test(start_paused = true)]
    async fn an_election_is_waited_for_and_a_lost_replica_is_an_error() {
        let (sender, receiver) = watch::channel(led_by(Some("a:1")));
        let leaders = Leaders(receiver);
        let mut isolated = Box::pin(leaders.isolated());
        let lost = Leadership {
            is_lost: true,
            ..led_by(None)
        };
        sender.send_replace(led_by(None));
        assert!(timeout(LONG, isolated.as_mut()).await.is_err());
        // Back within the delay.
        sender.send_replace(lost.clone());
        assert!(
            timeout(ISOLATION_HOLD / 2, isolated.as_mut())
                .await
                .is_err()
        );
        sender.send_replace(led_by(Some("b:1")));
        assert!(timeout(LONG, isolated.as_mut()).await.is_err());
        sender.send_replace(lost);
        assert!(timeout(LONG, isolated).await.is_ok());
        // The replica has stopped.
        drop(sender);
        assert!(timeout(LONG, leaders.isolated()).await.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn a_replica_that_knew_a_leader_until_its_last_report_is_never_lost() {
        let (sender, receiver) = watch::channel(led_by(Some("a:1")));
        drop(sender);
        assert!(timeout(LONG, Leaders(receiver).isolated()).await.is_err());
    }
}
