//! Acts that occur only in some worlds.

use rand::Rng as _;
use rand_chacha::ChaCha8Rng;

use crate::sim::draws::{Domain, draws};
use crate::sim::plan::{Act, Deed};
use crate::sim::scale::Tempo;

/// A kind of act that occurs only in some worlds.
pub(super) struct Rare {
    /// Owner of its random stream.
    pub(super) domain: Domain,
    /// First number of its acts; other acts have lower numbers.
    pub(super) first_act: u32,
    /// Maximum count in a short world.
    pub(super) count_max: u32,
    /// In a long world there is at least one in this many seconds.
    pub(super) every_s: u64,
}

/// Draws such acts at any time, or none.
pub(super) fn draw_rare(
    rare: &Rare,
    (seed, tempo): (u64, Tempo),
    faults_s: u64,
    mut draw_deed: impl FnMut(&mut ChaCha8Rng) -> Deed,
) -> Vec<Act> {
    let mut random = draws(seed, rare.domain, 0, 0);
    if !random.random_bool(tempo.rare_share()) {
        return Vec::new();
    }
    let in_long_ones = u32::try_from(faults_s / rare.every_s).unwrap_or(u32::MAX);
    let count = random.random_range(1..=rare.count_max).max(in_long_ones);
    let act = |number| {
        let deed = draw_deed(&mut random);
        Act {
            number,
            at_ms: random.random_range(0..faults_s.max(1) * 1_000),
            deed,
        }
    };
    (rare.first_act..rare.first_act + count).map(act).collect()
}
