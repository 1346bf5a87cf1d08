//! Links that are bad: they lose some of what is sent, and deliver some requests twice.

use rand::Rng as _;
use rand_chacha::ChaCha8Rng;

use super::{Act, Deed, Place, Shape};
use crate::sim::draws::{Domain, draws};

/// Numbers of the acts that spoil links begin here: a world has fewer others.
const LINK_ACTS: u32 = 920_000;
/// Links of one world that go bad, at most.
const BAD_LINKS_MAX: u32 = 6;

/// In one world in four some links go bad until links are healed.
pub(super) fn draw_bad_links(seed: u64, shape: &Shape, faults_s: u64) -> Vec<Act> {
    let mut random = draws(seed, Domain::BadLinks, 0, 0);
    if !random.random_bool(0.25) {
        return Vec::new();
    }
    let count = random.random_range(1..=BAD_LINKS_MAX);
    let act = |number| {
        let (from, to) = draw_link(&mut random, shape);
        Act {
            number,
            at_ms: random.random_range(0..faults_s.max(1) * 1_000),
            deed: Deed::Spoil { from, to },
        }
    };
    (LINK_ACTS..LINK_ACTS + count).map(act).collect()
}

/// A link between a replica and somebody else, in either direction.
pub(super) fn draw_link(random: &mut ChaCha8Rng, shape: &Shape) -> (Place, Place) {
    let replica = Place::Replica(shape.draw_replica(random));
    let other = match random.random_range(0..4) {
        0 => Place::User(shape.draw_user(random)),
        1 => Place::Agent(shape.draw_host(random)),
        _ => Place::Replica(shape.draw_replica(random)),
    };
    if random.random_bool(0.5) {
        (replica, other)
    } else {
        (other, replica)
    }
}
