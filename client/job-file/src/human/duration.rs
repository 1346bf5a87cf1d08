//! Durations: `500ms`, `30s`, `5m`, `1h30m`, `2d`.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Units with their milliseconds, largest first; `ms` precedes `m` so that it matches first.
const UNITS: [(&str, u64); 5] = [
    ("d", 86_400_000),
    ("h", 3_600_000),
    ("ms", 1),
    ("m", 60_000),
    ("s", 1_000),
];

/// Units for printing, largest first.
const PRINTED: [(&str, u64); 5] = [
    ("d", 86_400_000),
    ("h", 3_600_000),
    ("m", 60_000),
    ("s", 1_000),
    ("ms", 1),
];

/// A duration in milliseconds that is written as text in files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HumanDuration {
    /// Whole milliseconds.
    pub ms: u64,
}

/// Parses a duration; every number needs its unit.
///
/// # Errors
/// Names the problem and the expected form.
pub fn duration(text: &str) -> Result<Duration, String> {
    milliseconds(text).map(Duration::from_millis)
}

fn milliseconds(text: &str) -> Result<u64, String> {
    let unusable = |why: &str| {
        format!("`{text}` is not a duration: {why} (write 500ms, 30s, 5m, 1h30m or 2d)")
    };
    if text.is_empty() {
        return Err(unusable("it is empty"));
    }
    let mut rest = text;
    let mut total = 0u64;
    while !rest.is_empty() {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        if digits == 0 {
            return Err(unusable("a whole number must come before each unit"));
        }
        let (number, tail) = rest.split_at(digits);
        let unit = UNITS
            .iter()
            .find_map(|(name, ms)| tail.strip_prefix(name).map(|after| (after, *ms)));
        let Some((after, unit_ms)) = unit else {
            let why = if tail.is_empty() {
                "the unit is missing"
            } else {
                "the unit is unknown"
            };
            return Err(unusable(why));
        };
        let part = number.parse::<u64>().ok();
        total = part
            .and_then(|part| part.checked_mul(unit_ms))
            .and_then(|part| total.checked_add(part))
            .ok_or_else(|| unusable("it is too long"))?;
        rest = after;
    }
    Ok(total)
}

/// Formats a duration in milliseconds; [`duration`] parses the result back exactly.
#[must_use]
pub fn format_duration(ms: u64) -> String {
    if ms == 0 {
        return "0s".to_owned();
    }
    let mut rest = ms;
    let mut text = String::new();
    for (unit, unit_ms) in PRINTED {
        let count = rest / unit_ms;
        if count > 0 {
            text.push_str(&count.to_string());
            text.push_str(unit);
            rest %= unit_ms;
        }
    }
    text
}

impl fmt::Display for HumanDuration {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&format_duration(self.ms))
    }
}

impl Serialize for HumanDuration {
    fn serialize<Target: Serializer>(&self, target: Target) -> Result<Target::Ok, Target::Error> {
        target.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for HumanDuration {
    fn deserialize<Source: Deserializer<'de>>(source: Source) -> Result<Self, Source::Error> {
        let text = String::deserialize(source)?;
        milliseconds(&text)
            .map(|ms| Self { ms })
            .map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_parsed() {
        let cases = [
            ("0s", 0),
            ("500ms", 500),
            ("30s", 30_000),
            ("5m", 300_000),
            ("1h30m", 5_400_000),
            ("2d", 172_800_000),
            ("1d2h3m4s5ms", 93_784_005),
        ];
        for (text, ms) in cases {
            assert_eq!(milliseconds(text), Ok(ms), "{text}");
            assert_eq!(milliseconds(&format_duration(ms)), Ok(ms), "{text}");
        }
    }

    #[test]
    fn invalid_durations_are_explained() {
        let cases = [
            ("", "it is empty"),
            ("30", "the unit is missing"),
            ("s", "a whole number must come before each unit"),
            ("1.5h", "the unit is unknown"),
            ("-5s", "a whole number must come before each unit"),
            ("5 m", "the unit is unknown"),
            ("3weeks", "the unit is unknown"),
            ("999999999999999999999d", "it is too long"),
            ("300000000000d", "it is too long"),
        ];
        for (text, why) in cases {
            let error = milliseconds(text);
            let expected =
                format!("`{text}` is not a duration: {why} (write 500ms, 30s, 5m, 1h30m or 2d)");
            assert_eq!(error, Err(expected), "{text}");
        }
    }
}
