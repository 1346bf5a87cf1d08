//! Times at which the tasks of an attempt stood still in place while their job was suspended.

use muster_model::limits;
use muster_model::spec::SuspendMode;
use muster_model::time::TimeMs;
use serde::{Deserialize, Serialize};

use crate::state::{Attempt, Job};

/// A time at which tasks stood still.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Halt {
    /// Since when.
    pub from: TimeMs,
    /// Until when.
    pub until: TimeMs,
}

impl Halt {
    /// How long it was.
    #[must_use]
    pub const fn span_ms(&self) -> u64 {
        self.until.since(self.from)
    }

    /// Milliseconds of it that lie between two times.
    #[must_use]
    pub fn within_ms(&self, from: TimeMs, until: TimeMs) -> u64 {
        self.until.min(until).since(self.from.max(from))
    }
}

impl Attempt {
    /// The time at which its tasks stand still now: since their job was suspended, or they were placed, and until they
    /// were told to stop, which lets them go on. None if they do not, or did so for no time.
    #[must_use]
    pub fn open_halt(&self, job: &Job, now: TimeMs) -> Option<Halt> {
        let suspension = job.suspension.as_ref();
        let suspension = suspension.filter(|_| job.spec.lifecycle.suspend == SuspendMode::Keep)?;
        let halt = Halt {
            from: suspension.at.max(self.placed_at),
            until: self.stop.as_ref().map_or(now, |stop| stop.at),
        };
        (halt.span_ms() > 0).then_some(halt)
    }

    /// Remembers a time at which its tasks stood still. Of too many the two oldest become one of the same length, which ends
    /// when the younger one did.
    pub fn remember_halt(&mut self, halt: Halt) {
        self.halts.push(halt);
        if self.halts.len() > limits::HALTS_PER_ATTEMPT_MAX {
            let oldest = self.halts.remove(0);
            let next = &mut self.halts[0];
            next.from = TimeMs(next.from.0.saturating_sub(oldest.span_ms()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn halt(from: u64, until: u64) -> Halt {
        let (from, until) = (TimeMs(from), TimeMs(until));
        Halt { from, until }
    }

    #[test]
    fn a_part_of_a_halt_lies_between_two_times() {
        let halt = halt(10, 20);
        let within = |from, until| halt.within_ms(TimeMs(from), TimeMs(until));
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
