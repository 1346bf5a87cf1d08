//! Future events of a fork in order of time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use muster_model::ids::{AttemptEpoch, JobId, UnitIndex};
use muster_model::time::TimeMs;

/// Identity of an attempt in agenda and reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct AttemptKey {
    pub(super) job: JobId,
    pub(super) unit: UnitIndex,
    pub(super) epoch: AttemptEpoch,
}

/// An event at some instant; ends come first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Happening {
    /// An attempt has done its work; ignored if it is no longer the current one.
    WorkDone(AttemptKey),
    /// The lease of an attempt's tasks on unreachable hosts has expired.
    LeaseOver(AttemptKey),
    /// Only triggers planning.
    Plan,
}

/// Events by time; ties go to the smallest event, so the order of insertion does not matter.
#[derive(Debug, Default)]
pub(super) struct Agenda(BinaryHeap<Reverse<(TimeMs, Happening)>>);

impl Agenda {
    pub(super) fn add(&mut self, at: TimeMs, happening: Happening) {
        self.0.push(Reverse((at, happening)));
    }

    /// Time of the next event.
    pub(super) fn next_at(&self) -> Option<TimeMs> {
        self.0.peek().map(|Reverse((at, _))| *at)
    }

    /// Removes the next event that is due at `now`.
    pub(super) fn due(&mut self, now: TimeMs) -> Option<Happening> {
        if self.next_at()? > now {
            return None;
        }
        self.0.pop().map(|Reverse((_, happening))| happening)
    }
}
