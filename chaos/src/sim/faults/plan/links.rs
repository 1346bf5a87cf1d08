//! Fault plan: bad links, which lose and delay some messages and deliver some requests twice.

use rand::Rng as _;
use rand_chacha::ChaCha8Rng;

use crate::sim::faults::fault::{Fault, NodeRef, ScheduledFault};
use crate::sim::faults::plan::Shape;
use crate::sim::faults::plan::optional::{OptionalFaults, draw_optional};
use crate::sim::random_streams::StreamOwner;
use crate::sim::scale::Tempo;

/// Frequency of bad links: a few per short world, and one in half an hour in long ones.
const BAD_LINKS: OptionalFaults = OptionalFaults {
    domain: StreamOwner::BadLinks,
    first_number: 920_000,
    count_max: 6,
    every_s: 1_800,
};

/// Draws in some worlds links that go bad until links are repaired.
pub(super) fn draw_bad_links(
    seed: u64,
    shape: &Shape,
    faults_s: u64,
    tempo: Tempo,
) -> Vec<ScheduledFault> {
    draw_optional(&BAD_LINKS, seed, tempo, faults_s, |random| {
        let (from, to) = draw_link(random, shape);
        Fault::DegradeLink { from, to }
    })
}

/// Draws a link between a replica and another node, in either direction.
pub(super) fn draw_link(random: &mut ChaCha8Rng, shape: &Shape) -> (NodeRef, NodeRef) {
    let replica = NodeRef::Replica(shape.draw_replica(random));
    let other = match random.random_range(0..4) {
        0 => NodeRef::User(shape.draw_user(random)),
        1 => NodeRef::Agent(shape.draw_host(random)),
        _ => NodeRef::Replica(shape.draw_replica(random)),
    };
    if random.random_bool(0.5) {
        (replica, other)
    } else {
        (other, replica)
    }
}
