//! Acceptance of this replica and its data by the group.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use crate::member::peer::Peer;

/// No member has addressed this replica by an incarnation yet.
const UNKNOWN: u8 = 0;
/// A member has addressed this replica's incarnation.
const OWNED: u8 = 1;
/// Members address another incarnation.
const DISOWNED: u8 = 2;

/// State of a replica's data directory, derived from the incarnation in received messages; clones share it.
///
/// A data directory is lost or replaced only while its replica is down. So once a message was addressed to
/// this incarnation, a message to another one is old.
#[derive(Debug, Clone, Default)]
pub(crate) struct DataAcceptance(Arc<AcceptanceState>);

#[derive(Debug, Default)]
struct AcceptanceState {
    owner: AtomicU8,
    leader_messages: AtomicU64,
    removal: OnceLock<Removal>,
}

/// Permanent removal of this replica from the group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Removal {
    /// Log index of the membership without it.
    pub index: u64,
    /// Members of the group at that index.
    pub members: Vec<Peer>,
}

impl DataAcceptance {
    /// Records a message addressed to this incarnation.
    pub(crate) fn record_accepted(&self) {
        self.0.owner.store(OWNED, Ordering::Relaxed);
    }

    /// Records a message addressed to another incarnation; true the first time that this proves the data
    /// was replaced.
    pub(crate) fn record_refused(&self) -> bool {
        let order = Ordering::Relaxed;
        let owner = &self.0.owner;
        let changed = owner.compare_exchange(UNKNOWN, DISOWNED, order, order);
        changed.is_ok()
    }

    /// Records entries, a snapshot chunk or a heartbeat from a leader.
    pub(crate) fn record_leader_message(&self) {
        self.0.leader_messages.fetch_add(1, Ordering::Relaxed);
    }

    /// Number of messages from leaders; an unchanged number means silence.
    pub(crate) fn leader_message_count(&self) -> u64 {
        self.0.leader_messages.load(Ordering::Relaxed)
    }

    /// Records that the group has removed this replica. The first report wins.
    pub(crate) fn record_removal(&self, removal: Removal) {
        self.0.removal.get_or_init(|| removal);
    }

    /// The removal of this replica from the group, if known.
    pub(crate) fn removal(&self) -> Option<&Removal> {
        self.0.removal.get()
    }

    /// Whether the group knows this replica with other data.
    pub(crate) fn is_disowned(&self) -> bool {
        self.0.owner.load(Ordering::Relaxed) == DISOWNED
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_first_refusal_proves_replacement_and_an_accepted_message_ends_it() {
        let acceptance = DataAcceptance::default();
        assert!(!acceptance.is_disowned());
        assert_eq!(
            (acceptance.record_refused(), acceptance.record_refused()),
            (true, false)
        );
        assert!(acceptance.is_disowned());
        acceptance.record_accepted();
        assert!(!acceptance.is_disowned());
        // From a member that does not know yet that this replica was added again.
        assert!(!acceptance.record_refused());
        assert!(!acceptance.is_disowned());
    }
}
