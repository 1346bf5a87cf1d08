//! Checker for gang start: no member of a gang with a start barrier starts before all members are prepared.
//!
//! Fed by the supervisors, never by the scheduler.

use std::collections::{BTreeMap, BTreeSet};

use muster_model::ids::{AttemptEpoch, JobId, TaskIndex, TaskKey};

use crate::checkers::{Owner, UnitAttempt};

/// Prepared members of each attempt.
#[derive(Clone, Debug, Default)]
pub struct Assembly {
    /// By attempt: a replacement member finds the others prepared long ago.
    prepared: BTreeMap<(JobId, UnitAttempt), BTreeSet<TaskIndex>>,
    begun: u64,
    found: Vec<EarlyStart>,
}

/// A member started before its gang was complete.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{key:?} of attempt {epoch} starts when {prepared} of {members} members of its gang were prepared"
)]
pub struct EarlyStart {
    /// The task that started.
    pub key: TaskKey,
    /// Its attempt.
    pub epoch: AttemptEpoch,
    /// Number of prepared members.
    pub prepared: usize,
    /// Number of members in the gang.
    pub members: u32,
}

impl Assembly {
    /// Records that a member is prepared and waits at the barrier.
    pub fn prepared(&mut self, owner: Owner, gang: UnitAttempt) {
        let members = self.prepared.entry((owner.key.job, gang));
        members.or_default().insert(owner.key.task);
    }

    /// Records that a member left the barrier; `members` is the size of its gang.
    pub fn started(&mut self, owner: Owner, gang: UnitAttempt, members: u32) {
        self.begun += 1;
        let known = self.prepared.get(&(owner.key.job, gang));
        let prepared = known.map_or(0, BTreeSet::len);
        if prepared < members as usize {
            self.found.push(EarlyStart {
                key: owner.key,
                epoch: owner.epoch,
                prepared,
                members,
            });
        }
    }

    /// Number of members that left the barrier.
    #[must_use]
    pub const fn starts(&self) -> u64 {
        self.begun
    }

    /// Violations found so far, in order.
    #[must_use]
    pub fn violations(&self) -> &[EarlyStart] {
        &self.found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(task: u32, epoch: u64) -> Owner {
        Owner {
            key: TaskKey {
                job: JobId(7),
                task: TaskIndex(task),
            },
            epoch: AttemptEpoch(epoch),
        }
    }

    const fn gang(number: u32) -> UnitAttempt {
        UnitAttempt {
            unit: muster_model::ids::UnitIndex(0),
            number,
        }
    }

    #[test]
    fn a_member_that_begins_before_the_last_one_is_prepared_is_noticed() {
        let mut assembly = Assembly::default();
        assembly.prepared(member(0, 20), gang(1));
        assembly.prepared(member(1, 20), gang(1));
        assembly.started(member(0, 20), gang(1), 2);
        assembly.started(member(1, 20), gang(1), 2);
        assert_eq!(assembly.violations(), []);
        // Members prepared for an earlier attempt do not count.
        assembly.prepared(member(0, 30), gang(2));
        assembly.started(member(0, 30), gang(2), 2);
        assert_eq!(assembly.violations().len(), 1);
        assert_eq!(assembly.starts(), 3);
    }
}
