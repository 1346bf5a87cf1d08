//! Failure rate of the infrastructure, and the checkpoint interval advised from it.
//!
//! Young and Daly: if a save takes `w` ms and failures are `M` ms apart on average, the least work is lost
//! with about `sqrt(2 w M)` between two saves; Daly's next terms are `w/3 + w sqrt(2 w M) / (18 M) - w`.
//! Integer arithmetic only, so every replica gives the same advice.

use muster_model::checkpoint_interval::{interval_ms, median_save_ms};
use serde::{Deserialize, Serialize};

use crate::state::Unit;

/// Prior for host-milliseconds per failure: 6.5 failures in 1,000 host-days (Meta's RSC-1). It weighs as much
/// as one observed failure.
const PRIOR_HOST_MS: u64 = 13_292_307_692;

/// Observed run time and failures of attempts in this cluster.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reliability {
    /// Run time of attempts in milliseconds, times their hosts.
    pub host_ms: u64,
    /// Attempts that ran and were ended by the infrastructure.
    pub failures: u64,
}

impl Reliability {
    /// Returns the mean milliseconds between failures of an attempt on this many hosts.
    #[must_use]
    pub fn mean_time_ms(&self, hosts: usize) -> u64 {
        let seen = self.host_ms.saturating_add(PRIOR_HOST_MS);
        let failures = self.failures.saturating_add(1);
        seen / failures.saturating_mul((hosts as u64).max(1))
    }

    /// Returns the advised milliseconds between two saves of a unit on this many hosts; `None` if no save
    /// time was reported.
    #[must_use]
    pub fn advice_ms(&self, unit: &Unit, hosts: usize) -> Option<u64> {
        let save_ms = median_save_ms(unit.checkpoints.iter().map(|it| it.save_ms))?;
        Some(interval_ms(save_ms, self.mean_time_ms(hosts)))
    }
}

#[cfg(test)]
mod tests {
    use muster_model::checkpoint_interval::ADVICE_MS_MAX;

    use super::*;

    /// 1,024 GPUs on 128 hosts at 6.5 failures in 1,000 host-days: once in 28.8 hours. Young's formula gives
    /// 24 minutes for saves of 10 s and 59 for 60 s; Daly subtracts two thirds of a save.
    #[test]
    fn the_suggested_checkpoint_interval_is_youngs_with_dalys_correction() {
        let known = Reliability::default();
        let mean = known.mean_time_ms(128);
        assert_eq!(mean / 360_000, 288);
        assert_eq!(interval_ms(10_000, mean) / 60_000, 23);
        assert_eq!(interval_ms(60_000, mean) / 60_000, 58);
    }

    #[test]
    fn observed_failures_outweigh_the_prior_as_host_time_grows() {
        let quiet = Reliability {
            host_ms: 100 * PRIOR_HOST_MS,
            failures: 0,
        };
        let rough = Reliability {
            failures: 1_000,
            ..quiet
        };
        assert_eq!(quiet.mean_time_ms(1), 101 * PRIOR_HOST_MS);
        assert_eq!(rough.mean_time_ms(1), 101 * PRIOR_HOST_MS / 1_001);
        assert!(
            interval_ms(60_000, rough.mean_time_ms(64))
                < interval_ms(60_000, quiet.mean_time_ms(64))
        );
    }

    #[test]
    fn the_suggested_checkpoint_interval_is_bounded() {
        assert_eq!(interval_ms(3_600_000, u64::MAX), ADVICE_MS_MAX);
        assert_eq!(interval_ms(60_000, 10_000), 10_000);
        assert_eq!(interval_ms(0, 0), 1);
    }
}
