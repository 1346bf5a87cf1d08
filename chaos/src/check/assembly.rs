//! No member of a gang that waits for itself begins before all of its members were prepared.
//!
//! Fed by the supervisors, never by the scheduler.

use std::collections::{BTreeMap, BTreeSet};

use muster_model::ids::{AttemptEpoch, JobId, TaskIndex, TaskKey};

use crate::check::{Gang, Owner};

/// Which members of which attempts were prepared.
#[derive(Clone, Debug, Default)]
pub struct Assembly {
    /// By attempt: who comes later finds the others prepared long ago.
    prepared: BTreeMap<(JobId, Gang), BTreeSet<TaskIndex>>,
    begun: u64,
    found: Vec<EarlyStart>,
}

/// A member began although its gang was not whole.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{key:?} of attempt {epoch} begins when {prepared} of {members} members of its gang were prepared"
)]
pub struct EarlyStart {
    /// Which task.
    pub key: TaskKey,
    /// Its attempt.
    pub epoch: AttemptEpoch,
    /// Members that were prepared.
    pub prepared: usize,
    /// All members.
    pub members: u32,
}

impl Assembly {
    /// A member has all that it needs, and waits.
    pub fn prepared(&mut self, owner: Owner, gang: Gang) {
        let members = self.prepared.entry((owner.key.job, gang));
        members.or_default().insert(owner.key.task);
    }

    /// A member that waited begins; its gang has so many.
    pub fn begun(&mut self, owner: Owner, gang: Gang, members: u32) {
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

    /// Members that waited and began.
    #[must_use]
    pub const fn starts(&self) -> u64 {
        self.begun
    }

    /// Everything that must not have happened, in order.
    #[must_use]
    pub fn found(&self) -> &[EarlyStart] {
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

    const fn gang(number: u32) -> Gang {
        Gang {
            unit: muster_model::ids::UnitIndex(0),
            number,
        }
    }

    #[test]
    fn a_member_that_begins_before_the_last_one_is_prepared_is_noticed() {
        let mut assembly = Assembly::default();
        assembly.prepared(member(0, 20), gang(1));
        assembly.prepared(member(1, 20), gang(1));
        assembly.begun(member(0, 20), gang(1), 2);
        assembly.begun(member(1, 20), gang(1), 2);
        assert_eq!(assembly.found(), []);
        // What was prepared for an earlier attempt does not count.
        assembly.prepared(member(0, 30), gang(2));
        assembly.begun(member(0, 30), gang(2), 2);
        assert_eq!(assembly.found().len(), 1);
        assert_eq!(assembly.starts(), 3);
    }
}
