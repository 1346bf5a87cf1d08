//! Fault plan: bad links, which lose and delay some messages and deliver some requests twice.

use rand::Rng as _;
use rand_chacha::ChaCha8Rng;

use crate::sim::draws::Domain;
use crate::sim::plan::rare::{Rare, draw_rare};
use crate::sim::plan::{Act, Deed, Place, Shape};
use crate::sim::scale::Tempo;

/// Frequency of bad links: a few per short world, and one in half an hour in long ones.
const BAD_LINKS: Rare = Rare {
    domain: Domain::BadLinks,
    first_act: 920_000,
    count_max: 6,
    every_s: 1_800,
};

/// Draws in some worlds links that go bad until links are repaired.
pub(super) fn draw_bad_links(seed: u64, shape: &Shape, faults_s: u64, tempo: Tempo) -> Vec<Act> {
    draw_rare(&BAD_LINKS, (seed, tempo), faults_s, |random| {
        let (from, to) = draw_link(random, shape);
        Deed::Spoil { from, to }
    })
}

/// Draws a link between a replica and another node, in either direction.
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
