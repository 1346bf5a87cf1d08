//! Replicas known to a client, in the order of attempts, and the presumed leader.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// Interval at which an active client refreshes the replicas: all initial ones may eventually be replaced.
const LEARN_EVERY: Duration = Duration::from_secs(30);
/// The same while the known replicas are in doubt.
const LEARN_IN_DOUBT_EVERY: Duration = Duration::from_secs(1);

/// The known replicas, shared by all clones of a client.
#[derive(Debug)]
pub struct Roster {
    known: Mutex<RosterState>,
}

#[derive(Debug, Default)]
struct RosterState {
    /// In the order of attempts.
    addresses: Vec<String>,
    leader: Option<String>,
    ever_connected: bool,
    /// Time of the last refresh.
    learnt_at: Option<Instant>,
    /// Whether a later event suggests that the known replicas are outdated.
    is_in_doubt: bool,
    /// Log index of the newest membership reported.
    membership: Option<u64>,
}

impl Roster {
    /// Creates a roster of these replicas; the leader is unknown.
    pub(crate) fn new(addresses: &[String]) -> Self {
        let mut known = RosterState {
            learnt_at: Some(Instant::now()),
            ..RosterState::default()
        };
        for address in addresses {
            known.add(address);
        }
        Self {
            known: Mutex::new(known),
        }
    }

    /// The replica to try next: the leader, else the first that is not among `tried`.
    pub(crate) fn next_untried(&self, tried: &[String]) -> Option<String> {
        let known = self.lock();
        let leader = known.leader.iter();
        leader
            .chain(&known.addresses)
            .find(|address| !tried.contains(address))
            .cloned()
    }

    /// Records that a replica accepted a connection.
    pub fn connected(&self) {
        self.lock().ever_connected = true;
    }

    /// Whether any replica ever accepted a connection.
    pub(crate) fn ever_connected(&self) -> bool {
        self.lock().ever_connected
    }

    /// Sets the presumed leader.
    pub(crate) fn set_leader(&self, address: &str) {
        let mut known = self.lock();
        known.add(address);
        known.leader = Some(address.to_owned());
    }

    /// Clears the presumed leader, if it is this one.
    pub(crate) fn unset_leader(&self, address: &str) {
        let mut known = self.lock();
        if known.leader.as_deref() == Some(address) {
            known.leader = None;
        }
    }

    /// Moves a replica to the front: it answered where an earlier one did not, and a hanging replica costs
    /// a whole attempt each time.
    pub(crate) fn prefer(&self, address: &str) {
        let mut known = self.lock();
        if let Some(at) = known.addresses.iter().position(|known| known == address) {
            known.addresses[..=at].rotate_right(1);
        }
    }

    /// Sets the replicas discovered as the complete list, and the leader, if known. Other replicas are tried
    /// after them from now on: they may be gone.
    pub fn learn<'a>(&self, addresses: impl IntoIterator<Item = &'a str>, leader: Option<&str>) {
        let mut known = self.lock();
        let all: Vec<&str> = addresses.into_iter().collect();
        for address in &all {
            known.add(address);
        }
        known
            .addresses
            .sort_by_key(|address| !all.contains(&&**address));
        drop(known);
        if let Some(leader) = leader {
            self.set_leader(leader);
        }
    }

    /// Records that an attempt failed: the replica may be permanently gone.
    pub(crate) fn mark_stale(&self) {
        self.lock().is_in_doubt = true;
    }

    /// Records the log index of a replica's membership. If it is newer than the known one, the replicas are
    /// refreshed at once, because the next failure may hit the last known replica; lagging replicas are
    /// ignored.
    pub fn record_membership(&self, index: u64) {
        let mut known = self.lock();
        if known.membership.is_some_and(|newest| newest < index) {
            known.is_in_doubt = true;
            known.learnt_at = None;
        }
        known.membership = known.membership.max(Some(index));
    }

    /// Whether a refresh is due. The caller that gets `true` must perform it: other callers get `false` for
    /// a while.
    pub fn is_refresh_due(&self) -> bool {
        let mut known = self.lock();
        let pause = if known.is_in_doubt {
            LEARN_IN_DOUBT_EVERY
        } else {
            LEARN_EVERY
        };
        let is_due = known.learnt_at.is_none_or(|at| at.elapsed() >= pause);
        if is_due {
            known.learnt_at = Some(Instant::now());
            known.is_in_doubt = false;
        }
        is_due
    }

    /// All known addresses, in the order of attempts.
    pub fn addresses(&self) -> Vec<String> {
        self.lock().addresses.clone()
    }

    fn lock(&self) -> MutexGuard<'_, RosterState> {
        // Every change leaves the lists consistent, so a panic elsewhere does no harm.
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl RosterState {
    fn add(&mut self, address: &str) {
        if !address.is_empty() && !self.addresses.iter().any(|known| known == address) {
            self.addresses.push(address.to_owned());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn roster<const COUNT: usize>(addresses: [&str; COUNT]) -> Roster {
        Roster::new(&addresses.map(str::to_owned))
    }

    #[tokio::test(start_paused = true)]
    async fn former_replicas_are_tried_last() {
        let roster = roster(["a:1", "b:1", "c:1"]);
        roster.learn(["b:1", "c:1", "d:1"], Some("c:1"));
        assert_eq!(roster.addresses(), ["b:1", "c:1", "d:1", "a:1"]);
        assert_eq!(roster.next_untried(&[]).as_deref(), Some("c:1"));
        assert!(!roster.is_refresh_due());
        roster.mark_stale();
        assert!(!roster.is_refresh_due(), "not so soon");
        tokio::time::advance(LEARN_IN_DOUBT_EVERY).await;
        assert!(roster.is_refresh_due(), "the doubt is not forgotten");
        tokio::time::advance(LEARN_IN_DOUBT_EVERY).await;
        assert!(!roster.is_refresh_due());
        tokio::time::advance(LEARN_EVERY).await;
        assert!(roster.is_refresh_due());
    }

    #[tokio::test(start_paused = true)]
    async fn a_refresh_is_due_at_once_after_a_change_of_membership() {
        let roster = roster(["a:1"]);
        roster.record_membership(7);
        assert!(
            !roster.is_refresh_due(),
            "the first is the one that is known"
        );
        roster.record_membership(9);
        roster.record_membership(7);
        assert!(roster.is_refresh_due());
        roster.record_membership(9);
        assert!(!roster.is_refresh_due());
    }

    #[test]
    fn the_leader_is_tried_first_and_then_the_replica_that_answered_last() {
        let roster = roster(["a:1", "b:1", "c:1"]);
        roster.prefer("c:1");
        assert_eq!(roster.addresses(), ["c:1", "a:1", "b:1"]);
        assert_eq!(roster.next_untried(&[]).as_deref(), Some("c:1"));
        roster.prefer("unknown:1");
        roster.set_leader("b:1");
        assert_eq!(roster.next_untried(&[]).as_deref(), Some("b:1"));
        let tried = ["b:1".to_owned()];
        assert_eq!(roster.next_untried(&tried).as_deref(), Some("c:1"));
    }
}
