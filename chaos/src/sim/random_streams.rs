//! Random streams: an independent one for everything that draws, so that one component's draws do not
//! change those of others.
//!
//! Leaving a fault out of a world leaves all other draws unchanged. What shifts nevertheless is the order
//! of messages and timers: a component that waits less calls earlier, and the runtime's own choices (which
//! of several ready tasks runs first) come from one separate seed.

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// Bits of a stream's number for the life, and for the id.
const LIFE_BITS: u32 = 24;
const ID_BITS: u32 = 32;

/// Owner of a random stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamOwner {
    /// Size of the cluster.
    Shape,
    /// Faults and their times; the id is the number of the fault.
    Fault,
    /// A link, identified by both ends; a life for each direction.
    Link,
    /// Machine of a replica.
    Replica,
    /// Kill of a replica.
    Kill,
    /// A leader loop.
    Leader,
    /// Machine of a host.
    Host,
    /// Processes on a host.
    Boot,
    /// Agent of a host.
    Agent,
    /// A user; a life for each of its jobs.
    User,
    /// Machines for later replicas.
    Spares,
    /// Operations of an operator.
    Errand,
    /// A replica's watch hub.
    Watch,
    /// A watcher.
    Watcher,
    /// Access changes; a life for each job of the user who makes them.
    Access,
    /// An ordered reboot.
    Reboot,
    /// Number of hosts of a large cluster.
    Large,
    /// Loss of all replicas: whether and when.
    Loss,
    /// Loss of accounts: on which hosts and when.
    Accounts,
    /// Bad links: which and when.
    BadLinks,
    /// Hostile user: whether there is one, and its requests; a life for each request.
    Hostile,
    /// Jitter of a user's SDK between two rounds of tries.
    Jitter,
}

/// The random stream of one life of one owner. Ids have 32 bits and lives 24; larger ones wrap around.
#[must_use]
pub fn draws(seed: u64, domain: StreamOwner, id: u32, life: u32) -> ChaCha8Rng {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let life = u64::from(life) % (1 << LIFE_BITS);
    let above = (domain as u64) << (LIFE_BITS + ID_BITS);
    random.set_stream(above | (u64::from(id) << LIFE_BITS) | life);
    random
}

/// A seed for a component with its own random generator.
#[must_use]
pub fn seed_of(seed: u64, domain: StreamOwner, id: u32, life: u32) -> u64 {
    draws(seed, domain, id, life).random()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_are_apart_and_come_again() {
        let of = |domain, id, life| seed_of(7, domain, id, life);
        let all = [
            of(StreamOwner::Shape, 0, 0),
            of(StreamOwner::Fault, 0, 0),
            of(StreamOwner::Fault, 1, 0),
            of(StreamOwner::Fault, 1, 1),
            of(StreamOwner::User, u32::MAX, 0),
        ];
        let different: std::collections::BTreeSet<u64> = all.into_iter().collect();
        assert_eq!(different.len(), all.len());
        assert_eq!(of(StreamOwner::Fault, 1, 1), all[3]);
        assert_ne!(seed_of(8, StreamOwner::Fault, 1, 1), all[3]);
    }
}
