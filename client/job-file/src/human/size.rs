//! Sizes of memory: `512MiB`, `16GiB`, `1.5TiB`, `64GB`.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

const MIB: u128 = 1 << 20;

/// Units with their bytes; a longer name precedes the names that are its prefixes.
const UNITS: [(&str, u128); 8] = [
    ("KiB", 1 << 10),
    ("MiB", MIB),
    ("GiB", 1 << 30),
    ("TiB", 1 << 40),
    ("kB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("TB", 1_000_000_000_000),
];

/// Maximum number of digits after the decimal point: a thousandth of a unit.
const FRACTION_DIGITS_MAX: usize = 3;

/// An amount of memory that is written as text in files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HumanSize {
    /// Whole MiB, rounded up.
    pub mib: u64,
}

/// Parses a size into MiB, rounding up.
///
/// # Errors
/// Names the problem and the expected form.
pub fn size(text: &str) -> Result<HumanSize, String> {
    let unusable =
        |why: &str| format!("`{text}` is not a size: {why} (write 512MiB, 16GiB, 1.5TiB or 64GB)");
    let digits = text
        .bytes()
        .take_while(|byte| byte.is_ascii_digit() || *byte == b'.')
        .count();
    let (number, unit) = text.split_at(digits);
    if number.is_empty() {
        return Err(unusable("it must begin with a number"));
    }
    if unit.is_empty() {
        return Err(unusable("the unit is missing"));
    }
    let (_, unit_bytes) = UNITS
        .iter()
        .find(|(name, _)| unit.eq_ignore_ascii_case(name))
        .ok_or_else(|| unusable("the unit is unknown"))?;
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    let thousandths = thousandths(whole, fraction)
        .ok_or_else(|| unusable("the number is not whole, or has over 3 digits after the point"))?;
    let bytes = thousandths
        .checked_mul(*unit_bytes)
        .ok_or_else(|| unusable("it is too large"))?
        .div_ceil(1_000);
    let mib = u64::try_from(bytes.div_ceil(MIB)).map_err(|_| unusable("it is too large"))?;
    Ok(HumanSize { mib })
}

/// A decimal number in thousandths.
fn thousandths(whole: &str, fraction: &str) -> Option<u128> {
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if !digits(whole) || !digits(fraction) || fraction.len() > FRACTION_DIGITS_MAX {
        return None;
    }
    let whole: u128 = whole.parse().ok()?;
    let fraction: u128 = format!("{fraction:0<FRACTION_DIGITS_MAX$}").parse().ok()?;
    whole.checked_mul(1_000)?.checked_add(fraction)
}

/// Formats an amount in the largest unit that divides it.
#[must_use]
pub fn format_mib(mib: u64) -> String {
    const STEP: u64 = 1 << 10;
    if mib > 0 && mib.is_multiple_of(STEP * STEP) {
        format!("{}TiB", mib / (STEP * STEP))
    } else if mib > 0 && mib.is_multiple_of(STEP) {
        format!("{}GiB", mib / STEP)
    } else {
        format!("{mib}MiB")
    }
}

impl fmt::Display for HumanSize {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&format_mib(self.mib))
    }
}

impl Serialize for HumanSize {
    fn serialize<Target: Serializer>(&self, target: Target) -> Result<Target::Ok, Target::Error> {
        target.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for HumanSize {
    fn deserialize<Source: Deserializer<'de>>(source: Source) -> Result<Self, Source::Error> {
        let text = String::deserialize(source)?;
        size(&text).map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_parsed() {
        let cases = [
            ("512MiB", 512),
            ("16GiB", 16_384),
            ("1.5TiB", 1_572_864),
            ("0.25gib", 256),
            ("64GB", 61_036),
            ("1kB", 1),
            ("0MiB", 0),
        ];
        for (text, mib) in cases {
            assert_eq!(size(text), Ok(HumanSize { mib }), "{text}");
        }
    }

    #[test]
    fn invalid_sizes_are_explained() {
        let number = "the number is not whole, or has over 3 digits after the point";
        let cases = [
            ("", "it must begin with a number"),
            ("GiB", "it must begin with a number"),
            ("16", "the unit is missing"),
            ("16G", "the unit is unknown"),
            ("16 GiB", "the unit is unknown"),
            ("1.2.3GiB", number),
            ("1.GiB", number),
            ("1.2345GiB", number),
            ("99999999999999999999TiB", "it is too large"),
        ];
        for (text, why) in cases {
            let expected =
                format!("`{text}` is not a size: {why} (write 512MiB, 16GiB, 1.5TiB or 64GB)");
            assert_eq!(size(text), Err(expected), "{text}");
        }
    }

    #[test]
    fn a_formatted_size_is_parsed_back() {
        for mib in [0, 1, 1_023, 1_024, 1_536, 1 << 20, 3 << 20] {
            assert_eq!(size(&format_mib(mib)), Ok(HumanSize { mib }));
        }
    }
}
