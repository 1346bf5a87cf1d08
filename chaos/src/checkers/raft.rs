//! Checker for the guarantees of Raft, from what replicas report: leaders in sequence, each with all
//! previously committed entries; terms that never decrease; entries that never change and are applied in
//! order; a log purged only behind a snapshot.
//!
//! Votes are ordered by term and candidate: in one term a candidate with a higher id may win after one with
//! a lower id, and deposes it as a later term would (`leader_id_adv` of openraft). The reverse must not
//! happen.

use std::collections::{BTreeMap, BTreeSet};

/// Raft state reported by replicas.
#[derive(Clone, Debug, Default)]
pub struct RaftRules {
    /// Replicas observed as leader in each term.
    leaders: BTreeMap<u64, BTreeSet<u64>>,
    /// Newest term of each replica since its start: a term not synced before a kill was promised to no one.
    terms: BTreeMap<u32, u64>,
    /// Applied index of each replica since its start.
    applied: BTreeMap<u32, u64>,
    entries: BTreeMap<u64, FirstApplied>,
    /// Last entry of each leader that some replica has applied, by term and leader: it is committed.
    committed: BTreeMap<(u64, u64), u64>,
    found: Vec<RaftViolation>,
}

/// First replica that applied an entry, and the entry.
#[derive(Clone, Copy, Debug)]
struct FirstApplied {
    replica: u32,
    term: u64,
    leader: u64,
    digest: u64,
}

/// An entry as applied by a replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Index in the log.
    pub index: u64,
    /// Term of the leader that wrote it.
    pub term: u64,
    /// Id of that leader.
    pub leader: u64,
    /// Hash of its payload.
    pub digest: u64,
}

/// A violated guarantee of Raft.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RaftViolation {
    /// A replica led in a term after one with a higher id did.
    #[error(
        "replicas {first} and {second} both lead in term {term}, the one with the lower id second"
    )]
    TwoLeaders {
        /// The term.
        term: u64,
        /// The first leader.
        first: u64,
        /// The second leader.
        second: u64,
    },
    /// A leader lacks an entry that was committed before it became leader.
    #[error(
        "replica {leader} leads in term {term} with entries up to {last:?}, but entry {committed} is committed"
    )]
    Incomplete {
        /// The leader.
        leader: u64,
        /// Its term.
        term: u64,
        /// Its last entry.
        last: Option<u64>,
        /// Last entry of an earlier leader that some replica has applied.
        committed: u64,
    },
    /// A replica went back to an older term.
    #[error("replica {replica} went from term {from} back to term {to}")]
    TermBack {
        /// The replica.
        replica: u32,
        /// The newer term.
        from: u64,
        /// The older term.
        to: u64,
    },
    /// A replica skipped or repeated an entry.
    #[error("replica {replica} applied entry {to} after entry {from}")]
    OutOfOrder {
        /// The replica.
        replica: u32,
        /// Index of the entry applied before.
        from: u64,
        /// Index of the entry applied next.
        to: u64,
    },
    /// Different entries were applied at one index, by two replicas or by one before and after a restart.
    #[error(
        "entry {index} differs between replica {second} and replica {first}, which applied it first"
    )]
    Changed {
        /// Index of the entry.
        index: u64,
        /// The replica that applied it first.
        first: u32,
        /// The replica that applied a different entry.
        second: u32,
    },
    /// The log was purged beyond the snapshot.
    #[error("replica {replica} purged its log up to {purged}, its snapshot covers {snapshot:?}")]
    Purged {
        /// The replica.
        replica: u32,
        /// Last purged index.
        purged: u64,
        /// Last index covered by the snapshot.
        snapshot: Option<u64>,
    },
}

impl RaftRules {
    /// A replica starts: it reapplies all entries that its snapshot on disk does not cover.
    pub fn started(&mut self, replica: u32) {
        self.applied.remove(&replica);
        self.terms.remove(&replica);
    }

    /// Records that a replica leads in a term.
    pub fn leads(&mut self, leader: u64, term: u64) {
        let seen = self.leaders.entry(term).or_default();
        let newest = seen.last().copied();
        // A deposed leader may not have learnt of it yet.
        if seen.insert(leader)
            && let Some(first) = newest.filter(|newest| *newest > leader)
        {
            self.found.push(RaftViolation::TwoLeaders {
                term,
                first,
                second: leader,
            });
        }
    }

    /// Checks the last log entry of a replica that leads in a term.
    pub fn leader_has(&mut self, leader: u64, term: u64, last: Option<u64>) {
        let before = self.committed.range(..(term, leader)).next_back();
        let committed = before.map_or(0, |(_, index)| *index);
        if last.unwrap_or_default() < committed {
            self.found.push(RaftViolation::Incomplete {
                leader,
                term,
                last,
                committed,
            });
        }
    }

    /// Whether any replica has applied, and so committed, an entry of a term.
    #[must_use]
    pub fn has_committed_in(&self, term: u64) -> bool {
        self.committed.keys().any(|(of, _)| *of == term)
    }

