//! Adaptive heartbeat period: longer with very many workers, or when acknowledgements are slow.

use std::collections::VecDeque;

use muster_engine::desired;
use muster_engine::state::State;
use muster_model::ids::HostId;
use muster_model::timings::{HEARTBEATS_PER_LEASE_MIN, Timings};

/// Milliseconds that a heartbeat may wait for its acknowledgement, from its arrival, before the heartbeat
/// period grows: four rounds of replication of heartbeat times. The period grows in proportion to the excess.
pub const HEARTBEAT_DELAY_MS_MAX: u64 = 1_000;
/// Number of consecutive slow rounds required: an election or one slow disk write is not load.
const ROUNDS_JUDGED: usize = 8;
/// Maximum decrease per round as a fraction of the period, against oscillation: all workers would speed up at
/// once.
const FALL_PARTS: u64 = 16;

/// Heartbeat period of the workers during one term of leadership.
#[derive(Clone, Debug)]
pub struct Pace {
    timings: Timings,
    heartbeats_per_second_max: u64,
    /// Longest wait of a heartbeat in each of the last rounds.
    delays_ms: VecDeque<u64>,
    period_ms: u64,
}

impl Pace {
    /// Starts with the period of `timings`.
    #[must_use]
    pub fn new(timings: Timings, heartbeats_per_second_max: u64) -> Self {
        Self {
            timings,
            heartbeats_per_second_max: heartbeats_per_second_max.max(1),
            delays_ms: VecDeque::with_capacity(ROUNDS_JUDGED),
            period_ms: timings.heartbeat_ms,
        }
    }

    /// Milliseconds between two heartbeats of a worker, before its leases shorten it.
    #[must_use]
    pub const fn period_ms(&self) -> u64 {
        self.period_ms
    }

    /// Records a round of acknowledged heartbeats: the number of workers and the longest wait.
    pub fn round(&mut self, workers: usize, delay_ms: u64) {
        if self.delays_ms.len() == ROUNDS_JUDGED {
            self.delays_ms.pop_front();
        }
        self.delays_ms.push_back(delay_ms);
        let fall_ms = (self.period_ms / FALL_PARTS).max(1);
        let least_ms = self.period_ms.saturating_sub(fall_ms);
        self.period_ms = self.wanted_ms(workers).max(least_ms);
    }

    fn wanted_ms(&self, workers: usize) -> u64 {
        let workers = u64::try_from(workers).unwrap_or(u64::MAX);
        let by_number = workers.saturating_mul(1_000) / self.heartbeats_per_second_max;
        let heartbeat_ms = self.timings.heartbeat_ms;
        let by_delay =
            heartbeat_ms.saturating_mul(self.lasting_delay_ms()) / HEARTBEAT_DELAY_MS_MAX;
        by_number
            .max(by_delay)
            .clamp(heartbeat_ms, self.timings.heartbeat_ms_max())
    }

    /// Shortest delay among the last rounds; 0 until there are enough of them.
    fn lasting_delay_ms(&self) -> u64 {
        if self.delays_ms.len() < ROUNDS_JUDGED {
            return 0;
        }
        self.delays_ms.iter().copied().min().unwrap_or_default()
    }
}

/// Period for one host, short enough that at least [`HEARTBEATS_PER_LEASE_MIN`] heartbeats fall into each lease of
/// its tasks and that the host becomes suspect before a lease ends. A lease is the job's contract, and both
/// sides measure it by the job's own setting: the heartbeat period adapts.
pub(super) fn within_leases(state: &State, host: HostId, timings: Timings, period_ms: u64) -> u64 {
    if period_ms <= timings.heartbeat_ms {
        return timings.heartbeat_ms;
    }
    let units = desired::units_on(state, host);
    let leases = units.map(|running| running.job.spec.partition_grace_ms);
    let longest_ms = leases.min().map_or(u64::MAX, |lease_ms| {
        let suspect_in_time_ms =
            lease_ms.saturating_mul(timings.heartbeat_ms) / timings.suspect_ms.max(1);
        suspect_in_time_ms.min(lease_ms / HEARTBEATS_PER_LEASE_MIN)
    });
    period_ms.min(longest_ms).max(timings.heartbeat_ms)
}

#[cfg(test)]
mod tests {
    use muster_model::timings::HEARTBEATS_PER_SECOND_MAX;

    use super::*;

    fn pace() -> Pace {
        Pace::new(Timings::default(), HEARTBEATS_PER_SECOND_MAX)
    }

    fn after(pace: &mut Pace, rounds: usize, workers: usize, delay_ms: u64) -> u64 {
        for _ in 0..rounds {
            pace.round(workers, delay_ms);
        }
        pace.period_ms()
    }

    #[test]
    fn up_to_twenty_thousand_workers_send_heartbeats_every_five_seconds() {
        assert_eq!(after(&mut pace(), 1, 10_000, 260), 5_000);
        assert_eq!(after(&mut pace(), 1, 20_000, 260), 5_000);
    }

    #[test]
    fn the_heartbeat_period_grows_with_the_number_of_workers_up_to_a_limit() {
        assert_eq!(after(&mut pace(), 1, 30_000, 260), 7_500);
        assert_eq!(after(&mut pace(), 1, 40_000, 260), 10_000);
        assert_eq!(after(&mut pace(), 1, 1_000_000, 260), 15_000);
        assert_eq!(Timings::default().stretched(15_000).lost_ms, 135_000);
    }

    #[test]
    fn the_period_grows_when_a_leader_lags_for_long_but_not_when_it_lags_once() {
        let mut pace = pace();
        assert_eq!(after(&mut pace, 7, 100, 9_000), 5_000);
        assert_eq!(after(&mut pace, 1, 100, 300), 5_000);
        // Only after eight consecutive slow rounds.
        assert_eq!(after(&mut pace, 7, 100, 2_000), 5_000);
        assert_eq!(after(&mut pace, 1, 100, 2_000), 10_000);
        assert_eq!(after(&mut pace, 8, 100, 60_000), 15_000);
    }

    #[test]
    fn the_period_falls_slowly_and_all_the_way() {
        let mut pace = pace();
        assert_eq!(after(&mut pace, 1, 40_000, 260), 10_000);
        assert_eq!(after(&mut pace, 1, 100, 260), 9_375);
        assert_eq!(after(&mut pace, 20, 100, 260), 5_000);
    }

    #[test]
    fn a_period_never_falls_below_a_short_one_of_a_small_cluster() {
        let timings = Timings {
            heartbeat_ms: 3,
            suspect_ms: 9,
            lost_ms: 27,
        };
        let mut pace = Pace::new(timings, 1);
        assert_eq!(after(&mut pace, 1, 10, 0), 9);
        assert_eq!(after(&mut pace, 10, 0, 0), 3);
    }
}
