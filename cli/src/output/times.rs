//! Formatting of instants and durations, for users and for programs.

use jiff::Timestamp;
use muster_documents::Instant;

use crate::parse::format_duration;

/// An instant of the cluster as RFC 3339 in UTC with milliseconds: `2026-11-21T10:00:00.000Z`.
pub(crate) fn instant(ms: u64) -> String {
    Instant { ms }.to_string()
}

/// Time since an instant: `3m ago`; `just now` also within a small clock difference.
pub(crate) fn ago(now: Timestamp, at: Instant) -> String {
    let passed_ms = now.as_millisecond() - at.timestamp().as_millisecond();
    match u64::try_from(passed_ms) {
        Ok(passed_ms) if passed_ms >= 1_000 => format!("{} ago", span(passed_ms)),
        _ => "just now".to_owned(),
    }
}

/// Time until an instant: `in 2h`; `now` if it has passed.
pub(crate) fn until(now: Timestamp, at: Instant) -> String {
    let left_ms = at.timestamp().as_millisecond() - now.as_millisecond();
    match u64::try_from(left_ms) {
        Ok(left_ms) if left_ms >= 1_000 => format!("in {}", span(left_ms)),
        _ => "now".to_owned(),
    }
}

/// A duration in its two largest units: `2d3h`, `5m`, `12s`, `340ms`.
pub(crate) fn span(ms: u64) -> String {
    const SECOND: u64 = 1_000;
    const MINUTE: u64 = 60 * SECOND;
    const HOUR: u64 = 60 * MINUTE;
    const DAY: u64 = 24 * HOUR;
    let grain = match ms {
        0..SECOND => 1,
        SECOND..HOUR => SECOND,
        HOUR..DAY => MINUTE,
        _ => HOUR,
    };
    let grain = if ms >= 10 * MINUTE {
        grain.max(MINUTE)
    } else {
        grain
    };
    format_duration(ms - ms % grain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_short() {
        let cases = [
            (0, "0s"),
            (340, "340ms"),
            (12_345, "12s"),
            (200_000, "3m20s"),
            (750_000, "12m"),
            (3_600_000, "1h"),
            (7_500_000, "2h5m"),
            (183_700_000, "2d3h"),
        ];
        for (ms, text) in cases {
            assert_eq!(span(ms), text);
        }
    }

    #[test]
    fn instants_are_relative_to_now() {
        let at = |ms| Instant { ms };
        let now = at(1_000_000).timestamp();
        assert_eq!(ago(now, at(820_000)), "3m ago");
        assert_eq!(ago(now, at(999_500)), "just now");
        assert_eq!(ago(now, at(1_000_500)), "just now");
        assert_eq!(until(now, at(1_120_000)), "in 2m");
        assert_eq!(until(now, at(5)), "now");
    }
}
