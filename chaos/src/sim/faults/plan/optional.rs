//! Fault plan: faults that occur only in some worlds.

use rand::Rng as _;
use rand_chacha::ChaCha8Rng;

use crate::sim::faults::fault::{Fault, ScheduledFault};
use crate::sim::random_streams::{StreamOwner, draws};
use crate::sim::scale::Tempo;

/// A kind of fault that occurs only in some worlds.
pub(super) struct OptionalFaults {
    /// Owner of its random stream.
    pub(super) domain: StreamOwner,
    /// First number of its faults; other faults have lower numbers.
    pub(super) first_number: u32,
    /// Maximum count in a short world.
    pub(super) count_max: u32,
    /// In a long world there is at least one in this many seconds.
    pub(super) every_s: u64,
}

/// Draws such faults at any time, or none.
pub(super) fn draw_optional(
    optional: &OptionalFaults,
    seed: u64,
    tempo: Tempo,
    faults_s: u64,
    mut draw_fault: impl FnMut(&mut ChaCha8Rng) -> Fault,
) -> Vec<ScheduledFault> {
    let mut random = draws(seed, optional.domain, 0, 0);
    if !random.random_bool(tempo.rare_share()) {
        return Vec::new();
    }
    let in_long_ones = u32::try_from(faults_s / optional.every_s).unwrap_or(u32::MAX);
    let count = random
        .random_range(1..=optional.count_max)
        .max(in_long_ones);
    let scheduled = |number| {
        let fault = draw_fault(&mut random);
        ScheduledFault {
            number,
            at_ms: random.random_range(0..faults_s.max(1) * 1_000),
            fault,
        }
    };
    (optional.first_number..optional.first_number + count)
        .map(scheduled)
        .collect()
}