    /// Records the term of a replica.
    pub fn in_term(&mut self, replica: u32, term: u64) {
        let known = self.terms.entry(replica).or_default();
        let from = *known;
        *known = from.max(term);
        if term < from {
            self.found.push(RaftViolation::TermBack {
                replica,
                from,
                to: term,
            });
        }
    }

    /// Records an entry applied by a replica; returns true if it is the first to apply it.
    pub fn applied(&mut self, replica: u32, entry: Entry) -> bool {
        let Entry {
            index,
            term,
            leader,
            digest,
        } = entry;
        let from = self.applied.insert(replica, index);
        if let Some(from) = from.filter(|from| from + 1 != index) {
            self.found.push(RaftViolation::OutOfOrder {
                replica,
                from,
                to: index,
            });
        }
        let shown = FirstApplied {
            replica,
            term,
            leader,
            digest,
        };
        let Some(first) = self.entries.get(&index).copied() else {
            self.judge_writer(index, &shown);
            self.entries.insert(index, shown);
            self.committed.insert((term, leader), index);
            return true;
        };
        if (first.term, first.leader, first.digest) != (term, leader, digest) {
            self.found.push(RaftViolation::Changed {
                index,
                first: first.replica,
                second: replica,
            });
        }
        false
    }

    /// Checks that the writer of an entry did not lead before the writer of the previous entry.
    fn judge_writer(&mut self, index: u64, entry: &FirstApplied) {
        let before = self.entries.range(..index).next_back();
        let Some((_, before)) = before else {
            return;
        };
        if before.term == entry.term && before.leader > entry.leader {
            self.found.push(RaftViolation::TwoLeaders {
                term: entry.term,
                first: before.leader,
                second: entry.leader,
            });
        }
    }

    /// Records that a replica replaced its state by a snapshot.
    pub fn installed(&mut self, replica: u32, index: u64) {
        let from = self.applied.insert(replica, index);
        if let Some(from) = from.filter(|from| *from > index) {
            self.found.push(RaftViolation::OutOfOrder {
                replica,
                from,
                to: index,
            });
        }
    }

    /// Records how far a replica's log is purged and how far its snapshot reaches.
    pub fn log_bounds(&mut self, replica: u32, purged: Option<u64>, snapshot: Option<u64>) {
        if let Some(purged) = purged.filter(|purged| snapshot.is_none_or(|upto| *purged > upto)) {
            self.found.push(RaftViolation::Purged {
                replica,
                purged,
                snapshot,
            });
        }
    }

    /// Number of entries with known content.
    #[must_use]
    pub fn entries(&self) -> usize {
        self.entries.len()
    }

    /// Violations found so far, in order.
    #[must_use]
    pub fn violations(&self) -> &[RaftViolation] {
        &self.found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn entry(index: u64, digest: u64) -> Entry {
        Entry {
            index,
            term: 1,
            leader: 1,
            digest,
        }
    }

    #[test]
    fn behaviour_that_raft_allows_is_no_violation() {
        let mut rules = RaftRules::default();
        rules.started(1);
        assert!(rules.applied(1, entry(1, 10)));
        assert!(rules.applied(1, entry(2, 20)));
        assert!(!rules.applied(2, entry(1, 10)));
        rules.installed(2, 2);
        // A restarted replica applies its entries again.
        rules.started(1);
        assert!(!rules.applied(1, entry(1, 10)));
        rules.in_term(1, 4);
        rules.started(1);
        rules.in_term(1, 3);
        rules.in_term(1, 3);
        rules.leads(1, 3);
        rules.leader_has(1, 3, Some(2));
        // A higher id wins in the same term, and the previous leader does not learn it at once.
        rules.leads(2, 3);
        rules.leads(1, 3);
        // Entries committed in its own term it may still have to write.
        rules.leader_has(1, 1, None);
        rules.log_bounds(1, None, None);
        rules.log_bounds(1, Some(5), Some(5));
        assert_eq!((rules.violations(), rules.entries()), (&[][..], 2));
    }

    #[test]
    fn each_breach_is_noticed() {
        let mut rules = RaftRules::default();
        rules.leads(2, 3);
        rules.leads(1, 3);
        rules.in_term(1, 5);
        rules.in_term(1, 4);
        rules.applied(1, entry(1, 10));
        rules.applied(1, entry(3, 30));
        rules.applied(2, entry(3, 31));
        rules.installed(2, 1);
        rules.leader_has(2, 2, Some(2));
        rules.log_bounds(1, Some(6), Some(5));
        rules.log_bounds(1, Some(6), None);
        assert!(matches!(
            rules.violations(),
            [
                RaftViolation::TwoLeaders { .. },
                RaftViolation::TermBack { .. },
                RaftViolation::OutOfOrder { .. },
                RaftViolation::Changed { .. },
                RaftViolation::OutOfOrder { .. },
                RaftViolation::Incomplete { committed: 3, .. },
                RaftViolation::Purged { .. },
                RaftViolation::Purged { .. },
            ]
        ));
    }
}
