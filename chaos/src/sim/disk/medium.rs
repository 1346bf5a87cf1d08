//! Contents of a simulated disk, and the damage they may take.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use muster_raft_store::storage::disk::{LogChange, MetaKey};
use tokio::time::Instant;

use crate::sim::disk::{DiskFault, FalseDurability};

/// Error number of a failing disk.
const EIO: i32 = 5;
/// One in this many decays hits a snapshot, if there is one.
const SNAPSHOTS_AMONG: usize = 5;
/// Number of votes forgotten at once: a vote is stored when it is given, and again when it has won.
const VOTES_FORGOTTEN: usize = 3;

/// Location of a flipped bit: the damaged and the original content.
#[derive(Clone, Debug)]
pub(super) enum Damage {
    /// An entry of the log.
    Entry {
        index: u64,
        bad: Vec<u8>,
        good: Vec<u8>,
    },
    /// A snapshot.
    Snapshot {
        name: String,
        bad: Arc<[u8]>,
        good: Arc<[u8]>,
    },
}

#[derive(Debug, Default)]
pub(super) struct Medium {
    /// Contents seen by readers, whether durable or not.
    pub(super) visible: Contents,
    /// Contents that certainly survive a kill.
    pub(super) durable: Contents,
    /// Writes after `durable`, in order; each is atomic.
    pub(super) pending: Vec<Vec<LogChange>>,
    /// Published snapshots (durable) and staged ones (lost at a kill).
    pub(super) published: BTreeMap<String, Arc<[u8]>>,
    pub(super) staged: BTreeMap<String, Arc<[u8]>>,
    /// Counts mounts; an older mount can no longer write.
    pub(super) mount: u64,
    pub(super) deceit: FalseDurability,
    pub(super) condition: DiskFault,
    /// Whether a write of this mount failed for lack of space.
    pub(super) ran_out_of_space: bool,
    /// Time of the first log write or sync of this mount that failed because of the disk.
    pub(super) failed: Option<Instant>,
    /// Decayed content that was not replaced since.
    pub(super) damage: Option<Damage>,
    /// Whether anything decayed since the disk was mounted.
    pub(super) was_damaged: bool,
    /// Number of writes of this mount made durable; number of syncs requested, and completed.
    pub(super) made_durable: usize,
    pub(super) syncs_asked: u64,
    pub(super) syncs_done: u64,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Contents {
    pub(super) entries: BTreeMap<u64, Vec<u8>>,
    pub(super) meta: BTreeMap<MetaKey, Vec<u8>>,
    /// Votes before the newest one.
    pub(super) earlier_votes: Vec<Vec<u8>>,
}

impl Contents {
    pub(super) fn change(&mut self, change: &LogChange) {
        match change {
            LogChange::PutEntry { index, record } => {
                self.entries.insert(*index, record.clone());
            }
            LogChange::RemoveEntries { from, to } => {
                self.entries
                    .retain(|index, _| !(*from..*to).contains(index));
            }
            LogChange::PutMeta { key, record } => {
                let before = self.meta.insert(*key, record.clone());
                if *key == MetaKey::Vote {
                    self.earlier_votes.extend(before);
                }
            }
        }
    }

    /// Reverts to an earlier vote.
    pub(super) fn forget_votes(&mut self) {
        let kept = self.earlier_votes.len().saturating_sub(VOTES_FORGOTTEN - 1);
        self.earlier_votes.truncate(kept);
        match self.earlier_votes.pop() {
            Some(earlier) => self.meta.insert(MetaKey::Vote, earlier),
            None => self.meta.remove(&MetaKey::Vote),
        };
    }
}

impl Medium {
    pub(super) fn decay(&mut self, at: usize) -> bool {
        if self.damage.is_some() {
            return false;
        }
        let newest = self.published.last_key_value();
        let newest = newest.filter(|_| at.is_multiple_of(SNAPSHOTS_AMONG));
        self.damage = if let Some((name, good)) = newest {
            let bad = Arc::from(flipped(good, at).as_slice());
            let (name, good) = (name.clone(), Arc::clone(good));
            Some(Damage::Snapshot { name, bad, good })
        } else {
            let entries = &self.durable.entries;
            let chosen = entries.iter().nth(at % entries.len().max(1));
            chosen.map(|(index, good)| Damage::Entry {
                index: *index,
                bad: flipped(good, at),
                good: good.clone(),
            })
        };
        self.replace(true);
        self.was_damaged |= self.damage.is_some();
        self.damage.is_some()
    }

    /// Replaces the original content by the damaged one, or the reverse, if it is still there.
    pub(super) fn replace(&mut self, by_bad: bool) {
        match self.damage.clone() {
            Some(Damage::Entry { index, bad, good }) => {
                let (old, new) = if by_bad { (good, bad) } else { (bad, good) };
                for contents in [&mut self.visible, &mut self.durable] {
                    if let Some(record) = contents.entries.get_mut(&index)
                        && *record == old
                    {
                        record.clone_from(&new);
                    }
                }
            }
            Some(Damage::Snapshot { name, bad, good }) => {
                let (old, new) = if by_bad { (good, bad) } else { (bad, good) };
                if let Some(bytes) = self.published.get_mut(&name)
                    && *bytes == old
                {
                    *bytes = new;
                }
            }
            None => {}
        }
    }

    pub(super) fn is_damaged(&self) -> bool {
        match &self.damage {
            Some(Damage::Entry { index, bad, .. }) => self.visible.entries.get(index) == Some(bad),
            Some(Damage::Snapshot { name, bad, .. }) => {
                // Only the newest snapshot is read.
                self.published.last_key_value() == Some((name, bad))
            }
            None => false,
        }
    }

    pub(super) fn restore(&mut self) {
        self.replace(false);
        self.damage = None;
    }

    /// The error of a write to a disk in this condition, if any.
    pub(super) fn refusal(&mut self) -> Option<io::Error> {
        if self.condition.full {
            self.ran_out_of_space = true;
            return Some(io::Error::from(io::ErrorKind::StorageFull));
        }
        let fails = self.condition.failing && self.deceit != FalseDurability::Errors;
        fails.then(|| io::Error::from_raw_os_error(EIO))
    }
}

/// Bytes with one bit flipped.
pub(super) fn flipped(bytes: &[u8], at: usize) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    let bits = bytes.len() * 8;
    if bits > 0 {
        let bit = at % bits;
        bytes[bit / 8] ^= 1 << (bit % 8);
    }
    bytes
}

// A panic while the lock is held ends the world anyway, and the data has no invariants.
pub(super) fn lock(medium: &Mutex<Medium>) -> MutexGuard<'_, Medium> {
    medium.lock().unwrap_or_else(PoisonError::into_inner)
}
