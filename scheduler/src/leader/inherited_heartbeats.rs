//! Heartbeat times that a new leader inherits from earlier leaders.

use std::collections::BTreeMap;

use muster_control::reactor::HeartbeatRecord;
use muster_model::ids::{HostId, Revision};
use muster_model::time::MonotonicMs;

use crate::leader::heartbeat_store::HeartbeatReport;

/// The replicated heartbeat times of several replicas, on this replica's clock.
///
/// Every acknowledged heartbeat is in the memory of a majority, and two majorities have a replica in common:
/// so the reports of a majority bound every acknowledgement that any earlier leader gave, except those that a
/// restarted replica has forgotten. Those lie before its restart.
#[derive(Clone, Debug)]
pub(super) struct InheritedHeartbeats {
    now: MonotonicMs,
    is_complete: bool,
    reports: Vec<PeerReport>,
}

#[derive(Clone, Debug)]
struct PeerReport {
    began_at: MonotonicMs,
    received_at: BTreeMap<HostId, MonotonicMs>,
}

impl InheritedHeartbeats {
    /// Summarizes reports that were received at `now` or before; `is_complete` if they come from a majority
    /// of every set of voters.
    pub(super) fn new(now: MonotonicMs, reports: Vec<HeartbeatReport>, is_complete: bool) -> Self {
        let before = |ago_ms: u64| MonotonicMs(now.0.saturating_sub(ago_ms));
        Self {
            now,
            is_complete,
            reports: reports
                .into_iter()
                .map(|report| PeerReport {
                    began_at: before(report.remembers_ms),
                    received_at: report
                        .last_heartbeat_age_ms
                        .into_iter()
                        .map(|(host, ago_ms)| (host, before(ago_ms)))
                        .collect(),
                })
                .collect(),
        }
    }

    /// True if a majority reported.
    pub(super) const fn is_complete(&self) -> bool {
        self.is_complete
    }

    /// Last contact with a host. If no majority reported, its timers start now.
    pub(super) fn contact(&self, host: HostId) -> HeartbeatRecord {
        let received_at = self
            .reports
            .iter()
            .filter_map(|report| report.received_at.get(&host))
            .max();
        let leased_at = if self.is_complete {
            let bounds = self
                .reports
                .iter()
                .map(|report| *report.received_at.get(&host).unwrap_or(&report.began_at));
            bounds.max().unwrap_or(self.now)
        } else {
            self.now
        };
        HeartbeatRecord {
            last_contact_at: received_at.copied().unwrap_or(leased_at),
            leased_at,
            desired_revision: Revision::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: MonotonicMs = MonotonicMs(1_000_000);
    const HOST: HostId = HostId(3);

    fn report(remembers_ms: u64, ago_ms: Option<u64>) -> HeartbeatReport {
        let last_heartbeat_age_ms = ago_ms.map(|ago_ms| (HOST, ago_ms)).into_iter().collect();
        HeartbeatReport {
            remembers_ms,
            last_heartbeat_age_ms,
        }
    }

    fn ages(reports: Vec<HeartbeatReport>) -> (u64, u64) {
        let is_complete = reports.len() >= 2;
        let contact = InheritedHeartbeats::new(NOW, reports, is_complete).contact(HOST);
        (
            NOW.since(contact.last_contact_at),
            NOW.since(contact.leased_at),
        )
    }

    #[test]
    fn the_newest_heartbeat_that_any_replica_reports_counts() {
        assert_eq!(
            ages(vec![
                report(90_000, Some(7_000)),
                report(90_000, Some(4_000))
            ]),
            (4_000, 4_000)
        );
    }

    #[test]
    fn a_replica_without_a_time_for_a_host_bounds_it_by_its_own_start() {
        assert_eq!(
            ages(vec![report(90_000, None), report(90_000, Some(30_000))]),
            (30_000, 30_000)
        );
    }

    #[test]
    fn heartbeats_may_have_been_acknowledged_until_a_replica_restarted() {
        assert_eq!(
            ages(vec![report(5_000, None), report(90_000, Some(30_000))]),
            (30_000, 5_000)
        );
    }

    #[test]
    fn without_a_majority_leases_start_now() {
        assert_eq!(ages(vec![report(90_000, Some(30_000))]), (30_000, 0));
        assert_eq!(ages(Vec::new()), (0, 0));
    }
}
