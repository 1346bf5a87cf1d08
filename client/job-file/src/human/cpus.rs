//! CPU counts: `4`, `0.5`.

use std::fmt;

use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

const MILLI: u32 = 1_000;

/// Maximum number of digits after the decimal point.
const FRACTION_DIGITS_MAX: usize = 3;

/// A number of CPUs, exact to a thousandth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpuCount {
    /// Thousandths of a CPU.
    pub milli: u32,
}

/// Parses a number of CPUs.
///
/// # Errors
/// Names the problem and the expected form.
pub fn cpu_count(text: &str) -> Result<CpuCount, String> {
    let unusable = || format!("`{text}` is not a number of CPUs (write 4 or 0.5)");
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if !digits(whole) || !digits(fraction) || fraction.len() > FRACTION_DIGITS_MAX {
        return Err(unusable());
    }
    let fraction: u32 = format!("{fraction:0<FRACTION_DIGITS_MAX$}")
        .parse()
        .map_err(|_| unusable())?;
    let milli = whole
        .parse::<u32>()
        .ok()
        .and_then(|whole| whole.checked_mul(MILLI))
        .and_then(|whole| whole.checked_add(fraction))
        .ok_or_else(unusable)?;
    Ok(CpuCount { milli })
}

impl fmt::Display for CpuCount {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, fraction) = (self.milli / MILLI, self.milli % MILLI);
        if fraction == 0 {
            return write!(formatter, "{whole}");
        }
        let digits = format!("{fraction:03}");
        write!(formatter, "{whole}.{}", digits.trim_end_matches('0'))
    }
}

impl Serialize for CpuCount {
    fn serialize<Target: Serializer>(&self, target: Target) -> Result<Target::Ok, Target::Error> {
        if self.milli.is_multiple_of(MILLI) {
            target.serialize_u32(self.milli / MILLI)
        } else {
            target.serialize_f64(f64::from(self.milli) / f64::from(MILLI))
        }
    }
}

impl<'de> Deserialize<'de> for CpuCount {
    fn deserialize<Source: Deserializer<'de>>(source: Source) -> Result<Self, Source::Error> {
        source.deserialize_any(CpuVisitor)
    }
}

struct CpuVisitor;

impl Visitor<'_> for CpuVisitor {
    type Value = CpuCount;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a number of CPUs (4 or 0.5)")
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<CpuCount, E> {
        cpu_count(&value.to_string()).map_err(E::custom)
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<CpuCount, E> {
        cpu_count(&value.to_string()).map_err(E::custom)
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<CpuCount, E> {
        cpu_count(&value.to_string()).map_err(E::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_counts_are_parsed_and_formatted() {
        for (text, milli) in [
            ("4", 4_000),
            ("0.5", 500),
            ("1.25", 1_250),
            ("0", 0),
            ("0.001", 1),
        ] {
            assert_eq!(cpu_count(text), Ok(CpuCount { milli }));
            assert_eq!(CpuCount { milli }.to_string(), text);
        }
    }

    #[test]
    fn invalid_cpu_counts_are_rejected() {
        for text in ["", "-1", "1.2345", "x", ".5", "5.", "1e3", "5000000000"] {
            let expected = format!("`{text}` is not a number of CPUs (write 4 or 0.5)");
            assert_eq!(cpu_count(text), Err(expected));
        }
    }
}
