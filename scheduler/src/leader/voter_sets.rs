//! Majorities over one or several sets of voters.

use std::collections::BTreeSet;

use muster_model::ids::ReplicaId;
use muster_raft_store::Status;

/// Sets of voters of the group: one, or several while the voters change. A voter of one set may be missing
/// from the others, so a majority of all voters together decides nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct VoterSets(Vec<BTreeSet<ReplicaId>>);

impl VoterSets {
    /// The sets of the current membership.
    pub(super) fn of(status: &Status) -> Self {
        let set = |ids: &BTreeSet<u64>| ids.iter().copied().map(ReplicaId).collect();
        Self(status.voter_sets.iter().map(set).collect())
    }

    /// Adds a set.
    pub(super) fn and(mut self, more: Option<&BTreeSet<ReplicaId>>) -> Self {
        self.0.extend(more.cloned());
        self
    }

    /// Whether the replicas include a majority of every set; false without voters.
    pub(super) fn have_majority(&self, replicas: &BTreeSet<ReplicaId>) -> bool {
        !self.0.is_empty()
            && self
                .0
                .iter()
                .all(|set| set.intersection(replicas).count() > set.len() / 2)
    }

    /// The union of all sets.
    pub(super) fn union(&self) -> BTreeSet<ReplicaId> {
        self.0.iter().flatten().copied().collect()
    }

    /// All voters but one.
    pub(super) fn others(&self, own: ReplicaId) -> impl Iterator<Item = ReplicaId> {
        self.union()
            .into_iter()
            .filter(move |replica| *replica != own)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(list: &[u64]) -> BTreeSet<ReplicaId> {
        list.iter().copied().map(ReplicaId).collect()
    }

    fn sets(lists: &[&[u64]]) -> VoterSets {
        VoterSets(lists.iter().map(|list| ids(list)).collect())
    }

    #[test]
    fn a_majority_of_the_union_is_not_a_majority_of_each_set() {
        // Three of five are a majority of the union, and one of three of the old voters.
        let joint = sets(&[&[1, 2, 3], &[3, 4, 5]]);
        assert!(!joint.have_majority(&ids(&[3, 4, 5])));
        assert!(!joint.have_majority(&ids(&[1, 2, 3])));
        assert!(joint.have_majority(&ids(&[2, 3, 4])));
        assert_eq!(joint.union(), ids(&[1, 2, 3, 4, 5]));
    }

    #[test]
    fn neither_half_of_the_voters_nor_other_replicas_are_a_majority() {
        let even = sets(&[&[1, 2, 3, 4]]);
        assert!(!even.have_majority(&ids(&[1, 2])));
        assert!(even.have_majority(&ids(&[1, 2, 4])));
        // Learners and removed replicas do not count.
        assert!(!even.have_majority(&ids(&[1, 2, 7, 8, 9])));
        assert!(!sets(&[]).have_majority(&ids(&[1])));
        assert!(sets(&[&[1]]).have_majority(&ids(&[1])));
    }

    #[test]
    fn future_voters_are_a_further_set() {
        let wide = sets(&[&[1, 2, 3]]).and(Some(&ids(&[1, 2, 4])));
        assert!(!wide.have_majority(&ids(&[1, 3])));
        assert!(wide.have_majority(&ids(&[1, 3, 4])));
        assert_eq!(sets(&[&[1]]).and(None), sets(&[&[1]]));
    }
}
