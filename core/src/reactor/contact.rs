//! The leader's memory of one worker.

use crate::beat::{Beat, WorkerStatus};
use crate::ids::Revision;
use crate::time::MonotonicMs;

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
    /// Sequence of the last beat, and the newest acknowledged one that it named.
    stream: Option<(u64, u64)>,
    /// The newest report, until the state says the same.
    pub(super) unsettled: Option<Report>,
    /// When the host is looked at next.
    pub(super) due: Option<MonotonicMs>,
}

impl Watch {
    pub(super) const fn new(contact: Contact) -> Self {
        Self {
            contact,
            stream: None,
            unsettled: None,
            due: None,
        }
    }

    /// Takes a beat; true if it shows that acknowledgements reach the worker (or opens a stream).
    ///
    /// Over a link that carries beats but no acknowledgements the worker will fence itself and cannot be
    /// told anything: for detection it is as silent as one that is cut off both ways.
    pub(super) fn hear(&mut self, beat: Beat, now: MonotonicMs) -> bool {
        let is_answered = self.stream.is_none_or(|(sequence, acknowledged)| {
            beat.sequence <= sequence || beat.acknowledged > acknowledged
        });
        self.stream = Some((beat.sequence, beat.acknowledged));
        if is_answered {
            self.contact.heard_at = now;
        }
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
