//! Pause intervals of an attempt: its tasks were frozen in place while their job was suspended.

use muster_model::limits;
use muster_model::spec::SuspendMode;
use muster_model::time::TimeMs;
use serde::{Deserialize, Serialize};

use crate::state::{Attempt, Job};

/// An interval in which the tasks were paused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pause {
    /// Start of the pause.
    pub from: TimeMs,
    /// End of the pause.
    pub until: TimeMs,
}

impl Pause {
    /// Returns its length.
    #[must_use]
    pub const fn span_ms(&self) -> u64 {
        self.until.since(self.from)
    }

    /// Returns the milliseconds of it between two times.
    #[must_use]
    pub fn within_ms(&self, from: TimeMs, until: TimeMs) -> u64 {
        self.until.min(until).since(self.from.max(from))
    }
}

impl Attempt {
    /// Returns the current pause: from the suspension of the job, or the placement if later, until the stop
    /// order, which resumes the tasks. `None` if they are not paused or the pause is empty.
    #[must_use]
    pub fn open_pause(&self, job: &Job, now: TimeMs) -> Option<Pause> {
        let suspension = job.suspension.as_ref();
        let suspension = suspension.filter(|_| job.spec.lifecycle.suspend == SuspendMode::Keep)?;
        let pause = Pause {
            from: suspension.at.max(self.placed_at),
            until: self.stop.as_ref().map_or(now, |stop| stop.at),
        };
        (pause.span_ms() > 0).then_some(pause)
    }

    /// Returns the total length of its recorded pauses, without the current one.
    #[must_use]
    pub fn paused_ms(&self) -> u64 {
        let spans = self.pauses.iter().map(Pause::span_ms);
        spans.fold(0, u64::saturating_add)
    }

    /// Records a pause. Above the maximum, the two oldest are merged into one of the same total length that
    /// ends when the younger one did.
    pub fn remember_pause(&mut self, pause: Pause) {
        self.pauses.push(pause);
        if self.pauses.len() > limits::PAUSES_PER_ATTEMPT_MAX {
            let oldest = self.pauses.remove(0);
            let next = &mut self.pauses[0];
            next.from = TimeMs(next.from.0.saturating_sub(oldest.span_ms()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pause(from: u64, until: u64) -> Pause {
        let (from, until) = (TimeMs(from), TimeMs(until));
        Pause { from, until }
    }

    #[test]
    fn pauses_are_clipped_to_a_time_range() {
        let pause = pause(10, 20);
        let within = |from, until| pause.within_ms(TimeMs(from), TimeMs(until));
        assert_eq!(
            [
                within(0, 30),
                within(12, 30),
                within(0, 12),
                within(20, 30),
                within(0, 10)
            ],
            [10, 8, 2, 0, 0]
        );
    }
}
