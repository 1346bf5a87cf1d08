//! Comparison of state hashes between replicas.
//!
//! Every replica hashes its state after the same log indexes, off the apply path. The leader puts its
//! newest hash into its next entry; every replica that has its own hash of that index compares. A replica
//! with a different hash has diverged, and stops before it can serve or vote again.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use muster_proto::raft::v1::HashCheck;
use tokio::sync::watch;

/// Number of remembered hashes, own and leader's each.
const REMEMBERED_MAX: usize = 8;

/// Hashes known to this replica.
pub(crate) struct HashLedger {
    known: Mutex<Known>,
    divergence: watch::Sender<Option<String>>,
}

#[derive(Default)]
struct Known {
    ours: BTreeMap<u64, HashCheck>,
    theirs: BTreeMap<u64, HashCheck>,
    unreported: Option<HashCheck>,
}

impl HashLedger {
    pub(crate) fn new() -> Self {
        Self {
            known: Mutex::default(),
            divergence: watch::Sender::new(None),
        }
    }

    /// Records this replica's hash after an index.
    pub(crate) fn record(&self, ours: HashCheck) {
        let mut known = self.known();
        remember(&mut known.ours, ours);
        known.unreported = Some(ours);
        let theirs = known.theirs.get(&ours.index).copied();
        drop(known);
        self.compare(Some(ours), theirs);
    }

    /// Records the leader's hash after an index.
    pub(crate) fn expect(&self, theirs: HashCheck) {
        let mut known = self.known();
        remember(&mut known.theirs, theirs);
        let ours = known.ours.get(&theirs.index).copied();
        drop(known);
        self.compare(ours, Some(theirs));
    }

    /// Takes this replica's newest hash that no entry carries yet.
    pub(crate) fn take_unreported(&self) -> Option<HashCheck> {
        self.known().unreported.take()
    }

    /// Becomes `Some` when this replica has diverged.
    pub(crate) fn divergence(&self) -> watch::Receiver<Option<String>> {
        self.divergence.subscribe()
    }

    fn compare(&self, ours: Option<HashCheck>, theirs: Option<HashCheck>) {
        let (Some(ours), Some(theirs)) = (ours, theirs) else {
            return;
        };
        if ours.hash_version == theirs.hash_version && ours.hash != theirs.hash {
            let detail = format!(
                "state hash {:016x} after log index {} differs from the leader's {:016x}",
                ours.hash, ours.index, theirs.hash
            );
            tracing::error!(detail, "this replica has diverged and stops");
            self.divergence.send_replace(Some(detail));
        }
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn remember(hashes: &mut BTreeMap<u64, HashCheck>, check: HashCheck) {
    hashes.insert(check.index, check);
    while hashes.len() > REMEMBERED_MAX {
        hashes.pop_first();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(index: u64, hash: u64, hash_version: u64) -> HashCheck {
        HashCheck {
            index,
            hash,
            hash_version,
        }
    }

    #[test]
    fn equal_hashes_pass_in_either_order() {
        let ledger = HashLedger::new();
        ledger.record(check(10, 1, 1));
        ledger.expect(check(10, 1, 1));
        ledger.expect(check(20, 2, 1));
        ledger.record(check(20, 2, 1));
        assert_eq!(*ledger.divergence().borrow(), None);
    }

    #[test]
    fn a_different_hash_is_a_divergence_in_either_order() {
        for ours_first in [true, false] {
            let ledger = HashLedger::new();
            if ours_first {
                ledger.record(check(10, 1, 1));
                ledger.expect(check(10, 2, 1));
            } else {
                ledger.expect(check(10, 2, 1));
                ledger.record(check(10, 1, 1));
            }
            assert!(ledger.divergence().borrow().is_some());
        }
    }

    #[test]
    fn hashes_of_different_versions_are_not_compared() {
        let ledger = HashLedger::new();
        ledger.record(check(10, 1, 1));
        ledger.expect(check(10, 2, 2));
        assert_eq!(*ledger.divergence().borrow(), None);
    }
}
