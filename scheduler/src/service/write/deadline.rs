//! Deadlines of requests.

use std::time::Duration;

use tokio::time::Instant;
use tonic::metadata::MetadataMap;

/// This share of a request's time is reserved for both network directions, so that the caller gets our reason
/// and not a bare timeout: its clock starts when it has sent the request.
const NETWORK_SHARE: u32 = 10;
/// Maximum of the reserve.
const NETWORK_RESERVE_MAX: Duration = Duration::from_millis(250);

/// The instant by which a request must be answered: the caller's deadline (`grpc-timeout`), or the default if
/// it has none.
pub(crate) fn of(metadata: &MetadataMap, default_ms: u64) -> Instant {
    let given = metadata
        .get("grpc-timeout")
        .and_then(|value| value.to_str().ok())
        .and_then(parse);
    let wait = match given {
        Some(given) => given.saturating_sub(NETWORK_RESERVE_MAX.min(given / NETWORK_SHARE)),
        None => Duration::from_millis(default_ms),
    };
    Instant::now() + wait.min(LONGEST)
}

/// Longer deadlines are capped here: an instant must not overflow.
const LONGEST: Duration = Duration::from_secs(3_600);

/// Parses up to eight digits and a unit.
fn parse(text: &str) -> Option<Duration> {
    let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    if digits.is_empty() || digits.len() > 8 {
        return None;
    }
    let count: u64 = digits.parse().ok()?;
    Some(match unit {
        "H" => Duration::from_secs(count * 3_600),
        "M" => Duration::from_secs(count * 60),
        "S" => Duration::from_secs(count),
        "m" => Duration::from_millis(count),
        "u" => Duration::from_micros(count),
        "n" => Duration::from_nanos(count),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deadlines_are_read_in_every_unit() {
        assert_eq!(parse("250m"), Some(Duration::from_millis(250)));
        assert_eq!(parse("2S"), Some(Duration::from_secs(2)));
        assert_eq!(
            parse("99999999H"),
            Some(Duration::from_secs(99_999_999 * 3_600))
        );
        for damaged in ["", "S", "1", "123456789S", "1x", "-1S"] {
            assert_eq!(parse(damaged), None, "{damaged}");
        }
    }
}
