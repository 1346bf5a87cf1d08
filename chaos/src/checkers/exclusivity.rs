//! GPU ledger of the fake driver: the actual holder of each GPU and the attempts of each task that actually
//! ran.
//!
//! Fed by tasks (simulated or real), never by the scheduler, so it catches a scheduler whose own state is
//! wrong.

use std::collections::{BTreeMap, BTreeSet};

use muster_model::ids::{AttemptEpoch, GpuUuid, JobId, TaskIndex, TaskKey, UnitIndex};

/// An attempt of a task, as the driver identifies it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Owner {
    /// The task.
    pub key: TaskKey,
    /// Its attempt.
    pub epoch: AttemptEpoch,
}

/// A violation of exclusive GPU use or of single execution.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Overlap {
    /// I1: a GPU has two owners.
    #[error("{gpu} is taken by {taker:?} while {holder:?} holds it")]
    Gpu {
        /// The GPU.
        gpu: GpuUuid,
        /// Its current holder.
        holder: Owner,
        /// The second owner.
        taker: Owner,
    },
    /// I2: two attempts of one task run at once.
    #[error("attempt {second} of {key:?} starts while attempt {first} runs")]
    Task {
        /// The task.
        key: TaskKey,
        /// The running attempt.
        first: AttemptEpoch,
        /// The starting attempt.
        second: AttemptEpoch,
    },
    /// I2: attempt epochs go backwards.
    #[error("attempt {second} of {key:?} starts after the newer attempt {first} had run")]
    Backwards {
        /// The task.
        key: TaskKey,
        /// The newest attempt that had run.
        first: AttemptEpoch,
        /// The starting attempt.
        second: AttemptEpoch,
    },
    /// I2: an attempt is started twice.
    #[error("attempt {epoch} of {key:?} is started a second time")]
    Again {
        /// The task.
        key: TaskKey,
        /// The attempt.
        epoch: AttemptEpoch,
    },
    /// I6: members of one gang run in different attempts.
    #[error(
        "attempt {second} of {key:?} starts while {member:?} of the same gang runs in attempt {first}"
    )]
    Gang {
        /// The starting task.
        key: TaskKey,
        /// Its attempt.
        second: AttemptEpoch,
        /// A member that still runs.
        member: TaskKey,
        /// That member's attempt.
        first: AttemptEpoch,
    },
}

/// Attempt of a unit, by number: shared by all members, including replacements with their own attempt
/// epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct UnitAttempt {
    /// The unit.
    pub unit: UnitIndex,
    /// Number of the attempt within its unit.
    pub number: u32,
}

/// The GPU ledger.
#[derive(Clone, Debug, Default)]
pub struct GpuLedger {
    gpus: BTreeMap<GpuUuid, Owner>,
    running: BTreeMap<TaskKey, (AttemptEpoch, UnitAttempt)>,
    newest: BTreeMap<TaskKey, AttemptEpoch>,
    ended_well: BTreeSet<Owner>,
    gangs: BTreeMap<Owner, UnitAttempt>,
    overlaps: Vec<Overlap>,
    starts: u64,
}

impl GpuLedger {
    /// Records that a process of a unit started and took its GPUs.
    pub fn started(&mut self, owner: Owner, gang: UnitAttempt, gpus: &[GpuUuid]) {
        self.starts += 1;
        self.check_gang(owner, gang);
        self.gangs.insert(owner, gang);
        if let Some((first, _)) = self.running.insert(owner.key, (owner.epoch, gang)) {
            self.overlaps.push(Overlap::Task {
                key: owner.key,
                first,
                second: owner.epoch,
            });
        }
        self.check_epoch(owner);
        for gpu in gpus {
            if let Some(holder) = self.gpus.insert(*gpu, owner) {
                self.overlaps.push(Overlap::Gpu {
                    gpu: *gpu,
                    holder,
                    taker: owner,
                });
            }
        }
    }

    /// Records that a process was killed: it executes nothing more, but may hang in the kernel with its
    /// GPUs.
    pub fn killed(&mut self, owner: Owner) {
        let running = self.running.get(&owner.key);
        if running.is_some_and(|(epoch, _)| *epoch == owner.epoch) {
            self.running.remove(&owner.key);
        }
    }

    /// Records that a process is frozen with its host: it executes nothing, but keeps its GPUs.
    pub fn froze(&mut self, owner: Owner) {
        self.killed(owner);
    }

    /// Records that a process resumed with its host.
    pub fn thawed(&mut self, owner: Owner) {
        let Some(gang) = self.gangs.get(&owner).copied() else {
            return;
        };
        self.check_gang(owner, gang);
        if let Some((first, _)) = self.running.insert(owner.key, (owner.epoch, gang)) {
            self.overlaps.push(Overlap::Task {
                key: owner.key,
                first,
                second: owner.epoch,
            });
        }
    }

    /// Records that a process is gone and its GPUs are free, whatever the scheduler believes.
    pub fn ended(&mut self, owner: Owner, exit_code: Option<i32>) {
        if exit_code == Some(0) {
            self.ended_well.insert(owner);
        }
        self.killed(owner);
        self.gpus.retain(|_, holder| *holder != owner);
    }

    /// Whether a process of a task exited with code 0 in this attempt of its unit.
    #[must_use]
    pub fn ended_well(&self, key: TaskKey, gang: UnitAttempt) -> bool {
        let at = |epoch| Owner {
            key,
            epoch: AttemptEpoch(epoch),
        };
        let mut of_task = self.ended_well.range(at(0)..=at(u64::MAX));
        of_task.any(|owner| self.gangs.get(owner) == Some(&gang))
    }

