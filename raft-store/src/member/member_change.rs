//! Planning of membership changes from the leader's status, before anything is proposed.
//!
//! openraft commits any membership it is asked for, and a set of voters without a live majority stops the
//! group permanently. So a change is carried out only if majorities of the voters before and after it
//! answer at the time.

use std::collections::BTreeSet;
use std::fmt;

use crate::error::MembershipError;
use crate::member::peer::Peer;
use crate::replica::config::Timings;
use crate::replica::status::Status;

/// Most voters of a group: more would make writes slower and failures no rarer.
pub const VOTERS_MAX: usize = 9;
/// Most members of a group, learners included.
pub const MEMBERS_MAX: usize = 16;
/// Most log entries that a learner may lag when it is promoted: about the size of one append. With a larger
/// lag, a majority that needs its vote would wait.
pub const PROMOTION_LAG_ENTRIES_MAX: u64 = 256;
/// Fewest voters that survive the failure of one.
const SURVIVING_VOTERS_MIN: usize = 3;

/// One step of a membership change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MemberChange {
    /// Adds a member that receives the log and does not vote.
    Add(Peer),
    /// Makes a learner a voter.
    Promote(u64),
    /// Removes a voter or learner.
    Remove(u64),
    /// Promotes a learner in place of a voter, which leaves: one change, so that there is never one voter
    /// less.
    Replace {
        /// The voter that leaves.
        old: u64,
        /// The learner that takes its place.
        new: u64,
    },
}

impl fmt::Display for MemberChange {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Add(peer) => write!(formatter, "adding {peer}"),
            Self::Promote(id) => write!(formatter, "promoting replica {id}"),
            Self::Remove(id) => write!(formatter, "removing replica {id}"),
            Self::Replace { old, new } => {
                write!(formatter, "replacing replica {old} by replica {new}")
            }
        }
    }
}

impl MemberChange {
    /// Whether the change removes this member.
    pub fn removes(&self, id: u64) -> bool {
        match self {
            Self::Remove(leaving) | Self::Replace { old: leaving, .. } => *leaving == id,
            Self::Add(_) | Self::Promote(_) => false,
        }
    }
}

/// Result of planning a change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChangePlan {
    /// Whether the membership already is as requested.
    pub is_done: bool,
    /// Voters after the change.
    pub voters: BTreeSet<u64>,
    /// Whether the set of voters changes.
    pub moves_voters: bool,
}

impl ChangePlan {
    /// Warning for the operator about the resulting number of voters: an even number survives no more
    /// failures than one less.
    pub fn warning(&self) -> Option<String> {
        let voters = self.voters.len();
        let survives = voters.saturating_sub(1) / 2;
        (self.moves_voters && voters.is_multiple_of(2)).then(|| {
            format!(
                "{voters} voters survive the failure of {survives}, no more than {} do: add or remove one voter",
                voters - 1
            )
        })
    }
}

/// Whether an admin overrides the minimum number of voters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Force(pub bool);

/// The leader's view for planning a change.
struct PlanningContext<'a> {
    status: &'a Status,
    silence_ms_max: u64,
    voters: BTreeSet<u64>,
}

impl Status {
    /// Plans a change, on the leader.
    ///
    /// # Errors
    /// [`MembershipError::UnknownMember`], [`MembershipError::LearnerLags`],
    /// [`MembershipError::LearnerSilent`], [`MembershipError::VotersSilent`], or
    /// [`MembershipError::Refused`] with the reason.
    pub fn plan_change(
        &self,
        change: &MemberChange,
        timings: Timings,
        force: Force,
    ) -> Result<ChangePlan, MembershipError> {
        let view = PlanningContext {
            status: self,
            silence_ms_max: timings.successor_silence_ms_max(),
            voters: self.voters.iter().map(|voter| voter.id).collect(),
        };
        if self.membership_is_changing {
            return Err(MembershipError::Refused(
                "an earlier change of the voters is not finished; the leader finishes it as soon as a majority of \
                 both the old and the new voters answers: try again then"
                    .to_owned(),
            ));
        }
        match change {
            MemberChange::Add(peer) => view.add(peer),
            MemberChange::Promote(id) => view.promote(*id),
            MemberChange::Remove(id) => view.remove(*id, force),
            MemberChange::Replace { old, new } => view.replace(*old, *new),
        }
    }
}

