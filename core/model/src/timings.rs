//! Heartbeat and lease arithmetic: all waiting times, and why they are safe without synchronized clocks.
//!
//! A worker records its own time before it sends a heartbeat; the leader starts the lease `L` on receipt,
//! which is later. With every clock within `1 +- rho` of true rate and `K` the maximum time to kill a task, a
//! worker that fences itself `F` after the send time of its last acknowledged heartbeat is done before the
//! leader's `L` is over if `F <= L (1 - rho) / (1 + rho) - K`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::limits;

/// Periods of the heartbeat protocol, in milliseconds; the same on all replicas.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Timings {
    /// Default period between two heartbeats of a worker.
    pub heartbeat_ms: u64,
    /// Silence after which nothing new is placed on a host.
    pub suspect_ms: u64,
    /// Silence after which a host is lost.
    pub lost_ms: u64,
}

impl Default for Timings {
    /// 5 s, 15 s and 45 s: the product's promise P3.
    fn default() -> Self {
        Self {
            heartbeat_ms: 5_000,
            suspect_ms: 15_000,
            lost_ms: 45_000,
        }
    }
}

impl Timings {
    /// Longest heartbeat period that a worker may be assigned: a third of the silence after which a host is
    /// lost. A new leader does not know the period set by its predecessor; three heartbeats fall into the
    /// time that it waits.
    #[must_use]
    pub const fn heartbeat_ms_max(&self) -> u64 {
        let third = self.lost_ms / HEARTBEATS_MISSED_MIN;
        if third > self.heartbeat_ms {
            third
        } else {
            self.heartbeat_ms
        }
    }

    /// Timings for a worker with this heartbeat period: silence is measured in heartbeats, so it becomes
    /// suspect and lost after the same number of missing ones.
    #[must_use]
    pub fn stretched(&self, period_ms: u64) -> Self {
        if period_ms <= self.heartbeat_ms {
            return *self;
        }
        let stretch = |span_ms: u64| span_ms.saturating_mul(period_ms) / self.heartbeat_ms.max(1);
        Self {
            heartbeat_ms: period_ms,
            suspect_ms: stretch(self.suspect_ms),
            lost_ms: stretch(self.lost_ms),
        }
    }

    /// Time that a worker with this heartbeat period waits for an acknowledgement, counted from the last one,
    /// before it looks for another leader: after an unanswered heartbeat, half of the time left until its
    /// host would become suspect. The other half is for finding the next leader, which only the silence of the
    /// previous one may delay. At the product's timings this is 10 s.
    #[must_use]
    pub const fn leader_timeout_ms(&self, period_ms: u64) -> u64 {
        let period_ms = if period_ms > self.heartbeat_ms {
            period_ms
        } else {
            self.heartbeat_ms
        };
        period_ms + self.suspect_ms.saturating_sub(self.heartbeat_ms) / 2
    }

    /// Shortest `partition_grace` with which a task survives a lost heartbeat: its worker must not fence
    /// itself before the next one is acknowledged.
    #[must_use]
    pub const fn partition_grace_ms_min(&self) -> u64 {
        let heartbeats = HEARTBEATS_PER_LEASE_MIN * self.heartbeat_ms;
        if heartbeats > limits::PARTITION_GRACE_MS_MIN {
            heartbeats
        } else {
            limits::PARTITION_GRACE_MS_MIN
        }
    }
}

/// Minimum number of heartbeats within a lease: `fence_after_ms` of four is more than two, and that of three
/// is not.
pub const HEARTBEATS_PER_LEASE_MIN: u64 = 4;
/// Missing heartbeats before anything is concluded from it, at the product's timings.
const HEARTBEATS_MISSED_MIN: u64 = 3;
/// Heartbeats per second above which a leader lengthens the heartbeat period: twice the rate of 10,000
/// workers. The rate at which Nomad's servers scale, coarser (50 a second there).
pub const HEARTBEATS_PER_SECOND_MAX: u64 = 4_000;
/// Milliseconds for which a lease leaves a task undisturbed, besides its grace and the time to kill it, if
/// both lease and grace are set.
pub const LEASE_UNDISTURBED_MS: u64 = 30_000;
/// The last sixth of a lease is for asking the task to stop, however short the lease is.
const WARNING_LEASE_PARTS: u64 = 6;
/// Maximum clock drift, in parts per thousand: a hundred times what NTP tolerates, and a rate at which a
/// clock may be slewed, short of chrony's maximum (8.3 %).
pub const CLOCK_DRIFT_PERMILLE: u64 = 50;
/// Maximum time to kill a task's processes; a quarter of the lease where that is less.
pub const KILL_MS_MAX: u64 = 10_000;

/// Time after the send time of its last acknowledged heartbeat at which a worker must have started to kill a
/// task with this `partition_grace`, in milliseconds.
///
/// 45 s gives 30.7 s, 300 s gives 261 s.
#[must_use]
pub const fn fence_after_ms(partition_grace_ms: u64) -> u64 {
    let drifted =
        partition_grace_ms * (1_000 - CLOCK_DRIFT_PERMILLE) / (1_000 + CLOCK_DRIFT_PERMILLE);
    drifted - kill_ms(partition_grace_ms)
}

