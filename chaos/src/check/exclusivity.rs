//! The fake GPU driver's book: who really held which GPU, and which attempts of a task really ran.
//!
//! Fed by tasks (simulated or real), never by the scheduler, so that a scheduler that is wrong about its
//! own state is still caught.

use std::collections::BTreeMap;

use muster_core::desired::TaskKey;
use muster_core::ids::{AttemptEpoch, GpuUuid};

/// A task's attempt, as the driver sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Owner {
    /// Which task.
    pub key: TaskKey,
    /// Which attempt.
    pub epoch: AttemptEpoch,
}

/// Two attempts at once where only one may be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Overlap {
    /// I1: a GPU has two owners.
    #[error("{gpu} is taken by {taker:?} while {holder:?} holds it")]
    Gpu {
        /// Which.
        gpu: GpuUuid,
        /// Who had it.
        holder: Owner,
        /// Who took it.
        taker: Owner,
    },
    /// I2: two attempts of one task run.
    #[error("attempt {second} of {key:?} starts while attempt {first} runs")]
    Task {
        /// Which.
        key: TaskKey,
        /// The one that runs.
        first: AttemptEpoch,
        /// The one that starts.
        second: AttemptEpoch,
    },
    /// I2: epochs go backwards.
    #[error("attempt {second} of {key:?} starts after the newer attempt {first} had run")]
    Backwards {
        /// Which.
        key: TaskKey,
        /// The newest that had run.
        first: AttemptEpoch,
        /// The one that starts.
        second: AttemptEpoch,
    },
}

/// The book.
#[derive(Clone, Debug, Default)]
pub struct Exclusivity {
    gpus: BTreeMap<GpuUuid, Owner>,
    running: BTreeMap<TaskKey, AttemptEpoch>,
    newest: BTreeMap<TaskKey, AttemptEpoch>,
    overlaps: Vec<Overlap>,
    starts: u64,
}

impl Exclusivity {
    /// A process starts and takes its GPUs.
    pub fn started(&mut self, owner: Owner, gpus: &[GpuUuid]) {
        self.starts += 1;
        if let Some(first) = self.running.insert(owner.key, owner.epoch) {
            self.overlaps.push(Overlap::Task {
                key: owner.key,
                first,
                second: owner.epoch,
            });
        }
        let newest = self.newest.entry(owner.key).or_insert(owner.epoch);
        if owner.epoch < *newest {
            self.overlaps.push(Overlap::Backwards {
                key: owner.key,
                first: *newest,
                second: owner.epoch,
            });
        }
        *newest = owner.epoch.max(*newest);
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

    /// A process is gone and its GPUs are free, whatever the scheduler believes.
    pub fn ended(&mut self, owner: Owner) {
        if self.running.get(&owner.key) == Some(&owner.epoch) {
            self.running.remove(&owner.key);
        }
        self.gpus.retain(|_, holder| *holder != owner);
    }

    /// Everything that must not have happened, in order.
    #[must_use]
    pub fn overlaps(&self) -> &[Overlap] {
        &self.overlaps
    }

    /// Processes started so far.
    #[must_use]
    pub const fn starts(&self) -> u64 {
        self.starts
    }

    /// Processes that run now.
    #[must_use]
    pub fn running(&self) -> usize {
        self.running.len()
    }
}

#[cfg(test)]
mod tests {
    use muster_core::ids::{JobId, TaskIndex};

    use super::*;

    fn owner(job: u64, epoch: u64) -> Owner {
        let key = TaskKey {
            job: JobId(job),
            task: TaskIndex(0),
        };
        Owner {
            key,
            epoch: AttemptEpoch(epoch),
        }
    }

    #[test]
    fn a_gpu_that_was_given_back_may_be_taken() {
        let mut book = Exclusivity::default();
        book.started(owner(1, 10), &[GpuUuid(7)]);
        book.ended(owner(1, 10));
        book.started(owner(2, 11), &[GpuUuid(7)]);
        assert!(book.overlaps().is_empty());
    }

    #[test]
    fn each_kind_of_overlap_is_noticed() {
        let mut book = Exclusivity::default();
        book.started(owner(1, 10), &[GpuUuid(7)]);
        book.started(owner(2, 11), &[GpuUuid(7)]);
        assert!(matches!(book.overlaps(), [Overlap::Gpu { .. }]));
        book.started(owner(2, 12), &[]);
        assert!(matches!(book.overlaps(), [_, Overlap::Task { .. }]));
        book.ended(owner(2, 12));
        book.started(owner(2, 11), &[]);
        assert!(matches!(book.overlaps(), [_, _, Overlap::Backwards { .. }]));
    }
}
