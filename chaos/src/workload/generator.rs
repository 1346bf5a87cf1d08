//! Jobs drawn from the published distribution of Microsoft's Philly cluster (Jeon et al., ATC'19), for
//! machines without the trace.

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::workload::TraceJob;

/// Share of each job size: GPUs, and jobs in a thousand. 86.7 % request one GPU; the mean is 1.74.
const SIZES: [(u32, u32); 6] = [(1, 867), (2, 52), (4, 41), (8, 33), (16, 5), (32, 2)];
/// Median run time in seconds.
const DURATION_MEDIAN_S: f64 = 1_321.0;
/// Standard deviation of the logarithm of the run time: puts the mean near the published 35,595 s.
const DURATION_SIGMA: f64 = 2.57;
/// Mean seconds between two submissions: 111,549 jobs in 130 days.
const ARRIVAL_MEAN_S: f64 = 100.7;
/// GPUs per host: larger jobs are gangs of whole hosts.
const GPUS_PER_HOST: u32 = 8;
/// Milliseconds per second.
const SECOND_MS: u64 = 1_000;

/// An endless stream of jobs, the same for the same seed.
#[derive(Debug)]
pub struct PhillyGenerator {
    random: ChaCha8Rng,
    clock_s: f64,
    count: u64,
}

impl PhillyGenerator {
    /// Creates a stream from a seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self {
            random: ChaCha8Rng::seed_from_u64(seed),
            clock_s: 0.0,
            count: 0,
        }
    }

    fn size(&mut self) -> u32 {
        let total: u32 = SIZES.iter().map(|(_, share)| share).sum();
        let mut draw = self.random.random_range(0..total);
        for (gpus, share) in SIZES {
            if draw < share {
                return gpus;
            }
            draw -= share;
        }
        1
    }

    /// Draws from a log-normal distribution; the normal comes from two uniform draws (Box and Muller).
    fn duration_s(&mut self) -> f64 {
        let radius = (-2.0 * (1.0 - self.random.random::<f64>()).ln()).sqrt();
        let angle = std::f64::consts::TAU * self.random.random::<f64>();
        DURATION_MEDIAN_S * (DURATION_SIGMA * radius * angle.cos()).exp()
    }
}

impl Iterator for PhillyGenerator {
    type Item = TraceJob;

    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "seconds are positive, and fractions of them do not matter"
    )]
    fn next(&mut self) -> Option<TraceJob> {
        self.clock_s -= ARRIVAL_MEAN_S * (1.0 - self.random.random::<f64>()).ln();
        let gpus = self.size();
        let job = TraceJob {
            name: format!("generated-{}", self.count),
            submit_ms: SECOND_MS * self.clock_s as u64,
            duration_ms: Some(SECOND_MS * self.duration_s().max(1.0) as u64),
            tasks: gpus.div_ceil(GPUS_PER_HOST),
            gpus_per_task: gpus.min(GPUS_PER_HOST),
            ..TraceJob::default()
        };
        self.count += 1;
        Some(job)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_is_a_stream() {
        let first: Vec<_> = PhillyGenerator::new(7).take(100).collect();
        assert_eq!(first, PhillyGenerator::new(7).take(100).collect::<Vec<_>>());
        assert_ne!(first, PhillyGenerator::new(8).take(100).collect::<Vec<_>>());
    }

    #[test]
    fn the_published_figures_come_out() {
        let jobs: Vec<_> = PhillyGenerator::new(1).take(20_000).collect();
        let single = jobs.iter().filter(|job| job.gpus() == 1).count();
        assert!((16_900..17_800).contains(&single), "{single}");
        let mut durations: Vec<_> = jobs.iter().filter_map(|job| job.duration_ms).collect();
        durations.sort_unstable();
        let median = durations[durations.len() / 2];
        assert!((1_150_000..1_500_000).contains(&median), "{median}");
    }
}