/// Time before the end of its lease at which a task is asked to stop, in milliseconds; 0 if it is not asked.
///
/// The task gets its own grace, as far as the lease ([`fence_after_ms`]) leaves it undisturbed for
/// [`LEASE_UNDISTURBED_MS`] before that, but a sixth of the lease in any case. The request cannot be
/// withdrawn, so a shorter disconnection must not trigger it: under a lease of 45 s a partition of 20 s has
/// no effect, even if the last heartbeat before it was 5 s old. The task is also left alone until enough
/// heartbeats are missing that a new leader had time to make contact: a lease hardly longer than that leaves
/// no time for a request.
#[must_use]
pub fn lease_warning_ms(stop_grace_ms: u64, partition_grace_ms: u64, heartbeat_ms: u64) -> u64 {
    let lease_ms = fence_after_ms(partition_grace_ms);
    let untouched_ms = heartbeat_ms.saturating_mul(HEARTBEATS_MISSED_MIN);
    let room_ms = lease_ms.saturating_sub(untouched_ms);
    let spare_ms = lease_ms.saturating_sub(LEASE_UNDISTURBED_MS);
    stop_grace_ms
        .min(spare_ms.max(lease_ms / WARNING_LEASE_PARTS))
        .min(room_ms)
}

/// Time reserved for killing within a lease, in milliseconds.
#[must_use]
pub const fn kill_ms(partition_grace_ms: u64) -> u64 {
    let quarter = partition_grace_ms / 4;
    if quarter < KILL_MS_MAX {
        quarter
    } else {
        KILL_MS_MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shortest_lease_survives_a_lost_heartbeat() {
        for heartbeat_ms in [500, 2_000, 5_000, 30_000] {
            let timings = Timings {
                heartbeat_ms,
                ..Timings::default()
            };
            let fence = fence_after_ms(timings.partition_grace_ms_min());
            assert!(fence > 2 * heartbeat_ms, "{heartbeat_ms}: {fence}");
        }
    }

    #[test]
    fn a_task_is_asked_to_stop_before_its_lease_ends_but_not_for_one_lost_heartbeat() {
        // A sixth of what the lease leaves, as the grace is longer; the whole grace.
        assert_eq!(lease_warning_ms(30_000, 45_000, 5_000), 5_119);
        assert_eq!(lease_warning_ms(30_000, 300_000, 5_000), 30_000);
        // A job that sets its lease by its grace gets its grace minus the drift of clocks.
        assert_eq!(lease_warning_ms(60_000, 100_000, 5_000), 50_476);
        // No time for a request in a lease of three heartbeats; no request without a grace.
        assert_eq!(lease_warning_ms(30_000, 15_000, 5_000), 0);
        assert_eq!(lease_warning_ms(0, 300_000, 5_000), 0);
        // A partition of 20 s that starts right before a heartbeat: no task is asked.
        let asked = fence_after_ms(45_000) - lease_warning_ms(30_000, 45_000, 5_000);
        assert!(asked > 5_000 + 20_000, "{asked}");
        for lease in [5_000, 15_000, 20_000, 45_000, 300_000] {
            let asked = fence_after_ms(lease) - lease_warning_ms(60_000, lease, 5_000);
            assert!(
                asked >= fence_after_ms(lease).min(15_000),
                "{lease}: {asked}"
            );
        }
    }

    #[test]
    fn default_leases_hold_although_clocks_differ_by_five_percent() {
        assert_eq!(fence_after_ms(45_000), 30_714);
        assert_eq!(fence_after_ms(300_000), 261_428);
        // A worker 5 % slow, a leader 5 % fast (fault 40): dead after 42.86 s of true time at the latest,
        // when the leader's 45 s are over.
        for lease in [45_000, 300_000] {
            let dead_after_ms = (fence_after_ms(lease) + kill_ms(lease)) * 100 / 95;
            let over_after_ms = lease * 100 / 105;
            assert!(
                dead_after_ms <= over_after_ms,
                "{lease}: {dead_after_ms} > {over_after_ms}"
            );
        }
    }

    #[test]
    fn a_fenced_worker_is_done_before_the_lease_is_over() {
        for lease in [
            limits::PARTITION_GRACE_MS_MIN,
            9_000,
            45_000,
            300_000,
            86_400_000,
        ] {
            let fence = fence_after_ms(lease);
            // The worker's clock runs slow, the leader's fast: the worst case.
            let true_time = (fence + kill_ms(lease)) * 1_000 / (1_000 - CLOCK_DRIFT_PERMILLE);
            let leader_time = true_time * (1_000 + CLOCK_DRIFT_PERMILLE) / 1_000;
            assert!(leader_time <= lease, "{lease}: {leader_time}");
        }
    }
}
