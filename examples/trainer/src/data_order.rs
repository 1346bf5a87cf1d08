//! Samples of a step as a pure function of seed and step, so that a resumed run uses the same samples.

use std::ops::Range;

use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;

/// Order of the training samples, reshuffled every epoch.
#[derive(Debug)]
pub(crate) struct DataOrder {
    seed: u64,
    samples: usize,
    batch: usize,
    epoch: u64,
    shuffled: Vec<usize>,
}

impl DataOrder {
    /// An order over `samples` samples in batches of `batch`, which must not exceed the number of samples.
    pub(crate) fn new(seed: u64, samples: usize, batch: usize) -> Self {
        let mut order = Self {
            seed,
            samples,
            batch,
            epoch: 0,
            shuffled: Vec::new(),
        };
        order.shuffle();
        order
    }

    /// Number of passes over the data before `step`.
    pub(crate) fn epoch_of(&self, step: u64) -> u64 {
        step / self.steps_per_epoch()
    }

    /// The samples of `rank` of `world_size` in `step` (counted from 0).
    pub(crate) fn share(&mut self, step: u64, rank: usize, world_size: usize) -> &[usize] {
        let epoch = self.epoch_of(step);
        if epoch != self.epoch {
            self.epoch = epoch;
            self.shuffle();
        }
        let batch_index = (step % self.steps_per_epoch()) as usize;
        let Range { start, end } = share_of(self.batch, rank, world_size);
        let first = batch_index * self.batch;
        &self.shuffled[first + start..first + end]
    }

    fn steps_per_epoch(&self) -> u64 {
        (self.samples / self.batch) as u64
    }

    fn shuffle(&mut self) {
        let mut random = ChaCha8Rng::seed_from_u64(self.seed);
        // A separate random stream for every epoch: no earlier epoch needs to be drawn to reach it.
        random.set_stream(self.epoch);
        self.shuffled = (0..self.samples).collect();
        self.shuffled.shuffle(&mut random);
    }
}

/// The part of `length` items for `index` of `parts`, as even as possible.
pub(crate) fn share_of(length: usize, index: usize, parts: usize) -> Range<usize> {
    length * index / parts..length * (index + 1) / parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_share_every_batch_without_overlap_and_an_epoch_sees_no_sample_twice() {
        let mut order = DataOrder::new(7, 100, 25);
        let mut seen = Vec::new();
        for step in 0..4 {
            for rank in 0..3 {
                seen.extend_from_slice(order.share(step, rank, 3));
            }
        }
        seen.sort_unstable();
        assert_eq!(seen, (0..100).collect::<Vec<_>>());
    }

    #[test]
    fn a_resumed_order_continues_like_an_uninterrupted_one() {
        let mut whole = DataOrder::new(7, 100, 25);
        for step in 0..9 {
            whole.share(step, 0, 2);
        }
        let mut resumed = DataOrder::new(7, 100, 25);
        assert_eq!(whole.share(9, 1, 2), resumed.share(9, 1, 2));
    }

    #[test]
    fn epochs_and_seeds_differ() {
        let first = DataOrder::new(7, 100, 100).share(0, 0, 1).to_vec();
        assert_ne!(first, DataOrder::new(7, 100, 100).share(1, 0, 1));
        assert_ne!(first, DataOrder::new(8, 100, 100).share(0, 0, 1));
    }
}
