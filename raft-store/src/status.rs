//! What a replica knows of itself and, as leader, of the others.

use std::collections::BTreeSet;

use crate::network::Removal;
use crate::peer::Peer;
use crate::transfer::SUCCESSOR_LAG_ENTRIES_MAX;

/// How far a follower or learner is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FollowerStatus {
    /// Its id.
    pub id: u64,
    /// Last log index known to be on its disk.
    pub matched: Option<u64>,
    /// Entries it is behind the leader's log.
    pub lag_entries: u64,
    /// Milliseconds since the leader sent what it answered last; none if it has answered this leader nothing yet.
    pub heard_ago_ms: Option<u64>,
}

impl FollowerStatus {
    /// Whether it was heard within so many milliseconds.
    pub fn is_heard(&self, heard_ms_max: u64) -> bool {
        self.heard_ago_ms.is_some_and(|ago| ago <= heard_ms_max)
    }
}

/// A snapshot of a replica's state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Status {
    /// This replica's id.
    pub replica_id: u64,
    /// Members that vote.
    pub voters: Vec<Peer>,
    /// Members that only receive.
    pub learners: Vec<Peer>,
    /// The sets of voters, each of which decides by a majority of its own: one, or two while the voters change.
    pub voter_sets: Vec<BTreeSet<u64>>,
    /// Whether a change of voters has not finished.
    pub membership_is_changing: bool,
    /// Log index of the membership; none before the group is founded.
    pub membership_index: Option<u64>,
    /// Whether the membership is known to be committed.
    pub membership_is_committed: bool,
    /// The leader, where one is known.
    pub leader: Option<Peer>,
    /// Whether this replica leads.
    pub is_leader: bool,
    /// The Raft term.
    pub term: u64,
    /// The vote given: term, candidate, and whether the candidate won.
    pub vote: String,
    /// Index of the last log entry.
    pub last_log_index: Option<u64>,
    /// Index of the last applied entry.
    pub applied_index: Option<u64>,
    /// Index that the newest snapshot covers.
    pub snapshot_index: Option<u64>,
    /// Index up to which the log was removed.
    pub purged_index: Option<u64>,
    /// On the leader: the other members.
    pub followers: Vec<FollowerStatus>,
    /// Whether the group addresses another incarnation of this replica, which therefore takes no part in it: its
    /// data directory was lost or replaced.
    pub is_disowned: bool,
    /// That the group has removed this replica, if it has and this replica knows: it takes no part in the group any more.
    pub removal: Option<Removal>,
    /// Why the replica stopped, if it did.
    pub stopped: Option<String>,
}

impl Status {
    /// A member of the group, voter or learner.
    pub fn member(&self, id: u64) -> Option<&Peer> {
        let mut members = self.voters.iter().chain(&self.learners);
        members.find(|peer| peer.id == id)
    }

    /// The voter to which leadership is best handed: the one that lags least of those that were heard within so many
    /// milliseconds and lag within [`SUCCESSOR_LAG_ENTRIES_MAX`]. Only the leader knows any.
    pub fn successor(&self, heard_ms_max: u64) -> Option<u64> {
        let is_voter = |id: u64| self.voters.iter().any(|voter| voter.id == id);
        let fit = self.followers.iter().filter(|follower| {
            is_voter(follower.id)
                && follower.is_heard(heard_ms_max)
                && follower.lag_entries <= SUCCESSOR_LAG_ENTRIES_MAX
        });
        fit.min_by_key(|follower| (follower.lag_entries, follower.heard_ago_ms))
            .map(|follower| follower.id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEARD_MS_MAX: u64 = 500;

    fn follower(id: u64, lag_entries: u64, heard_ago_ms: Option<u64>) -> FollowerStatus {
        FollowerStatus {
            id,
            matched: None,
            lag_entries,
            heard_ago_ms,
        }
    }

    fn leader(followers: Vec<FollowerStatus>) -> Status {
        Status {
            replica_id: 1,
            voters: (1..=3)
                .map(|id| Peer::new(id, format!("host-{id}:1")))
                .collect(),
            learners: vec![Peer::new(4, "host-4:1")],
            voter_sets: vec![BTreeSet::from([1, 2, 3])],
            membership_is_changing: false,
            membership_index: Some(1),
            membership_is_committed: true,
            leader: None,
            is_leader: true,
            term: 1,
            vote: String::new(),
            last_log_index: None,
            applied_index: None,
            snapshot_index: None,
            purged_index: None,
            followers,
            is_disowned: false,
            removal: None,
            stopped: None,
        }
    }

    #[test]
    fn leadership_goes_to_who_lives_and_lags_least() {
        let cases = [
            // On an idle cluster a dead voter lags no more than a living one.
            (
                vec![follower(2, 0, Some(90_000)), follower(3, 0, Some(40))],
                Some(3),
            ),
            (
                vec![follower(2, 0, None), follower(3, 7, Some(500))],
                Some(3),
            ),
            (
                vec![follower(2, 3, Some(10)), follower(3, 2, Some(400))],
                Some(3),
            ),
            (vec![follower(2, 0, Some(501)), follower(3, 0, None)], None),
            (
                vec![follower(2, SUCCESSOR_LAG_ENTRIES_MAX + 1, Some(1))],
                None,
            ),
            // A learner does not lead.
            (
                vec![follower(4, 0, Some(1)), follower(2, 9, Some(1))],
                Some(2),
            ),
            (Vec::new(), None),
        ];
        for (followers, expected) in cases {
            let status = leader(followers);
            assert_eq!(
                status.successor(HEARD_MS_MAX),
                expected,
                "{:?}",
                status.followers
            );
        }
    }

    #[test]
    fn members_are_voters_and_learners() {
        let status = leader(Vec::new());
        let address = |id| status.member(id).map(|peer| peer.address.as_str());
        assert_eq!(
            (address(2), address(4)),
            (Some("host-2:1"), Some("host-4:1"))
        );
        assert_eq!(address(5), None);
    }
}
