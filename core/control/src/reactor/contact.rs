//! The leader's record of one worker.

use muster_model::heartbeat::{Heartbeat, WorkerStatus};
use muster_model::ids::Revision;
use muster_model::time::MonotonicMs;
use muster_model::timings::Timings;

/// The leader's record of one worker's heartbeats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeartbeatRecord {
    /// Arrival time, here or at an earlier leader that passed it on, of the last heartbeat that showed that
    /// acknowledgements reach the worker; silence is measured from here.
    pub last_contact_at: MonotonicMs,
    /// No leader can have acknowledged a heartbeat after this time; leases run from here.
    pub leased_at: MonotonicMs,
    /// Revision of the desired state that the worker reported.
    pub desired_revision: Revision,
}

impl HeartbeatRecord {
    /// A host without any record before this time.
    #[must_use]
    pub fn at(now: MonotonicMs) -> Self {
        Self {
            last_contact_at: now,
            leased_at: now,
            desired_revision: Revision::default(),
        }
    }
}

/// A worker's report and the revision of the desired state that it had then.
#[derive(Clone, Debug)]
pub(super) struct Report {
    pub(super) desired_revision: Revision,
    pub(super) status: WorkerStatus,
    /// Remaining heartbeats with which an unsettled difference is proposed again.
    pub(super) tries_left: u32,
}

/// Maximum number of proposals of a difference between a report and the state: what `apply` rejects this
/// often it rejects permanently, and the worker's next report is compared from scratch.
const TRIES_MAX: u32 = 8;

impl Report {
    /// Uses up one try; returns false if none is left.
    pub(super) const fn try_again(&mut self) -> bool {
        let is_left = self.tries_left > 0;
        self.tries_left = self.tries_left.saturating_sub(1);
        is_left
    }
}

/// Everything that the leader records of one host.
#[derive(Clone, Debug)]
pub(super) struct HostRecord {
    pub(super) contact: HeartbeatRecord,
    /// Start of the silence: the time of the last heartbeat, shifted by the time without a leader.
    pub(super) silent_since: MonotonicMs,
    /// Sequence of the last heartbeat, and the newest acknowledged sequence that it named.
    stream: Option<(u64, u64)>,
    /// The newest report, until the state agrees with it.
    pub(super) unsettled: Option<Report>,
    /// Time of the next look at the host.
    pub(super) due: Option<MonotonicMs>,
    /// Arrival time of the last heartbeat here, whether acknowledgements reach the worker or not.
    heartbeat_at: Option<MonotonicMs>,
    /// Maximum time between two heartbeats of its worker; 0 for the initial period of a stream.
    period_ms: u64,
    /// A shorter period sent with the acknowledgement of this heartbeat, which the worker may not have
    /// received.
    shorter: Option<(u64, u64)>,
}

impl HostRecord {
    pub(super) const fn new(contact: HeartbeatRecord) -> Self {
        Self {
            contact,
            silent_since: contact.last_contact_at,
            stream: None,
            unsettled: None,
            due: None,
            heartbeat_at: None,
            period_ms: 0,
            shorter: None,
        }
    }

    /// Longest time between two heartbeats that its worker may use, given the periods sent; 0 for the initial
    /// period of a stream. Silence is judged by it.
    pub(super) const fn period_ms(&self) -> u64 {
        self.period_ms
    }

    /// Whether heartbeats arrive; for a silent host this means that acknowledgements do not reach it.
    pub(super) fn is_one_way(&self, timings: Timings, now: MonotonicMs) -> bool {
        self.heartbeat_at
            .is_some_and(|heartbeat_at| now.since(heartbeat_at) < timings.suspect_ms)
    }

    /// Records that an acknowledgement set the worker's period to `period_ms`. A longer period counts
    /// immediately, a shorter one once the worker shows that it received it.
    pub(super) fn record_period(&mut self, sequence: u64, period_ms: u64) {
        if period_ms >= self.period_ms {
            self.period_ms = period_ms;
            self.shorter = None;
        } else if self.shorter.is_none_or(|(_, sent_ms)| period_ms > sent_ms) {
            self.shorter = Some((sequence, period_ms));
        }
    }

    /// Tracks the period that the worker knows: a new stream starts with the default period.
    fn track_period(&mut self, heartbeat: &Heartbeat) {
        let stream = self.stream;
        if stream.is_none_or(|(sequence, _)| heartbeat.sequence <= sequence) {
            self.period_ms = 0;
            self.shorter = None;
        }
        let shorter = self.shorter;
        let received = shorter.filter(|(sequence, _)| heartbeat.acknowledged >= *sequence);
        if let Some((_, period_ms)) = received {
            self.period_ms = period_ms;
            self.shorter = None;
        }
    }

    /// Records a heartbeat; returns true if it shows that acknowledgements reach the worker (or opens a
    /// stream).
    ///
    /// Over a link that carries heartbeats but no acknowledgements the worker will fence itself and cannot be
    /// reached: for failure detection it is as silent as a worker that is cut off in both directions.
    pub(super) fn record_heartbeat(&mut self, heartbeat: Heartbeat, now: MonotonicMs) -> bool {
        self.track_period(&heartbeat);
        let is_answered = self.stream.is_none_or(|(sequence, acknowledged)| {
            heartbeat.sequence <= sequence || heartbeat.acknowledged > acknowledged
        });
        self.stream = Some((heartbeat.sequence, heartbeat.acknowledged));
        if is_answered {
            self.contact.last_contact_at = now;
            self.silent_since = now;
        }
        self.heartbeat_at = Some(now);
        // This heartbeat may be acknowledged: the lease runs from here in any case.
        self.contact.leased_at = now;
        self.contact.desired_revision = heartbeat.desired_revision;
        if let Some(status) = heartbeat.status {
            self.unsettled = Some(Report {
                desired_revision: heartbeat.desired_revision,
                status,
                tries_left: TRIES_MAX,
            });
        }
        is_answered
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn heartbeat(sequence: u64, acknowledged: u64) -> Heartbeat {
        Heartbeat {
            sequence,
            acknowledged,
            leader: muster_model::ids::LeadershipEpoch(1),
            desired_revision: Revision::default(),
            status: None,
        }
    }

    fn lost_ms(watch: &HostRecord) -> u64 {
        Timings::default().stretched(watch.period_ms()).lost_ms
    }

    #[test]
    fn silence_is_judged_by_the_longest_period_that_may_be_in_force() {
        let now = MonotonicMs(1_000);
        let mut watch = HostRecord::new(HeartbeatRecord::at(now));
        watch.record_heartbeat(heartbeat(1, 0), now);
        assert_eq!(lost_ms(&watch), 45_000);
        watch.record_period(1, 10_000);
        assert_eq!(lost_ms(&watch), 90_000);
        watch.record_heartbeat(heartbeat(2, 1), now);
        // Shorter again: only once the worker shows that it received it.
        watch.record_period(2, 5_000);
        watch.record_heartbeat(heartbeat(3, 1), now);
        watch.record_period(3, 5_000);
        assert_eq!(lost_ms(&watch), 90_000);
        watch.record_heartbeat(heartbeat(4, 2), now);
        assert_eq!(lost_ms(&watch), 45_000);
    }

    #[test]
    fn a_new_stream_begins_with_the_usual_period() {
        let now = MonotonicMs(1_000);
        let mut watch = HostRecord::new(HeartbeatRecord::at(now));
        watch.record_heartbeat(heartbeat(7, 6), now);
        watch.record_period(7, 15_000);
        watch.record_heartbeat(heartbeat(1, 0), now);
        assert_eq!(lost_ms(&watch), 45_000);
    }
}
