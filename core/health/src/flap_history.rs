//! Flapping hosts: no gang is placed on a host until it has been stable for a while.

use std::collections::VecDeque;

use muster_model::time::{HOUR_MS, MINUTE_MS, TimeMs};
use serde::{Deserialize, Serialize};

use crate::rules::Frequency;

/// Silences remembered per host: no rule counts more.
pub const SILENCES_KEPT_MAX: u32 = 64;
/// Hold-down after the first time: 5 min. Our proposal.
const HOLD_DOWN_MS: u64 = 5 * MINUTE_MS;
/// Maximum hold-down: an hour. An equally long quiet time resets it to the first wait.
const HOLD_DOWN_MAX_MS: u64 = HOUR_MS;

/// Flapping of a host. Replicated.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Flaps {
    /// Times at which it fell silent, newest last; as many as the rule needs.
    silences: VecDeque<TimeMs>,
    /// The last hold-down.
    wait: Option<HoldDown>,
}

/// A hold-down of a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct HoldDown {
    length_ms: u64,
    until: TimeMs,
    is_over: bool,
}

impl Flaps {
    /// The host fell silent. Returns the end of its hold-down if that is as often as the rule requires.
    pub fn fell_silent(&mut self, often: Frequency, now: TimeMs) -> Option<TimeMs> {
        let needed = often.times.min(SILENCES_KEPT_MAX) as usize;
        self.silences.push_back(now);
        while self.silences.len() > needed {
            self.silences.pop_front();
        }
        let oldest = self.silences.front().copied().unwrap_or(now);
        let is_often = self.silences.len() >= needed && now.since(oldest) <= often.span_ms;
        let is_waiting = self.until().is_some_and(|until| now < until);
        if !is_often && !is_waiting {
            return None;
        }
        let recent = self
            .wait
            .filter(|wait| now.since(wait.until) < HOLD_DOWN_MAX_MS);
        let length_ms = recent.map_or(HOLD_DOWN_MS, |wait| {
            (2 * wait.length_ms).min(HOLD_DOWN_MAX_MS)
        });
        let until = now.after(length_ms);
        self.wait = Some(HoldDown {
            length_ms,
            until,
            is_over: false,
        });
        Some(until)
    }

    /// End of the hold-down while the host is flapping.
    #[must_use]
    pub fn until(&self) -> Option<TimeMs> {
        self.wait
            .filter(|wait| !wait.is_over)
            .map(|wait| wait.until)
    }

    /// Whether the hold-down of the host has just ended.
    pub fn has_stayed(&mut self, now: TimeMs) -> bool {
        let is_due = |wait: &&mut HoldDown| !wait.is_over && wait.until <= now;
        let due = self.wait.as_mut().filter(is_due);
        due.map(|wait| wait.is_over = true).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OFTEN: Frequency = Frequency {
        times: 3,
        span_ms: 10 * MINUTE_MS,
    };

    const fn minute(minute: u64) -> TimeMs {
        TimeMs(1_000_000 + minute * MINUTE_MS)
    }

    #[test]
    fn three_silences_in_ten_minutes_are_flapping_and_each_further_one_doubles_the_wait() {
        let mut flaps = Flaps::default();
        assert_eq!(flaps.fell_silent(OFTEN, minute(0)), None);
        assert_eq!(flaps.fell_silent(OFTEN, minute(5)), None);
        assert_eq!(flaps.fell_silent(OFTEN, minute(10)), Some(minute(15)));
        assert!(!flaps.has_stayed(minute(14)));
        // It flaps again during its hold-down.
        let waits = [(14, 24), (20, 40), (30, 70), (60, 120), (119, 179)];
        for (at, until) in waits {
            assert_eq!(
                flaps.fell_silent(OFTEN, minute(at)),
                Some(minute(until)),
                "{at}"
            );
        }
        assert!(flaps.has_stayed(minute(179)));
        assert_eq!(flaps.until(), None);
        assert!(!flaps.has_stayed(minute(180)), "reported once only");
    }

    #[test]
    fn a_wait_ends_even_if_its_end_was_never_reported() {
        let mut flaps = Flaps::default();
        let waits = [0, 5, 10].map(|at| flaps.fell_silent(OFTEN, minute(at)));
        assert_eq!(waits, [None, None, Some(minute(15))]);
        assert_eq!(flaps.fell_silent(OFTEN, minute(40)), None);
    }

    #[test]
    fn rare_silences_are_no_flapping_and_the_required_calm_starts_again() {
        let mut flaps = Flaps::default();
        for at in [0, 6, 12, 18, 25] {
            assert_eq!(flaps.fell_silent(OFTEN, minute(at)), None, "{at}");
        }
        assert_eq!(flaps.fell_silent(OFTEN, minute(27)), Some(minute(32)));
        assert!(flaps.has_stayed(minute(32)));
        // Within the hour it counts as the second time.
        for at in [80, 81] {
            assert_eq!(flaps.fell_silent(OFTEN, minute(at)), None, "{at}");
        }
        assert_eq!(flaps.fell_silent(OFTEN, minute(82)), Some(minute(92)));
        assert!(flaps.has_stayed(minute(92)));
        for at in [160, 161] {
            assert_eq!(flaps.fell_silent(OFTEN, minute(at)), None, "{at}");
        }
        assert_eq!(flaps.fell_silent(OFTEN, minute(162)), Some(minute(167)));
    }
}
