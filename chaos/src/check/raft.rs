//! What Raft promises, by what replicas show: leaders one after the other, each of whom has all that was committed before; terms that
//! never go back, entries that never change and are applied in order, and a log that is cut only behind a snapshot.
//!
//! Votes are ordered by term and candidate: one with a higher id may win in a term in which one with a lower id has won, and takes
//! the lead from it as a later term would (`leader_id_adv` of openraft). The other way round it must not.

use std::collections::{BTreeMap, BTreeSet};

/// What replicas have shown.
#[derive(Clone, Debug, Default)]
pub struct RaftRules {
    /// Who was seen to lead in each term.
    leaders: BTreeMap<u64, BTreeSet<u64>>,
    /// The newest term of each replica, in its present life: what it had not synced when it was killed it promised to nobody.
    terms: BTreeMap<u32, u64>,
    /// How far each replica has applied, in its present life.
    applied: BTreeMap<u32, u64>,
    entries: BTreeMap<u64, Shown>,
    /// The last entry of each leader that anybody has applied, by term and leader: it is committed.
    committed: BTreeMap<(u64, u64), u64>,
    found: Vec<RaftBreach>,
}

/// Who applied an entry first, and what it was.
#[derive(Clone, Copy, Debug)]
struct Shown {
    replica: u32,
    term: u64,
    leader: u64,
    digest: u64,
}

/// An entry as a replica applies it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Position in the log.
    pub index: u64,
    /// Term of the leader that wrote it.
    pub term: u64,
    /// That leader.
    pub leader: u64,
    /// Hash of what it carries.
    pub digest: u64,
}

/// A promise of Raft that was broken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RaftBreach {
    /// A replica led in a term after one with a higher id had.
    #[error(
        "replicas {first} and {second} both lead in term {term}, the lower one after the other"
    )]
    TwoLeaders {
        /// Which term.
        term: u64,
        /// Who was seen first.
        first: u64,
        /// The other one.
        second: u64,
    },
    /// A leader lacks what was committed before it led.
    #[error(
        "replica {leader} leads in term {term} with entries up to {last:?}, and entry {committed} is committed"
    )]
    Incomplete {
        /// Who leads.
        leader: u64,
        /// In which term.
        term: u64,
        /// Its last entry.
        last: Option<u64>,
        /// The last entry of an earlier leader that anybody has applied.
        committed: u64,
    },
    /// A replica went back to an older term.
    #[error("replica {replica} is in term {to} after term {from}")]
    TermBack {
        /// Which replica.
        replica: u32,
        /// The newer term.
        from: u64,
        /// The older one.
        to: u64,
    },
    /// A replica did not apply the next entry.
    #[error("replica {replica} comes to entry {to} after entry {from}")]
    OutOfOrder {
        /// Which replica.
        replica: u32,
        /// What it had applied.
        from: u64,
        /// What it applied then.
        to: u64,
    },
    /// Two replicas applied different entries at one position, or one of them did in two lives.
    #[error(
        "entry {index} that replica {second} applies is not the one that replica {first} applied"
    )]
    Changed {
        /// Which position.
        index: u64,
        /// Who applied it first.
        first: u32,
        /// Who applied another one.
        second: u32,
    },
    /// The log was cut where no snapshot stands for it.
    #[error("replica {replica} dropped its log up to {purged}, its snapshot covers {snapshot:?}")]
    Purged {
        /// Which replica.
        replica: u32,
        /// Up to where.
        purged: u64,
        /// What the snapshot covers.
        snapshot: Option<u64>,
    },
}

impl RaftRules {
    /// A replica starts: it applies again what its disk has no snapshot of.
    pub fn started(&mut self, replica: u32) {
        self.applied.remove(&replica);
        self.terms.remove(&replica);
    }

    /// A replica leads in a term.
    pub fn leads(&mut self, leader: u64, term: u64) {
        let seen = self.leaders.entry(term).or_default();
        let newest = seen.last().copied();
        // One that has lost the lead may take it that it has not.
        if seen.insert(leader)
            && let Some(first) = newest.filter(|newest| *newest > leader)
        {
            self.found.push(RaftBreach::TwoLeaders {
                term,
                first,
                second: leader,
            });
        }
    }

