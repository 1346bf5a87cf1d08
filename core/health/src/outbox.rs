//! Pending findings of a worker, and the state's record of each worker's applied findings.
//!
//! Findings are sent in the order of their numbers and repeated until they are acknowledged; the state
//! applies each number once. So a lost heartbeat, a new leader or a restarted agent neither loses a finding
//! nor counts it twice. A cluster that was restored from a backup has applied fewer: findings after the
//! backup are sent again.

use std::collections::VecDeque;

use muster_model::health::{FINDINGS_PER_REPORT_MAX, Finding};
use serde::{Deserialize, Serialize};

/// Pending findings; beyond it, the least severe is dropped, the oldest first.
pub const FINDINGS_WAITING_MAX: usize = 1_024;

/// Acknowledged findings kept for a cluster that is restored from a backup, the newest ones.
pub const FINDINGS_KEPT_MAX: usize = 1_024;

/// A worker's findings until they are acknowledged.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outbox {
    waiting: VecDeque<Finding>,
    acknowledged: VecDeque<Finding>,
    last: u64,
    dropped: u64,
}

impl Outbox {
    /// Numbers and enqueues a finding.
    pub fn push(&mut self, mut finding: Finding) {
        self.last += 1;
        finding.sequence = self.last;
        if self.waiting.len() >= FINDINGS_WAITING_MAX {
            // Findings that something is over are dropped first: this delays a recovery, and never hides a
            // fault.
            let kept = self.waiting.iter().enumerate();
            let least = kept.map(|(at, it)| (it.severity, at)).min();
            if let Some((severity, at)) = least {
                self.dropped += 1;
                if severity > finding.severity {
                    return;
                }
                self.waiting.remove(at);
            }
        }
        self.waiting.push_back(finding);
    }

    /// Findings for the next heartbeat: the oldest ones, at most `FINDINGS_PER_REPORT_MAX`.
    pub fn report(&self) -> impl Iterator<Item = &Finding> {
        self.waiting.iter().take(FINDINGS_PER_REPORT_MAX)
    }

    /// Acknowledges all findings up to this number. A lower number than before means that the state was
    /// restored from a backup: the findings it lacks are pending again.
    pub fn acknowledge(&mut self, sequence: u64) {
        while let Some(forgotten) = self.acknowledged.pop_back_if(|it| it.sequence > sequence) {
            self.waiting.push_front(forgotten);
        }
        while let Some(finding) = self.waiting.pop_front_if(|it| it.sequence <= sequence) {
            self.acknowledged.push_back(finding);
        }
        let surplus = self.acknowledged.len().saturating_sub(FINDINGS_KEPT_MAX);
        self.acknowledged.drain(..surplus);
    }

    /// Number of findings that were dropped.
    #[must_use]
    pub const fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Number of pending findings.
    #[must_use]
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Whether no finding is pending.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }
}

/// Newest applied finding of a worker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AppliedUpTo {
    incarnation: u64,
    sequence: u64,
}

impl AppliedUpTo {
    /// Whether a finding is new; it counts as applied from now on. A restarted agent counts from 1 again.
    pub fn is_new(&mut self, incarnation: u64, sequence: u64) -> bool {
        if incarnation < self.incarnation {
            return false;
        }
        if incarnation > self.incarnation {
            *self = Self {
                incarnation,
                sequence: 0,
            };
        }
        if sequence <= self.sequence {
            return false;
        }
        self.sequence = sequence;
        true
    }

    /// Number to acknowledge to this incarnation.
    #[must_use]
    pub const fn acknowledged(&self, incarnation: u64) -> u64 {
        if self.incarnation == incarnation {
            self.sequence
        } else {
            0
        }
    }
}

#[cfg(test)]
mod tests {
    use muster_model::health::{Component, Severity};
    use muster_model::ids::HostId;
    use muster_model::time::TimeMs;

    use super::*;

    fn finding(severity: Severity) -> Finding {
        Finding {
            sequence: 0,
            rule: "xid".to_owned(),
            component: Component::Host(HostId(1)),
            severity,
            metric: String::new(),
            measured: 0,
            code: None,
            cluster: None,
            evidence: String::new(),
            at: TimeMs(0),
        }
    }

    fn numbers(outbox: &Outbox) -> Vec<u64> {
        outbox.report().map(|it| it.sequence).collect()
    }

    #[test]
    fn findings_are_repeated_until_acknowledged_and_count_once() {
        let mut outbox = Outbox::default();
        let mut applied = AppliedUpTo::default();
        for _ in 0..3 {
            outbox.push(finding(Severity::Fatal));
        }
        assert_eq!(numbers(&outbox), [1, 2, 3]);
        let news = |applied: &mut AppliedUpTo, outbox: &Outbox| {
            numbers(outbox)
                .into_iter()
                .filter(|it| applied.is_new(5, *it))
                .count()
        };
        assert_eq!(news(&mut applied, &outbox), 3);
        // The acknowledgement was lost.
        assert_eq!(news(&mut applied, &outbox), 0);
        outbox.push(finding(Severity::Warn));
        assert_eq!(news(&mut applied, &outbox), 1);
        outbox.acknowledge(applied.acknowledged(5));
        assert!(outbox.is_empty());
    }

    #[test]
    fn a_restored_cluster_receives_findings_again() {
        let mut outbox = Outbox::default();
        for _ in 0..4 {
            outbox.push(finding(Severity::Degraded));
        }
        outbox.acknowledge(3);
        assert_eq!(numbers(&outbox), [4]);
        // The backup is older than the second finding.
        outbox.acknowledge(1);
        assert_eq!(numbers(&outbox), [2, 3, 4]);
        outbox.acknowledge(4);
        assert!(outbox.is_empty());
        // The host itself is younger than the backup.
        outbox.acknowledge(0);
        assert_eq!(numbers(&outbox), [1, 2, 3, 4]);
    }

    #[test]
    fn a_restarted_agent_restarts_the_sequence_and_its_predecessor_is_ignored() {
        let mut applied = AppliedUpTo::default();
        assert!(applied.is_new(1, 7));
        assert!(applied.is_new(2, 1));
        assert!(!applied.is_new(1, 8));
        assert_eq!((applied.acknowledged(1), applied.acknowledged(2)), (0, 1));
    }

    #[test]
    fn a_full_outbox_keeps_the_worst_findings() {
        let mut outbox = Outbox::default();
        outbox.push(finding(Severity::Warn));
        outbox.push(finding(Severity::Info));
        for _ in 2..FINDINGS_WAITING_MAX {
            outbox.push(finding(Severity::Fatal));
        }
        outbox.push(finding(Severity::Degraded));
        assert_eq!((outbox.len(), outbox.dropped()), (FINDINGS_WAITING_MAX, 1));
        assert_eq!(numbers(&outbox)[..2], [1, 3]);
        assert_eq!(numbers(&outbox).len(), FINDINGS_PER_REPORT_MAX);
        // Only more severe ones are pending: the new one is dropped.
        outbox.acknowledge(1);
        outbox.push(finding(Severity::Degraded));
        outbox.push(finding(Severity::Warn));
        assert_eq!((outbox.len(), outbox.dropped()), (FINDINGS_WAITING_MAX, 2));
    }
}
