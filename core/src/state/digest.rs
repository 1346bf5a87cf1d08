//! A hash of the whole state, compared between replicas every so many revisions.
//!
//! Hashing 100,000 jobs takes tens of milliseconds, so the hash is kept by record: a change marks its
//! record, and asking for the hash encodes only the marked ones. The sum of all record hashes does not
//! depend on the order in which they changed. The bytes hashed never leave the process, so bincode may
//! write them; replicas of different builds may disagree and must not be compared.

use std::sync::Arc;

use imbl::{OrdMap, OrdSet};
use serde::Serialize;
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

use crate::ids::{HostId, JobId};
use crate::state::State;

/// Hashes of all jobs and hosts, and which of them are out of date.
#[derive(Clone, Debug, Default)]
pub struct Digest {
    jobs: Hashes<JobId>,
    hosts: Hashes<HostId>,
}

/// Hashes of the records of one kind.
#[derive(Clone, Debug)]
struct Hashes<Key: Ord> {
    known: OrdMap<Key, u64>,
    sum: u64,
    touched: OrdSet<Key>,
}

impl<Key: Ord> Default for Hashes<Key> {
    fn default() -> Self {
        Self {
            known: OrdMap::new(),
            sum: 0,
            touched: OrdSet::new(),
        }
    }
}

impl<Key: Ord + Copy> Hashes<Key> {
    /// Hashes the touched records anew; those that are gone no longer count.
    fn settle<Record: Serialize>(
        &mut self,
        records: &OrdMap<Key, Arc<Record>>,
        scratch: &mut Vec<u8>,
    ) {
        for key in std::mem::take(&mut self.touched) {
            let stale = match records.get(&key) {
                Some(record) => {
                    let hash = hash_of(record.as_ref(), scratch);
                    self.sum = self.sum.wrapping_add(hash);
                    self.known.insert(key, hash)
                }
                None => self.known.remove(&key),
            };
            self.sum = self.sum.wrapping_sub(stale.unwrap_or(0));
        }
    }
}

fn hash_of(record: &impl Serialize, scratch: &mut Vec<u8>) -> u64 {
    scratch.clear();
    bincode::serde::encode_into_std_write(record, scratch, bincode::config::standard())
        .expect("records hold only types that serde derives, and a vector takes any bytes");
    xxh3_64(scratch)
}

impl Digest {
    /// Every record of the state is to be hashed.
    pub(crate) fn of_all(state: &State) -> Self {
        let mut digest = Self::default();
        digest.jobs.touched = state.jobs.keys().copied().collect();
        digest.hosts.touched = state.hosts.keys().copied().collect();
        digest
    }

    /// A job changed, came or went.
    pub(crate) fn touch_job(&mut self, job: JobId) {
        self.jobs.touched.insert(job);
    }

    /// A host changed or came.
    pub(crate) fn touch_host(&mut self, host: HostId) {
        self.hosts.touched.insert(host);
    }
}

impl State {
    /// A hash of everything replicated: equal states have equal hashes, at equal revisions on every
    /// replica of one build. Costs one encoding per record changed since the last call.
    ///
    /// Of the event log only the bounds count: its contents follow from the commands.
    pub fn state_hash(&mut self) -> u64 {
        let mut scratch = Vec::with_capacity(1_024);
        let mut digest = std::mem::take(&mut self.digest);
        digest.jobs.settle(&self.jobs, &mut scratch);
        digest.hosts.settle(&self.hosts, &mut scratch);
        let head = (
            (self.revision, self.time, self.leadership),
            (digest.jobs.sum, digest.hosts.sum, self.requests.hash()),
            (self.jobs.len(), self.hosts.len(), self.requests.len()),
            (
                self.events.compacted(),
                self.events.newest(),
                self.events.len(),
            ),
        );
        let seed = hash_of(&head, &mut scratch);
        self.digest = digest;
        self.queues.values().fold(seed, |sum, queue| {
            xxh3_64_with_seed(&hash_of(queue.as_ref(), &mut scratch).to_le_bytes(), sum)
        })
    }

    /// The same hash, computed from nothing but the records: what `state_hash` must equal.
    #[must_use]
    pub fn state_hash_afresh(&self) -> u64 {
        let mut copy = self.clone();
        copy.digest = Digest::of_all(self);
        copy.state_hash()
    }
}