impl PlanningContext<'_> {
    fn add(&self, peer: &Peer) -> Result<ChangePlan, MembershipError> {
        let status = self.status;
        if let Some(known) = status.member(peer.id) {
            return if known.address == peer.address {
                Ok(self.done())
            } else {
                refused(format!("{known} is a member already"))
            };
        }
        let mut members = status.voters.iter().chain(&status.learners);
        if let Some(other) = members.find(|member| member.address == peer.address) {
            return refused(format!(
                "{other} is a member already: remove it first, or give the new one another address"
            ));
        }
        if status.voters.len() + status.learners.len() >= MEMBERS_MAX {
            return refused(format!(
                "the group has {MEMBERS_MAX} members, which is the limit (MEMBERS_MAX)"
            ));
        }
        Ok(ChangePlan {
            is_done: false,
            ..self.done()
        })
    }

    fn promote(&self, id: u64) -> Result<ChangePlan, MembershipError> {
        if self.voters.contains(&id) {
            return Ok(self.done());
        }
        self.check_caught_up(id)?;
        if self.voters.len() >= VOTERS_MAX {
            return refused(format!(
                "the group has {VOTERS_MAX} voters, which is the limit (VOTERS_MAX)"
            ));
        }
        let mut voters = self.voters.clone();
        voters.insert(id);
        self.change_voters(voters)
    }

    fn remove(&self, id: u64, force: Force) -> Result<ChangePlan, MembershipError> {
        if self.status.member(id).is_none() {
            return Err(MembershipError::UnknownMember { id });
        }
        if !self.voters.contains(&id) {
            return Ok(ChangePlan {
                is_done: false,
                ..self.done()
            });
        }
        let mut voters = self.voters.clone();
        voters.remove(&id);
        if voters.is_empty() {
            return refused(format!("replica {id} is the last voter"));
        }
        if voters.len() < SURVIVING_VOTERS_MIN && !force.0 {
            return refused(format!(
                "{} voters would be left, which survive no failure: replace it or promote another one first, or use \
                 --force",
                voters.len()
            ));
        }
        self.change_voters(voters)
    }

    fn replace(&self, old: u64, new: u64) -> Result<ChangePlan, MembershipError> {
        if self.status.member(old).is_none() && self.voters.contains(&new) {
            return Ok(self.done());
        }
        if !self.voters.contains(&old) {
            return match self.status.member(old) {
                None => Err(MembershipError::UnknownMember { id: old }),
                Some(_) => refused(format!(
                    "replica {old} does not vote: promote replica {new}, and remove replica {old}"
                )),
            };
        }
        if self.voters.contains(&new) {
            return refused(format!(
                "replica {new} votes already: remove replica {old}, or name another one"
            ));
        }
        self.check_caught_up(new)?;
        let mut voters = self.voters.clone();
        voters.remove(&old);
        voters.insert(new);
        self.change_voters(voters)
    }

    fn done(&self) -> ChangePlan {
        ChangePlan {
            is_done: true,
            voters: self.voters.clone(),
            moves_voters: false,
        }
    }

    /// Both sets of voters need a live majority: the change commits with both of them or not at all.
    fn change_voters(&self, voters: BTreeSet<u64>) -> Result<ChangePlan, MembershipError> {
        for set in [&self.voters, &voters] {
            let responsive = set.iter().filter(|id| self.is_responsive(**id)).count();
            if responsive <= set.len() / 2 {
                return Err(MembershipError::VotersSilent {
                    voters: set.iter().copied().collect(),
                    responsive,
                });
            }
        }
        Ok(ChangePlan {
            is_done: false,
            voters,
            moves_voters: true,
        })
    }

    fn is_responsive(&self, id: u64) -> bool {
        let followers = &self.status.followers;
        id == self.status.replica_id
            || followers
                .iter()
                .any(|follower| follower.id == id && follower.is_responsive(self.silence_ms_max))
    }

    /// Checks that a learner answers and is nearly up to date.
    fn check_caught_up(&self, id: u64) -> Result<(), MembershipError> {
        if self.status.member(id).is_none() {
            return Err(MembershipError::UnknownMember { id });
        }
        let followers = &self.status.followers;
        let follower = followers.iter().find(|follower| follower.id == id);
        match follower {
            Some(follower) if follower.is_responsive(self.silence_ms_max) => {
                if follower.lag_entries > PROMOTION_LAG_ENTRIES_MAX {
                    return Err(MembershipError::LearnerLags {
                        id,
                        lag_entries: follower.lag_entries,
                    });
                }
                Ok(())
            }
            _ => Err(MembershipError::LearnerSilent {
                id,
                last_heartbeat_age_ms: follower.and_then(|follower| follower.last_answer_ago_ms),
                silence_ms_max: self.silence_ms_max,
            }),
        }
    }
}