    /// The last entry in the log of a replica that leads in a term.
    pub fn leader_has(&mut self, leader: u64, term: u64, last: Option<u64>) {
        let before = self.committed.range(..(term, leader)).next_back();
        let committed = before.map_or(0, |(_, index)| *index);
        if last.unwrap_or_default() < committed {
            self.found.push(RaftBreach::Incomplete {
                leader,
                term,
                last,
                committed,
            });
        }
    }

    /// Whether anything of a term is committed, as far as anybody has applied it.
    #[must_use]
    pub fn has_committed_in(&self, term: u64) -> bool {
        self.committed.keys().any(|(of, _)| *of == term)
    }

    /// A replica is in a term.
    pub fn in_term(&mut self, replica: u32, term: u64) {
        let known = self.terms.entry(replica).or_default();
        let from = *known;
        *known = from.max(term);
        if term < from {
            self.found.push(RaftBreach::TermBack {
                replica,
                from,
                to: term,
            });
        }
    }

    /// A replica applies an entry; true if nobody did before.
    pub fn applied(&mut self, replica: u32, entry: Entry) -> bool {
        let Entry {
            index,
            term,
            leader,
            digest,
        } = entry;
        let from = self.applied.insert(replica, index);
        if let Some(from) = from.filter(|from| from + 1 != index) {
            self.found.push(RaftBreach::OutOfOrder {
                replica,
                from,
                to: index,
            });
        }
        let shown = Shown {
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
            self.found.push(RaftBreach::Changed {
                index,
                first: first.replica,
                second: replica,
            });
        }
        false
    }

    /// Who wrote an entry must not have led before who wrote the one before.
    fn judge_writer(&mut self, index: u64, entry: &Shown) {
        let before = self.entries.range(..index).next_back();
        let Some((_, before)) = before else {
            return;
        };
        if before.term == entry.term && before.leader > entry.leader {
            self.found.push(RaftBreach::TwoLeaders {
                term: entry.term,
                first: before.leader,
                second: entry.leader,
            });
        }
    }

    /// A replica replaces its state by a snapshot.
    pub fn installed(&mut self, replica: u32, index: u64) {
        let from = self.applied.insert(replica, index);
        if let Some(from) = from.filter(|from| *from > index) {
            self.found.push(RaftBreach::OutOfOrder {
                replica,
                from,
                to: index,
            });
        }
    }

    /// How far a replica's log is cut, and how far its snapshot reaches.
    pub fn keeps(&mut self, replica: u32, purged: Option<u64>, snapshot: Option<u64>) {
        if let Some(purged) = purged.filter(|purged| snapshot.is_none_or(|upto| *purged > upto)) {
            self.found.push(RaftBreach::Purged {
                replica,
                purged,
                snapshot,
            });
        }
    }

    /// Entries of which it is known what they are.
    #[must_use]
    pub fn entries(&self) -> usize {
        self.entries.len()
    }

    /// Everything that must not have happened, in order.
    #[must_use]
    pub fn found(&self) -> &[RaftBreach] {
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
    fn what_raft_allows_is_no_breach() {
        let mut rules = RaftRules::default();
        rules.started(1);
        assert!(rules.applied(1, entry(1, 10)));
        assert!(rules.applied(1, entry(2, 20)));
        assert!(!rules.applied(2, entry(1, 10)));
        rules.installed(2, 2);
        // A new life applies again.
        rules.started(1);
        assert!(!rules.applied(1, entry(1, 10)));
        rules.in_term(1, 4);
        rules.started(1);
        rules.in_term(1, 3);
        rules.in_term(1, 3);
        rules.leads(1, 3);
        rules.leader_has(1, 3, Some(2));
        // A higher id wins in the same term, and the one before does not know at once.
        rules.leads(2, 3);
        rules.leads(1, 3);
        // What is committed in its own time it may still have to write.
        rules.leader_has(1, 1, None);
        rules.keeps(1, None, None);
        rules.keeps(1, Some(5), Some(5));
        assert_eq!((rules.found(), rules.entries()), (&[][..], 2));
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
        rules.keeps(1, Some(6), Some(5));
        rules.keeps(1, Some(6), None);
        assert!(matches!(
            rules.found(),
            [
                RaftBreach::TwoLeaders { .. },
                RaftBreach::TermBack { .. },
                RaftBreach::OutOfOrder { .. },
                RaftBreach::Changed { .. },
                RaftBreach::OutOfOrder { .. },
                RaftBreach::Incomplete { committed: 3, .. },
                RaftBreach::Purged { .. },
                RaftBreach::Purged { .. },
            ]
        ));
    }
}
