//! Number formats: the only place where integers of the simulation become fractions.

/// Converts milliseconds to seconds.
#[expect(
    clippy::cast_precision_loss,
    reason = "milliseconds of a trace are far below 2^52"
)]
pub(crate) fn seconds(ms: u64) -> f64 {
    ms as f64 / 1_000.0
}

/// Converts GPU-milliseconds to GPU-hours.
#[expect(clippy::cast_precision_loss, reason = "reported to a few digits")]
pub(super) fn gpu_hours(gpu_ms: u128) -> f64 {
    gpu_ms as f64 / 3_600_000.0
}

/// Fraction of a whole; `None` if the whole is 0.
#[expect(clippy::cast_precision_loss, reason = "reported to a few digits")]
pub(super) fn share(part: u128, whole: u128) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}

/// An integer as a coordinate or an average's divisor.
#[expect(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
pub(super) const fn float(count: u64) -> f64 {
    count as f64
}

/// A span with about three digits for users: `340ms`, `12.3s`, `4.5m`, `13.2h`, `3.1d`.
pub(crate) fn span(seconds: f64) -> String {
    const MINUTE: f64 = 60.0;
    const HOUR: f64 = 60.0 * MINUTE;
    const DAY: f64 = 24.0 * HOUR;
    if seconds <= 0.0 {
        "0".to_owned()
    } else if seconds < 1.0 {
        format!("{:.0}ms", seconds * 1_000.0)
    } else if seconds < 2.0 * MINUTE {
        format!("{seconds:.1}s")
    } else if seconds < 2.0 * HOUR {
        format!("{:.1}m", seconds / MINUTE)
    } else if seconds < 2.0 * DAY {
        format!("{:.1}h", seconds / HOUR)
    } else {
        format!("{:.1}d", seconds / DAY)
    }
}

/// A whole number with commas between thousands.
pub(super) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (position, digit) in digits.chars().enumerate() {
        if position > 0 && (digits.len() - position).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A percentage for users: `87.3 %`, or a dash for `None`.
pub(super) fn percent(share: Option<f64>) -> String {
    share.map_or_else(dash, |share| format!("{:.1} %", share * 100.0))
}

/// Placeholder for a missing value.
pub(super) fn dash() -> String {
    "-".to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_readable() {
        assert_eq!(grouped(111_549), "111,549");
        assert_eq!(grouped(12), "12");
        assert_eq!(span(0.25), "250ms");
        assert_eq!(span(7_200.0), "2.0h");
        assert_eq!(percent(Some(0.8734)), "87.3 %");
        assert_eq!(percent(None), "-");
    }
}
