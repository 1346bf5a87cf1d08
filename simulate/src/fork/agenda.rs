//! What is going to happen in a fork, by time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use muster_model::ids::{AttemptEpoch, JobId, UnitIndex};
use muster_model::time::TimeMs;

/// An attempt, as agenda and reports name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct AttemptKey {
    pub(super) job: JobId,
    pub(super) unit: UnitIndex,
    pub(super) epoch: AttemptEpoch,
}

/// Something that happens at an instant; ends come first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Happening {
    /// An attempt has done its work; void if it is not the current one any more.
    WorkDone(AttemptKey),
    /// The lease of an attempt's tasks on silent hosts is over.
    LeaseOver(AttemptKey),
    /// Nothing but a reason to plan.
    Plan,
}

/// Happenings by time; of those at one instant the smallest first, so the order of insertion does not matter.
#[derive(Debug, Default)]
pub(super) struct Agenda(BinaryHeap<Reverse<(TimeMs, Happening)>>);

impl Agenda {
    pub(super) fn add(&mut self, at: TimeMs, happening: Happening) {
        self.0.push(Reverse((at, happening)));
    }

    /// When the next thing happens.
    pub(super) fn next_at(&self) -> Option<TimeMs> {
        self.0.peek().map(|Reverse((at, _))| *at)
    }

    /// The next thing that happens at `now` or has happened before.
    pub(super) fn due(&mut self, now: TimeMs) -> Option<Happening> {
        if self.next_at()? > now {
            return None;
        }
        self.0.pop().map(|Reverse((_, happening))| happening)
    }
}
