//! Future events in order of time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use muster_model::time::TimeMs;

/// Events by time; ties go to the smallest event, so the order of insertion does not matter.
#[derive(Clone, Debug)]
pub struct Agenda<E: Ord>(BinaryHeap<Reverse<(TimeMs, E)>>);

impl<E: Ord> Default for Agenda<E> {
    fn default() -> Self {
        Self(BinaryHeap::new())
    }
}

impl<E: Ord> Agenda<E> {
    /// Adds an event.
    pub fn add(&mut self, at: TimeMs, event: E) {
        self.0.push(Reverse((at, event)));
    }

    /// Returns the time of the next event.
    pub fn next_at(&self) -> Option<TimeMs> {
        self.0.peek().map(|Reverse((at, _))| *at)
    }

    /// Removes the next event that is due at `now`.
    pub fn due(&mut self, now: TimeMs) -> Option<E> {
        if self.next_at()? > now {
            return None;
        }
        self.0.pop().map(|Reverse((_, event))| event)
    }
}
