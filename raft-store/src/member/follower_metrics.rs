//! Metrics of a leader's followers.

use std::collections::{BTreeMap, BTreeSet};

use crate::replica::status::FollowerStatus;

/// Metrics of one follower.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FollowerMetrics {
    /// Replica id of the follower.
    pub(crate) id: u64,
    /// Log entries it is missing.
    pub(crate) lag_entries: u64,
    /// Milliseconds since its last answer; if it never answered, since it was first reported.
    pub(crate) silence_ms: u64,
}

impl FollowerMetrics {
    /// Zeros for a replica that no longer follows this one: its series remains, and must not keep old
    /// values.
    const fn zero(id: u64) -> Self {
        Self {
            id,
            lag_entries: 0,
            silence_ms: 0,
        }
    }
}

/// Followers that a replica reports in its metrics.
#[derive(Debug, Default)]
pub(crate) struct ReportedFollowers {
    /// Term of the last report.
    term: u64,
    /// Time at which each follower was first reported in that term, in milliseconds of the reporter's
    /// clock.
    since_ms: BTreeMap<u64, u64>,
}

impl ReportedFollowers {
    /// Returns the metrics at `now_ms` of a replica with these followers in this term; none if it does not
    /// lead.
    pub(crate) fn report(
        &mut self,
        term: u64,
        now_ms: u64,
        followers: &[FollowerStatus],
    ) -> Vec<FollowerMetrics> {
        if self.term != term {
            self.term = term;
            // Answers received in an earlier term of leadership do not count in this one.
            self.since_ms.values_mut().for_each(|since| *since = now_ms);
        }
        let mut reported: Vec<FollowerMetrics> = followers
            .iter()
            .map(|follower| self.metrics_of(follower, now_ms))
            .collect();
        let present: BTreeSet<u64> = followers.iter().map(|follower| follower.id).collect();
        let gone = self.since_ms.keys().filter(|id| !present.contains(id));
        reported.extend(gone.map(|id| FollowerMetrics::zero(*id)));
        self.since_ms.retain(|id, _| present.contains(id));
        reported
    }

    fn metrics_of(&mut self, follower: &FollowerStatus, now_ms: u64) -> FollowerMetrics {
        let since_ms = *self.since_ms.entry(follower.id).or_insert(now_ms);
        let since_first_report_ms = now_ms.saturating_sub(since_ms);
        FollowerMetrics {
            id: follower.id,
            lag_entries: follower.lag_entries,
            silence_ms: follower.last_answer_ago_ms.unwrap_or(since_first_report_ms),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn follower(id: u64, last_heartbeat_age_ms: Option<u64>) -> FollowerStatus {
        FollowerStatus {
            id,
            matched: None,
            lag_entries: 7,
            last_answer_ago_ms: last_heartbeat_age_ms,
        }
    }

    fn metrics_of(id: u64, silence_ms: u64) -> FollowerMetrics {
        FollowerMetrics {
            id,
            lag_entries: 7,
            silence_ms,
        }
    }

    #[test]
    fn a_follower_that_never_answered_is_silent_since_the_leadership_began() {
        let mut followers = ReportedFollowers::default();
        let all = [follower(2, Some(40)), follower(3, None)];
        assert_eq!(
            followers.report(1, 500, &all),
            [metrics_of(2, 40), metrics_of(3, 0)]
        );
        assert_eq!(
            followers.report(1, 12_500, &all),
            [metrics_of(2, 40), metrics_of(3, 12_000)]
        );
        // A replica that joins long after the election counts as silent since it joined.
        let more = [follower(3, Some(10)), follower(4, None)];
        followers.report(1, 20_000, &more);
        assert_eq!(
            followers.report(1, 21_000, &more),
            [metrics_of(3, 10), metrics_of(4, 1_000)]
        );
        let again = [follower(3, None), follower(4, None)];
        assert_eq!(
            followers.report(2, 90_000, &again),
            [metrics_of(3, 0), metrics_of(4, 0)],
            "in another term counting restarts"
        );
    }

    #[test]
    fn a_former_follower_is_reported_once_with_zeros() {
        let mut followers = ReportedFollowers::default();
        let silent = [follower(2, Some(90_000)), follower(3, None)];
        followers.report(1, 0, &silent);
        let left = [follower(2, Some(40))];
        assert_eq!(
            followers.report(1, 1_000, &left),
            [metrics_of(2, 40), FollowerMetrics::zero(3)]
        );
        assert_eq!(followers.report(1, 2_000, &left), [metrics_of(2, 40)]);
        assert_eq!(
            followers.report(2, 3_000, &[]),
            [FollowerMetrics::zero(2)],
            "it no longer leads"
        );
        assert!(followers.report(2, 4_000, &[]).is_empty());
    }
}
