//! Answers by request id, which make submissions idempotent.

use imbl::{OrdMap, OrdSet};
use muster_model::ids::{HostId, JobId, PipelineId, RequestId, Revision};
use muster_model::time::TimeMs;
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_64;

/// Answer of a command that took effect.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Answer {
    /// Success without a result.
    Done,
    /// A leadership began: the revision is its epoch.
    Began,
    /// The job of a submission (or of the first one with this request id).
    Job(JobId),
    /// The pipeline of a submission (or of the first one with this request id).
    Pipeline(PipelineId),
    /// The registered host.
    Host(HostId),
    /// Number of records pruned or expired.
    Count(u64),
}

/// An answer kept for repeated requests.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredAnswer {
    /// Revision of the first command with the request id.
    pub revision: Revision,
    /// When the answer was given.
    pub at: TimeMs,
    /// Fingerprint of the request (64-bit hash of its stable bytes), to detect a reused id.
    pub fingerprint: u64,
    /// The answer.
    pub answer: Answer,
}

/// Answers by request id, and by age for pruning.
#[derive(Clone, Debug, Default)]
pub struct RequestLog {
    answers: OrdMap<RequestId, StoredAnswer>,
    by_age: OrdSet<(TimeMs, RequestId)>,
    /// Wrapping sum of the hashes of all answers, independent of their order.
    hash_sum: u64,
}

/// Returns a 64-bit hash of one answer under its request id.
fn hash_of(request: RequestId, stored: &StoredAnswer) -> u64 {
    let (kind, value) = match stored.answer {
        Answer::Done => (0, 0),
        Answer::Began => (1, 0),
        Answer::Job(job) => (2, job.get()),
        Answer::Host(host) => (3, u64::from(host.get())),
        Answer::Count(count) => (4, count),
        Answer::Pipeline(pipeline) => (5, pipeline.get()),
    };
    let mut bytes = [0; 56];
    bytes[..16].copy_from_slice(&request.0.to_le_bytes());
    let words = [
        stored.revision.get(),
        stored.at.0,
        stored.fingerprint,
        kind,
        value,
    ];
    for (slot, word) in bytes[16..].chunks_exact_mut(8).zip(words) {
        slot.copy_from_slice(&word.to_le_bytes());
    }
    xxh3_64(&bytes)
}

impl RequestLog {
    /// Returns the earlier answer to this request.
    #[must_use]
    pub fn get(&self, request: RequestId) -> Option<&StoredAnswer> {
        self.answers.get(&request)
    }

    /// Stores an answer.
    pub fn insert(&mut self, request: RequestId, answer: StoredAnswer) {
        let (at, hash) = (answer.at, hash_of(request, &answer));
        if let Some(replaced) = self.answers.insert(request, answer) {
            self.by_age.remove(&(replaced.at, request));
            self.hash_sum = self.hash_sum.wrapping_sub(hash_of(request, &replaced));
        }
        self.by_age.insert((at, request));
        self.hash_sum = self.hash_sum.wrapping_add(hash);
    }

    /// Removes up to `count_max` answers given before `before`, oldest first; returns the number removed.
    pub fn prune(&mut self, before: TimeMs, count_max: usize) -> usize {
        let mut pruned = 0;
        while pruned < count_max {
            let Some(&(at, request)) = self.by_age.get_min() else {
                break;
            };
            if at >= before {
                break;
            }
            self.by_age.remove(&(at, request));
            if let Some(forgotten) = self.answers.remove(&request) {
                self.hash_sum = self.hash_sum.wrapping_sub(hash_of(request, &forgotten));
            }
            pruned += 1;
        }
        pruned
    }

    /// Returns when the oldest kept answer was given.
    #[must_use]
    pub fn oldest(&self) -> Option<TimeMs> {
        self.by_age.get_min().map(|(at, _)| *at)
    }

    /// Returns all answers by request id.
    pub fn iter(&self) -> impl Iterator<Item = (RequestId, &StoredAnswer)> {
        self.answers
            .iter()
            .map(|(request, answer)| (*request, answer))
    }

    /// Rebuilds a log from the parts of a snapshot.
    #[must_use]
    pub fn restore(answers: Vec<(RequestId, StoredAnswer)>) -> Self {
        let mut log = Self::default();
        for (request, answer) in answers {
            log.insert(request, answer);
        }
        log
    }

    /// Returns a hash of all answers, maintained with every change.
    #[must_use]
    pub const fn hash(&self) -> u64 {
        self.hash_sum
    }

    /// Returns the number of kept answers.
    #[must_use]
    pub fn len(&self) -> usize {
        self.answers.len()
    }

    /// True if no answer is kept.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.answers.is_empty()
    }
}