    fn check_epoch(&mut self, owner: Owner) {
        let Owner { key, epoch } = owner;
        let Some(first) = self.newest.insert(key, epoch) else {
            return;
        };
        if epoch < first {
            self.newest.insert(key, first);
            self.overlaps.push(Overlap::Backwards {
                key,
                first,
                second: epoch,
            });
        } else if epoch == first {
            self.overlaps.push(Overlap::Again { key, epoch });
        }
    }

    fn check_gang(&mut self, owner: Owner, gang: UnitAttempt) {
        let first = member(owner.key.job, 0);
        let last = member(owner.key.job, u32::MAX);
        let other = self.running.range(first..=last).find(|(key, (_, of))| {
            **key != owner.key && of.unit == gang.unit && of.number != gang.number
        });
        if let Some((member, (epoch, _))) = other {
            self.overlaps.push(Overlap::Gang {
                key: owner.key,
                second: owner.epoch,
                member: *member,
                first: *epoch,
            });
        }
    }

    /// Violations found so far, in order.
    #[must_use]
    pub fn overlaps(&self) -> &[Overlap] {
        &self.overlaps
    }

    /// Number of processes started so far.
    #[must_use]
    pub const fn starts(&self) -> u64 {
        self.starts
    }

    /// Running attempts of tasks; a replacement member has its own attempt epoch.
    pub fn attempts(&self) -> impl Iterator<Item = Owner> + '_ {
        let owner = |(key, (epoch, _)): (&TaskKey, &(AttemptEpoch, UnitAttempt))| Owner {
            key: *key,
            epoch: *epoch,
        };
        self.running.iter().map(owner)
    }

    /// Number of running processes.
    #[must_use]
    pub fn running(&self) -> usize {
        self.running.len()
    }
}

fn member(job: JobId, task: u32) -> TaskKey {
    TaskKey {
        job,
        task: TaskIndex(task),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: UnitAttempt = gang(0, 1);

    const fn gang(unit: u32, number: u32) -> UnitAttempt {
        UnitAttempt {
            unit: UnitIndex(unit),
            number,
        }
    }

    fn owner(job: u64, epoch: u64) -> Owner {
        Owner {
            key: member(JobId(job), 0),
            epoch: AttemptEpoch(epoch),
        }
    }

    #[test]
    fn a_gpu_that_was_given_back_may_be_taken() {
        let mut ledger = GpuLedger::default();
        ledger.started(owner(1, 10), FIRST, &[GpuUuid(7)]);
        ledger.ended(owner(1, 10), None);
        ledger.started(owner(2, 11), FIRST, &[GpuUuid(7)]);
        assert_eq!(ledger.overlaps(), []);
    }

    #[test]
    fn each_kind_of_overlap_is_noticed() {
        let mut ledger = GpuLedger::default();
        ledger.started(owner(1, 10), FIRST, &[GpuUuid(7)]);
        ledger.started(owner(2, 11), FIRST, &[GpuUuid(7)]);
        assert!(matches!(ledger.overlaps(), [Overlap::Gpu { .. }]));
        ledger.started(owner(2, 12), FIRST, &[]);
        assert!(matches!(ledger.overlaps(), [_, Overlap::Task { .. }]));
        ledger.ended(owner(2, 12), None);
        ledger.started(owner(2, 11), FIRST, &[]);
        assert!(matches!(
            ledger.overlaps(),
            [_, _, Overlap::Backwards { .. }]
        ));
        ledger.ended(owner(2, 11), None);
        ledger.started(owner(2, 12), FIRST, &[]);
        assert!(matches!(
            ledger.overlaps(),
            [_, _, _, Overlap::Again { .. }]
        ));
    }

    #[test]
    fn a_gang_in_two_attempts_is_noticed() {
        let task = |task, epoch| Owner {
            key: member(JobId(1), task),
            epoch: AttemptEpoch(epoch),
        };
        let mut ledger = GpuLedger::default();
        ledger.started(task(0, 10), FIRST, &[]);
        ledger.started(task(1, 10), FIRST, &[]);
        ledger.ended(task(0, 10), None);
        // A replacement for the member that is gone.
        ledger.started(task(0, 11), FIRST, &[]);
        ledger.ended(task(0, 11), None);
        // A different unit may start at any time.
        ledger.started(task(2, 11), gang(2, 1), &[]);
        assert_eq!(ledger.overlaps(), []);
        ledger.started(task(0, 12), gang(0, 2), &[]);
        assert!(matches!(ledger.overlaps(), [Overlap::Gang { .. }]));
    }

    #[test]
    fn a_frozen_task_must_not_continue_beside_its_successor() {
        let mut ledger = GpuLedger::default();
        ledger.started(owner(1, 10), FIRST, &[GpuUuid(7)]);
        ledger.froze(owner(1, 10));
        assert_eq!(ledger.running(), 0);
        ledger.thawed(owner(1, 10));
        assert_eq!((ledger.running(), ledger.overlaps()), (1, &[][..]));
        ledger.froze(owner(1, 10));
        ledger.started(owner(1, 11), gang(0, 2), &[]);
        assert_eq!(ledger.overlaps(), []);
        ledger.thawed(owner(1, 10));
        assert!(matches!(ledger.overlaps(), [Overlap::Task { .. }]));
    }

    #[test]
    fn only_exit_code_0_is_a_good_end() {
        let mut ledger = GpuLedger::default();
        for (number, code) in [(1, None), (2, Some(1)), (3, Some(0))] {
            let owner = owner(1, u64::from(number));
            ledger.started(owner, gang(0, number), &[]);
            ledger.ended(owner, code);
        }
        let key = owner(1, 1).key;
        let well = [1, 2, 3].map(|number| ledger.ended_well(key, gang(0, number)));
        assert_eq!(well, [false, false, true]);
    }
}
