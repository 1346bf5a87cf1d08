//! Instants: `2026-11-21T10:00:00Z`, or a time ago or from now: `10m`.

use jiff::Timestamp;

use crate::parse::duration;

/// Parses an instant or a time ago, in milliseconds since the Unix epoch.
pub(crate) fn instant(text: &str) -> Result<u64, String> {
    let at = match text.parse::<Timestamp>() {
        Ok(at) => at.as_millisecond(),
        Err(_) => ago(text)?,
    };
    u64::try_from(at).map_err(|_| format!("`{text}` is before 1970"))
}

/// Parses a future instant or a time from now, in milliseconds since the Unix epoch.
pub(crate) fn coming(text: &str) -> Result<u64, String> {
    let now = Timestamp::now();
    let at = match text.parse::<Timestamp>() {
        Ok(at) => at.as_millisecond(),
        Err(_) => {
            let span = duration(text).map_err(|_| {
                format!(
                    "`{text}` is neither an instant (2026-11-21T10:00:00Z) nor a time from now (30s, 5m, 1h30m or 2d)"
                )
            })?;
            let span_ms = i64::try_from(span.as_millis()).unwrap_or(i64::MAX);
            now.as_millisecond().saturating_add(span_ms)
        }
    };
    if at <= now.as_millisecond() {
        return Err(format!("`{text}` is in the past"));
    }
    u64::try_from(at).map_err(|_| format!("`{text}` is before 1970"))
}

fn ago(text: &str) -> Result<i64, String> {
    let span = duration(text).map_err(|_| {
        format!(
            "`{text}` is neither an instant (2026-11-21T10:00:00Z) nor a time ago (500ms, 30s, 5m, 1h30m or 2d)"
        )
    })?;
    let span_ms = i64::try_from(span.as_millis()).unwrap_or(i64::MAX);
    Ok(Timestamp::now().as_millisecond().saturating_sub(span_ms))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_start_is_a_time_or_a_duration() {
        assert_eq!(coming("2099-01-01T00:00:00Z"), Ok(4_070_908_800_000));
        let now = u64::try_from(Timestamp::now().as_millisecond()).unwrap_or_default();
        let in_an_hour = coming("1h").unwrap_or_default();
        assert!((3_600_000..3_660_000).contains(&(in_an_hour - now)));
        for unusable in ["", "tomorrow", "-5m", "0s", "2023-11-14T22:13:20Z"] {
            assert!(coming(unusable).is_err(), "{unusable}");
        }
    }

    #[test]
    fn instants_are_absolute_or_ago() {
        assert_eq!(instant("2023-11-14T22:13:20.007Z"), Ok(1_700_000_000_007));
        assert_eq!(
            instant("2023-11-14T23:13:20.007+01:00"),
            Ok(1_700_000_000_007)
        );
        let hour_ago = instant("1h").unwrap_or_default();
        let now = u64::try_from(Timestamp::now().as_millisecond()).unwrap_or_default();
        assert!((3_600_000..3_660_000).contains(&(now - hour_ago)));
        for unusable in ["", "yesterday", "-5m", "1969-01-01T00:00:00Z"] {
            assert!(instant(unusable).is_err(), "{unusable}");
        }
    }
}
