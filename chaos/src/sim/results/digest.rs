//! Incremental digests of a replica's successive states: jobs are most of a state, and few of them change
//! at a time.

use std::sync::Arc;

use imbl::OrdMap;
use muster_engine::state::{Job, State};
use muster_model::ids::JobId;

/// Factor that mixes the digest of a job into that of a state (the prime of 64-bit FNV-1a).
const FACTOR: u64 = 0x0000_0100_0000_01b3;

/// Digest of a state with a cache of its jobs. Equal states have equal digests, whatever the history of the
/// cache.
#[derive(Clone, Debug, Default)]
pub struct Digest {
    /// In order of their ids.
    jobs: Vec<Digested>,
}

/// A job with its own digest.
#[derive(Clone, Debug)]
struct Digested {
    job: Arc<Job>,
    digest: u64,
}

impl Digest {
    /// The digest of a state; jobs unchanged since the previous state are not read again.
    pub fn of(&mut self, state: &State) -> u64 {
        let mut known = std::mem::take(&mut self.jobs).into_iter().peekable();
        for (id, job) in &state.jobs {
            while known.next_if(|before| before.job.id < *id).is_some() {}
            let same = known.next_if(|before| Arc::ptr_eq(&before.job, job));
            self.jobs
                .push(same.unwrap_or_else(|| Digested::new(*id, job)));
        }
        let rest = State {
            jobs: OrdMap::new(),
            ..state.clone()
        };
        { self.jobs.iter() }.fold(rest.state_hash(), |digest, job| {
            (digest ^ job.digest).wrapping_mul(FACTOR)
        })
    }
}

impl Digested {
    fn new(id: JobId, job: &Arc<Job>) -> Self {
        let alone = State {
            jobs: OrdMap::unit(id, Arc::clone(job)),
            ..State::default()
        };
        Self {
            job: Arc::clone(job),
            digest: alone.state_hash(),
        }
    }
}

#[cfg(test)]
mod tests {
    use muster_harness::{Cluster, gang};

    use super::*;

    #[test]
    fn a_digest_is_of_the_state_and_not_of_those_before_it() {
        let mut cluster = Cluster::with_hosts(2, 8);
        let mut digest = Digest::default();
        let mut seen = vec![digest.of(&cluster.state)];
        let mut jobs = Vec::new();
        for number in 0..3 {
            jobs.push(cluster.submit(gang(&format!("train-{number}"), 1, 8)));
            seen.push(digest.of(&cluster.state));
        }
        let with_all = cluster.state.clone();
        let mut without = with_all.clone();
        without.jobs.remove(&jobs[1]);
        seen.push(digest.of(&without));
        for (at, digest) in seen.iter().enumerate() {
            assert!(!seen[..at].contains(digest), "{at}");
        }
        assert_eq!(digest.of(&with_all), seen[3]);
        assert_eq!(Digest::default().of(&with_all), seen[3]);
        // Equal jobs need not be the same allocation.
        let mut copied = with_all;
        let copy = Job::clone(&copied.jobs[&jobs[0]]);
        copied.jobs.insert(jobs[0], Arc::new(copy));
        assert_eq!(digest.of(&copied), seen[3]);
    }
}
