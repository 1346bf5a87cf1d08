//! Checker for I11: replicas that applied the same revision hold the same state.

use std::collections::BTreeMap;

use muster_model::ids::Revision;

/// State hashes reported by all replicas.
#[derive(Clone, Debug, Default)]
pub struct Agreement {
    seen: BTreeMap<Revision, FirstReport>,
    compared: u64,
    found: Vec<Disagreement>,
}

/// First report of a hash: replica and hash.
#[derive(Clone, Copy, Debug)]
struct FirstReport {
    replica: u32,
    hash: u64,
}

/// Two replicas differ at one revision.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "state hashes differ at revision {revision}: replica {first} has {first_hash:016x}, \
     replica {second} has {second_hash:016x}"
)]
pub struct Disagreement {
    /// Revision at which they differ.
    pub revision: Revision,
    /// The replica that reported first.
    pub first: u32,
    /// Its hash.
    pub first_hash: u64,
    /// The replica that differs.
    pub second: u32,
    /// Its hash.
    pub second_hash: u64,
}

impl Agreement {
    /// Records the state hash of a replica at a revision.
    pub fn record_hash(&mut self, replica: u32, revision: Revision, hash: u64) {
        let first = *self
            .seen
            .entry(revision)
            .or_insert(FirstReport { replica, hash });
        self.compared += u64::from(first.replica != replica);
        if first.hash != hash {
            self.found.push(Disagreement {
                revision,
                first: first.replica,
                first_hash: first.hash,
                second: replica,
                second_hash: hash,
            });
        }
    }

    /// Returns a sample of the recorded revisions with their state hash: the newest but one, two, four and
    /// so on.
    pub fn sampled(&self) -> impl Iterator<Item = (Revision, u64)> + '_ {
        let newest_first = self.seen.iter().rev().enumerate();
        newest_first
            .filter(|(back, _)| back.is_power_of_two())
            .map(|(_, (revision, shown))| (*revision, shown.hash))
    }

    /// Number of comparisons between two replicas.
    #[must_use]
    pub const fn compared(&self) -> u64 {
        self.compared
    }

    /// Violations found so far, in order.
    #[must_use]
    pub fn violations(&self) -> &[Disagreement] {
        &self.found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_revisions_with_other_hashes_are_noticed() {
        let mut agreement = Agreement::default();
        agreement.record_hash(1, Revision(7), 70);
        agreement.record_hash(2, Revision(7), 70);
        agreement.record_hash(2, Revision(8), 80);
        assert_eq!((agreement.compared(), agreement.violations()), (1, &[][..]));
        agreement.record_hash(3, Revision(8), 81);
        assert!(matches!(
            agreement.violations(),
            [Disagreement {
                revision: Revision(8),
                first: 2,
                second: 3,
                ..
            }]
        ));
    }

    #[test]
    fn a_replica_that_comes_back_with_another_past_is_noticed() {
        let mut agreement = Agreement::default();
        agreement.record_hash(1, Revision(7), 70);
        agreement.record_hash(1, Revision(7), 71);
        assert_eq!(agreement.violations().len(), 1);
    }
}