fn refused(why: String) -> Result<ChangePlan, MembershipError> {
    Err(MembershipError::Refused(why))
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use crate::replica::status::FollowerStatus;

    const TIMINGS: Timings = Timings::FAST;

    /// Status of leader 1 with these voters and learners; all but the silent ones are up to date.
    fn group(voters: &[u64], learners: &[u64], silent: &[u64]) -> Status {
        let peers = |ids: &[u64]| -> Vec<Peer> {
            ids.iter()
                .map(|id| Peer::new(*id, format!("host-{id}:1")))
                .collect()
        };
        let followers = voters.iter().chain(learners).filter(|id| **id != 1);
        Status {
            replica_id: 1,
            voters: peers(voters),
            learners: peers(learners),
            voter_sets: vec![voters.iter().copied().collect()],
            membership_is_changing: false,
            membership_index: Some(1),
            membership_is_committed: true,
            leader: Some(Peer::new(1, "host-1:1")),
            is_leader: true,
            term: 1,
            vote: String::new(),
            last_log_index: None,
            applied_index: None,
            snapshot_index: None,
            purged_index: None,
            followers: followers
                .map(|id| FollowerStatus {
                    id: *id,
                    matched: None,
                    lag_entries: 0,
                    last_answer_ago_ms: (!silent.contains(id)).then_some(10),
                })
                .collect(),
            is_disowned: false,
            removal: None,
            stopped: None,
        }
    }

    fn plan(status: &Status, change: &MemberChange) -> Result<ChangePlan, MembershipError> {
        status.plan_change(change, TIMINGS, Force(false))
    }

    fn voters(status: &Status, change: &MemberChange) -> Vec<u64> {
        let plan = plan(status, change).unwrap_or_else(|error| panic!("{change}: {error}"));
        plan.voters.into_iter().collect()
    }

    fn refusal(status: &Status, change: &MemberChange) -> String {
        match plan(status, change) {
            Ok(plan) => panic!("{change} is not rejected: {plan:?}"),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn a_repeated_request_changes_nothing() {
        let status = group(&[1, 2, 4], &[5], &[]);
        for change in [
            MemberChange::Add(Peer::new(5, "host-5:1")),
            MemberChange::Add(Peer::new(2, "host-2:1")),
            MemberChange::Promote(4),
            MemberChange::Replace { old: 3, new: 4 },
        ] {
            let plan = plan(&status, &change).unwrap();
            assert!(plan.is_done && !plan.moves_voters, "{change}: {plan:?}");
        }
    }

    #[test]
    fn ids_and_addresses_belong_to_one_member() {
        let status = group(&[1, 2, 3], &[], &[]);
        let moved = MemberChange::Add(Peer::new(3, "host-9:1"));
        assert!(refusal(&status, &moved).contains("replica 3 at host-3:1 is a member"));
        let taken = MemberChange::Add(Peer::new(4, "host-3:1"));
        assert!(refusal(&status, &taken).contains("replica 3 at host-3:1 is a member"));
    }

    #[test]
    fn a_learner_is_promoted_only_when_it_answers_and_has_caught_up() {
        let mut status = group(&[1, 2, 3], &[4], &[]);
        let promotion = MemberChange::Promote(4);
        assert_eq!(voters(&status, &promotion), [1, 2, 3, 4]);
        let lag = |status: &mut Status, entries| {
            for follower in &mut status.followers {
                follower.lag_entries = if follower.id == 4 { entries } else { 0 };
            }
        };
        lag(&mut status, PROMOTION_LAG_ENTRIES_MAX);
        assert_eq!(voters(&status, &promotion), [1, 2, 3, 4]);
        lag(&mut status, PROMOTION_LAG_ENTRIES_MAX + 1);
        assert!(refusal(&status, &promotion).contains("is 257 log entries behind"));
        assert!(refusal(&group(&[1, 2, 3], &[4], &[4]), &promotion).contains("has not answered"));
        assert_eq!(
            plan(&group(&[1, 2, 3], &[], &[]), &promotion),
            Err(MembershipError::UnknownMember { id: 4 })
        );
    }

    #[test]
    fn a_removal_after_which_no_failure_is_survived_needs_force() {
        let status = group(&[1, 2, 3], &[], &[]);
        let removal = MemberChange::Remove(3);
        assert!(refusal(&status, &removal).contains("--force"));
        let forced = status.plan_change(&removal, TIMINGS, Force(true)).unwrap();
        assert_eq!(forced.voters, BTreeSet::from([1, 2]));
        assert!(
            forced
                .warning()
                .is_some_and(|text| text.contains("2 voters"))
        );
        let alone = group(&[1], &[], &[]);
        let last = alone.plan_change(&MemberChange::Remove(1), TIMINGS, Force(true));
        assert!(last.unwrap_err().to_string().contains("last voter"));
    }

    #[test]
    fn an_even_number_of_voters_causes_a_warning() {
        let status = group(&[1, 2, 3], &[4], &[]);
        let even = plan(&status, &MemberChange::Promote(4)).unwrap();
        assert!(even.warning().is_some());
        let odd = plan(&group(&[1, 2, 3, 4], &[5], &[]), &MemberChange::Promote(5)).unwrap();
        assert_eq!(odd.warning(), None);
        // An additional learner causes no warning.
        let addition = MemberChange::Add(Peer::new(5, "host-5:1"));
        let learner = plan(&group(&[1, 2, 3, 4], &[], &[]), &addition).unwrap();
        assert_eq!(learner.warning(), None);
    }

    #[test]
    fn a_dead_voter_is_replaced_and_a_living_one_is_not_removed_beside_it() {
        let status = group(&[1, 2, 3], &[4], &[3]);
        let replacement = MemberChange::Replace { old: 3, new: 4 };
        assert_eq!(voters(&status, &replacement), [1, 2, 4]);
        // Removing replica 2 would leave no live majority: not even force allows that.
        let wrong = status
            .plan_change(&MemberChange::Remove(2), TIMINGS, Force(true))
            .unwrap_err()
            .to_string();
        assert!(
            wrong.contains("only 1 of the voters 1, 3 answer"),
            "{wrong}"
        );
    }

    #[test]
    fn majorities_of_the_old_and_the_new_voters_must_answer() {
        // 1 and 4 would be a majority afterwards, but the voters before the change have none.
        let status = group(&[1, 2, 3], &[4], &[2, 3]);
        let message = refusal(&status, &MemberChange::Replace { old: 3, new: 4 });
        assert!(
            message.contains("only 1 of the voters 1, 2, 3"),
            "{message}"
        );
        // Two of four voters are not a majority.
        let status = group(&[1, 2, 3, 4], &[5], &[3, 4]);
        let message = refusal(&status, &MemberChange::Promote(5));
        assert!(
            message.contains("only 2 of the voters 1, 2, 3, 4"),
            "{message}"
        );
    }

    #[test]
    fn while_a_change_is_not_finished_another_one_is_refused() {
        let mut status = group(&[1, 2, 3], &[4], &[]);
        status.membership_is_changing = true;
        assert!(refusal(&status, &MemberChange::Promote(4)).contains("not finished"));
    }
}
