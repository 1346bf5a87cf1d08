//! Status of a replica and, on the leader, of the others.

use std::collections::BTreeSet;

use crate::member::peer::Peer;
use crate::member::transfer::SUCCESSOR_LAG_ENTRIES_MAX;
use crate::network::Removal;

/// Progress of a follower or learner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FollowerStatus {
    /// Replica id.
    pub id: u64,
    /// Last log index known to be on its disk.
    pub matched: Option<u64>,
    /// Entries by which it lags behind the leader's log.
    pub lag_entries: u64,
    /// Milliseconds since the leader sent the request answered last; none if it has never answered this
    /// leader.
    pub last_answer_ago_ms: Option<u64>,
}

impl FollowerStatus {
    /// Whether the last answer is at most `silence_ms_max` milliseconds old.
    pub fn is_responsive(&self, silence_ms_max: u64) -> bool {
        self.last_answer_ago_ms
            .is_some_and(|ago| ago <= silence_ms_max)
    }
}

/// Status of a replica at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Status {
    /// This replica's id.
    pub replica_id: u64,
    /// Voting members.
    pub voters: Vec<Peer>,
    /// Learners: members that receive the log without voting.
    pub learners: Vec<Peer>,
    /// Voter sets, each of which needs its own majority: one, or two during a change of voters.
    pub voter_sets: Vec<BTreeSet<u64>>,
    /// Whether a change of voters is unfinished.
    pub membership_is_changing: bool,
    /// Log index of the membership; none before the group is created.
    pub membership_index: Option<u64>,
    /// Whether the membership is known to be committed.
    pub membership_is_committed: bool,
    /// The leader, if known.
    pub leader: Option<Peer>,
    /// Whether this replica leads.
    pub is_leader: bool,
    /// The Raft term.
    pub term: u64,
    /// The vote cast: term, candidate, and whether the candidate won.
    pub vote: String,
    /// Index of the last log entry.
    pub last_log_index: Option<u64>,
    /// Index of the last applied entry.
    pub applied_index: Option<u64>,
    /// Last log index covered by the newest snapshot.
    pub snapshot_index: Option<u64>,
    /// Log index up to which the log was truncated.
    pub purged_index: Option<u64>,
    /// The other members; on the leader only.
    pub followers: Vec<FollowerStatus>,
    /// Whether the group addresses another incarnation of this replica, which therefore does not take part
    /// in it: its data directory was lost or replaced.
    pub is_disowned: bool,
    /// The removal of this replica from the group, if known; it then no longer takes part in the group.
    pub removal: Option<Removal>,
    /// Cause, if the replica has stopped.
    pub stopped: Option<String>,
}

impl Status {
    /// A member of the group, voter or learner.
    pub fn member(&self, id: u64) -> Option<&Peer> {
        let mut members = self.voters.iter().chain(&self.learners);
        members.find(|peer| peer.id == id)
    }

    /// The best voter to transfer leadership to: the one with the smallest lag among those that answered
    /// within `silence_ms_max` milliseconds and lag at most [`SUCCESSOR_LAG_ENTRIES_MAX`] entries. Only the
    /// leader can return one.
    pub fn successor(&self, silence_ms_max: u64) -> Option<u64> {
        let is_voter = |id: u64| self.voters.iter().any(|voter| voter.id == id);
        let fit = self.followers.iter().filter(|follower| {
            is_voter(follower.id)
                && follower.is_responsive(silence_ms_max)
                && follower.lag_entries <= SUCCESSOR_LAG_ENTRIES_MAX
        });
        fit.min_by_key(|follower| (follower.lag_entries, follower.last_answer_ago_ms))
            .map(|follower| follower.id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SILENCE_MS_MAX: u64 = 500;

    fn follower(id: u64, lag_entries: u64, last_heartbeat_age_ms: Option<u64>) -> FollowerStatus {
        FollowerStatus {
            id,
            matched: None,
            lag_entries,
            last_answer_ago_ms: last_heartbeat_age_ms,
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
    fn the_successor_is_the_live_voter_that_lags_least() {
        let cases = [
            // On an idle cluster a dead voter lags no more than a live one.
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
            // A learner cannot lead.
            (
                vec![follower(4, 0, Some(1)), follower(2, 9, Some(1))],
                Some(2),
            ),
            (Vec::new(), None),
        ];
        for (followers, expected) in cases {
            let status = leader(followers);
            assert_eq!(
                status.successor(SILENCE_MS_MAX),
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
