//! Noticing that somebody else leads, or nobody: whoever waits for the old leader's answer need wait no longer.
//!
//! A leader that is frozen or cut off keeps its connections, and answers nothing: without this a request that was passed on
//! to it would wait until its own end, although the next leader may be here already. A replica that is cut off itself hears of no
//! leader, while the others may have one long since: who asks it should ask another one.

use std::future::pending;
use std::time::Duration;

use muster_core::state::State;
use muster_raft_store::{Handle, Leadership};
use tokio::sync::watch;
use tokio::time::timeout;

/// Who leads, for whoever waits for one of them.
#[derive(Clone, Debug)]
pub(crate) struct Leaders(watch::Receiver<Leadership>);

impl Leaders {
    /// As a replica sees them.
    pub(crate) fn of(handle: &Handle<State>) -> Self {
        Self(handle.leadership())
    }

    /// The address of the one that leads now, if one is known.
    pub(crate) fn address(&self) -> Option<String> {
        address(&self.0.borrow()).map(str::to_owned)
    }

    /// Completes once another one than this is known to lead; never, if the replica ends before.
    pub(crate) async fn another_than(&self, leader: Option<&str>) {
        let mut changes = self.0.clone();
        let is_another = |now: &Leadership| address(now).is_some_and(|it| Some(it) != leader);
        if changes.wait_for(is_another).await.is_err() {
            pending::<()>().await;
        }
    }

    /// Completes once no leader was known for this long, all the time; never, if the replica ends before.
    pub(crate) async fn nobody_for(&self, patience: Duration) {
        let mut changes = self.0.clone();
        while changes.wait_for(|now| now.leader.is_none()).await.is_ok() {
            let known = timeout(patience, changes.wait_for(|now| now.leader.is_some()));
            if known.await.is_err() {
                return;
            }
        }
        pending().await
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
    async fn an_election_is_no_leader_yet_and_the_same_one_is_no_other() {
        let (sender, receiver) = watch::channel(led_by(Some("a:1")));
        let leaders = Leaders(receiver);
        let mut waiting = Box::pin(leaders.another_than(Some("a:1")));
        for now in [None, Some("a:1")] {
            sender.send_replace(led_by(now));
            assert!(waiting.as_mut().now_or_never().is_none(), "{now:?}");
        }
        sender.send_replace(led_by(Some("b:1")));
        assert!(waiting.as_mut().now_or_never().is_some());
        assert_eq!(leaders.address().as_deref(), Some("b:1"));
        assert!(leaders.another_than(None).now_or_never().is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn an_election_is_waited_for_and_a_lasting_silence_is_not() {
        let patience = Duration::from_secs(2);
        let (sender, receiver) = watch::channel(led_by(Some("a:1")));
        let leaders = Leaders(receiver);
        let mut nobody = Box::pin(leaders.nobody_for(patience));
        for now in [Some("a:1"), None, Some("b:1"), None] {
            sender.send_replace(led_by(now));
            let waited = timeout(patience / 2, nobody.as_mut());
            assert!(waited.await.is_err(), "{now:?}");
        }
        assert!(timeout(patience, nobody).await.is_ok());
        drop(sender);
        let mut after_the_end = Box::pin(leaders.nobody_for(Duration::ZERO));
        assert!(after_the_end.as_mut().now_or_never().is_none());
    }
}
