//! The leader's memory of one worker.

use muster_model::beat::{Beat, WorkerStatus};
use muster_model::ids::Revision;
use muster_model::time::MonotonicMs;
use muster_model::timings::Timings;

/// What the leader remembers of one worker's beats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Contact {
    /// When the last beat arrived here, or at an earlier leader that told us, that showed that
    /// acknowledgements reach the worker; silence counts from here.
    pub heard_at: MonotonicMs,
    /// No beat can have been acknowledged by any leader after this instant; leases run from here.
    pub leased_at: MonotonicMs,
    /// Revision of the desired state that the worker said it works on.
    pub desired_revision: Revision,
}

impl Contact {
    /// A host of which nothing is known before this instant.
    #[must_use]
    pub fn at(now: MonotonicMs) -> Self {
        Self {
            heard_at: now,
            leased_at: now,
            desired_revision: Revision::default(),
        }
    }
}

/// A worker's report and the desired state that it knew then.
#[derive(Clone, Debug)]
pub(super) struct Report {
    pub(super) desired_revision: Revision,
    pub(super) status: WorkerStatus,
    /// Beats for which what the state does not say yet is still proposed again.
    pub(super) tries_left: u32,
}

/// How often the difference between a report and the state is proposed: what `apply` refuses so often it
/// refuses for good, and the worker's next report is compared afresh.
const TRIES_MAX: u32 = 8;

impl Report {
    /// Counts one try; false if they are used up.
    pub(super) const fn try_again(&mut self) -> bool {
        let is_left = self.tries_left > 0;
        self.tries_left = self.tries_left.saturating_sub(1);
        is_left
    }
}

/// Everything remembered of one host.
#[derive(Clone, Debug)]
pub(super) struct Watch {
    pub(super) contact: Contact,
    /// Since when it has been silent: when it was heard last, less the time in which nobody listened.
    pub(super) silent_since: MonotonicMs,
    /// Sequence of the last beat, and the newest acknowledged one that it named.
    stream: Option<(u64, u64)>,
    /// The newest report, until the state says the same.
    pub(super) unsettled: Option<Report>,
    /// When the host is looked at next.
    pub(super) due: Option<MonotonicMs>,
    /// When the last beat arrived here, whether acknowledgements reach the worker or not.
    beat_at: Option<MonotonicMs>,
    /// How long its worker may wait between two beats; 0 for the period that a stream begins with.
    period_ms: u64,
    /// A shorter period that it was told with the acknowledgement of this beat, and may not have heard of.
    shorter: Option<(u64, u64)>,
}

impl Watch {
    pub(super) const fn new(contact: Contact) -> Self {
        Self {
            contact,
            silent_since: contact.heard_at,
            stream: None,
            unsettled: None,
            due: None,
            beat_at: None,
            period_ms: 0,
            shorter: None,
        }
    }

    /// The longest that its worker may wait between two beats, as far as it was told; 0 for the period that a stream begins
    /// with. Silence is judged by it.
    pub(super) const fn period_ms(&self) -> u64 {
        self.period_ms
    }

    /// Whether beats arrive; of a silent host that says that acknowledgements do not reach it.
    pub(super) fn is_one_way(&self, timings: Timings, now: MonotonicMs) -> bool {
        self.beat_at
            .is_some_and(|beat_at| now.since(beat_at) < timings.suspect_ms)
    }

    /// Its worker was told with an acknowledgement to beat every `period_ms` from now on. A longer period counts at once, a
    /// shorter one when the worker shows that it heard of it.
    pub(super) fn told(&mut self, sequence: u64, period_ms: u64) {
        if period_ms >= self.period_ms {
            self.period_ms = period_ms;
            self.shorter = None;
        } else if self.shorter.is_none_or(|(_, told)| period_ms > told) {
            self.shorter = Some((sequence, period_ms));
        }
    }

    /// Follows what the worker knows of its period: a new stream begins with the usual one.
    fn hear_period(&mut self, beat: &Beat) {
        if { self.stream }.is_none_or(|(sequence, _)| beat.sequence <= sequence) {
            self.period_ms = 0;
            self.shorter = None;
        }
        if let Some((_, period_ms)) =
            { self.shorter }.filter(|(sequence, _)| beat.acknowledged >= *sequence)
        {
            self.period_ms = period_ms;
            self.shorter = None;
        }
    }

    /// Takes a beat; true if it shows that acknowledgements reach the worker (or opens a stream).
    ///
    /// Over a link that carries beats but no acknowledgements the worker will fence itself and cannot be
    /// told anything: for detection it is as silent as one that is cut off both ways.
    pub(super) fn hear(&mut self, beat: Beat, now: MonotonicMs) -> bool {
        self.hear_period(&beat);
        let is_answered = self.stream.is_none_or(|(sequence, acknowledged)| {
            beat.sequence <= sequence || beat.acknowledged > acknowledged
        });
        self.stream = Some((beat.sequence, beat.acknowledged));
        if is_answered {
            self.contact.heard_at = now;
            self.silent_since = now;
        }
        self.beat_at = Some(now);
        // This beat may be acknowledged: the lease runs from here in any case.
        self.contact.leased_at = now;
        self.contact.desired_revision = beat.desired_revision;
        if let Some(status) = beat.status {
            self.unsettled = Some(Report {
                desired_revision: beat.desired_revision,
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

    fn beat(sequence: u64, acknowledged: u64) -> Beat {
        Beat {
            sequence,
            acknowledged,
            leader: muster_model::ids::LeadershipEpoch(1),
            desired_revision: Revision::default(),
            status: None,
        }
    }

    fn lost_ms(watch: &Watch) -> u64 {
        Timings::default().stretched(watch.period_ms()).lost_ms
    }

    #[test]
    fn silence_is_judged_by_the_longest_period_that_may_be_in_force() {
        let now = MonotonicMs(1_000);
        let mut watch = Watch::new(Contact::at(now));
        watch.hear(beat(1, 0), now);
        assert_eq!(lost_ms(&watch), 45_000);
        watch.told(1, 10_000);
        assert_eq!(lost_ms(&watch), 90_000);
        watch.hear(beat(2, 1), now);
        // Shorter again: not before the worker shows that it knows.
        watch.told(2, 5_000);
        watch.hear(beat(3, 1), now);
        watch.told(3, 5_000);
        assert_eq!(lost_ms(&watch), 90_000);
        watch.hear(beat(4, 2), now);
        assert_eq!(lost_ms(&watch), 45_000);
    }

    #[test]
    fn a_new_stream_begins_with_the_usual_period() {
        let now = MonotonicMs(1_000);
        let mut watch = Watch::new(Contact::at(now));
        watch.hear(beat(7, 6), now);
        watch.told(7, 15_000);
        watch.hear(beat(1, 0), now);
        assert_eq!(lost_ms(&watch), 45_000);
    }
}
