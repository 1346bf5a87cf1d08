//! Streams of draws: one for everything that draws, so that what one thing draws changes nothing for the others.
//!
//! A fault that is left out of a world leaves every other draw as it was. What shifts nevertheless is the order in which
//! messages and timers meet: whoever waits less asks earlier, and the runtime's own choices (which of several ready tasks goes
//! first) come from one seed of their own.

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// Bits of a stream's number that count lives, and those that say whose it is.
const LIFE_BITS: u32 = 24;
const ID_BITS: u32 = 32;

/// What draws.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Domain {
    /// How large the cluster is.
    Shape,
    /// What is broken when; an act's number is its id.
    Act,
    /// A link, by both of its ends; a life for each direction.
    Link,
    /// A replica's machine.
    Replica,
    /// How a replica dies.
    Kill,
    /// A leader loop.
    Leader,
    /// A host's machine.
    Host,
    /// What runs on a host.
    Boot,
    /// A host's agent.
    Agent,
    /// A user; a life for each of its jobs.
    User,
    /// Machines for replicas that come later.
    Spares,
    /// An operator's errand.
    Errand,
    /// A replica's hub of watches.
    Watch,
    /// A watcher.
    Watcher,
    /// Who may do what; a life for each job of the user who says it.
    Access,
    /// A boot that was ordered.
    Reboot,
    /// How many hosts a large cluster has.
    Large,
    /// Whether and when all replicas are lost.
    Loss,
    /// Which hosts lose their accounts, and when.
    Accounts,
    /// Which links go bad, and when.
    BadLinks,
    /// Whether there is a hostile user, and what it asks for; a life for each request.
    Hostile,
    /// How long a user's SDK waits between two rounds of tries.
    Jitter,
}

/// The draws of one life of one thing. Ids have 32 bits and lives 24; more begin anew.
#[must_use]
pub fn draws(seed: u64, domain: Domain, id: u32, life: u32) -> ChaCha8Rng {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let life = u64::from(life) % (1 << LIFE_BITS);
    let above = (domain as u64) << (LIFE_BITS + ID_BITS);
    random.set_stream(above | (u64::from(id) << LIFE_BITS) | life);
    random
}

/// A seed for something that draws by itself.
#[must_use]
pub fn seed_of(seed: u64, domain: Domain, id: u32, life: u32) -> u64 {
    draws(seed, domain, id, life).random()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_are_apart_and_come_again() {
        let of = |domain, id, life| seed_of(7, domain, id, life);
        let all = [
            of(Domain::Shape, 0, 0),
            of(Domain::Act, 0, 0),
            of(Domain::Act, 1, 0),
            of(Domain::Act, 1, 1),
            of(Domain::User, u32::MAX, 0),
        ];
        let different: std::collections::BTreeSet<u64> = all.into_iter().collect();
        assert_eq!(different.len(), all.len());
        assert_eq!(of(Domain::Act, 1, 1), all[3]);
        assert_ne!(seed_of(8, Domain::Act, 1, 1), all[3]);
    }
}
