//! Parsers of single values.

use muster_model::command::AllocationBasis;

use crate::scenario::script::statement::{GpuName, Target};

type Read<T> = Result<T, String>;

/// Milliseconds in each unit of time, largest first.
const UNITS: [(&str, u64); 5] = [
    ("d", 86_400_000),
    ("h", 3_600_000),
    ("ms", 1),
    ("m", 60_000),
    ("s", 1_000),
];

/// Any text that is not empty.
pub(crate) fn text(text: &str) -> Read<String> {
    if text.is_empty() {
        return Err("a text that is not empty".to_owned());
    }
    Ok(text.to_owned())
}

/// A whole number from 0 on.
pub(crate) fn count(text: &str) -> Read<u32> {
    text.parse()
        .map_err(|_| "a whole number from 0 on, as in 8".to_owned())
}

/// A larger whole number from 0 on.
pub(crate) fn large_count(text: &str) -> Read<u64> {
    text.parse()
        .map_err(|_| "a whole number from 0 on, as in 1024".to_owned())
}

/// A whole number.
pub(crate) fn integer(text: &str) -> Read<i32> {
    text.parse()
        .map_err(|_| "a whole number, as in -1".to_owned())
}

/// Milliseconds, written as `1h30m`, `10m`, `5s`, `200ms`, `2d`.
pub(crate) fn duration(text: &str) -> Read<u64> {
    let wanted = || "a duration, as in 1h30m, 5s or 200ms".to_owned();
    let (mut rest, mut total) = (text, 0u64);
    while !rest.is_empty() {
        let digits = rest.find(|letter: char| !letter.is_ascii_digit());
        let (number, after) = rest.split_at(digits.ok_or_else(wanted)?);
        let number: u64 = number.parse().map_err(|_| wanted())?;
        let unit = (UNITS.iter()).find(|(unit, _)| names_unit(after, unit));
        let (unit, factor_ms) = unit.ok_or_else(wanted)?;
        let span_ms = number.checked_mul(*factor_ms).ok_or_else(wanted)?;
        total = total.checked_add(span_ms).ok_or_else(wanted)?;
        rest = &after[unit.len()..];
    }
    if text.is_empty() {
        Err(wanted())
    } else {
        Ok(total)
    }
}

/// Whether a text begins with exactly this unit.
fn names_unit(text: &str, unit: &str) -> bool {
    let after = text.strip_prefix(unit);
    after.is_some_and(|after| !after.starts_with(|letter: char| letter.is_ascii_alphabetic()))
}

/// Names separated by commas.
pub(crate) fn list(text: &str) -> Read<Vec<String>> {
    let names: Vec<String> = text.split(',').map(str::to_owned).collect();
    if names.iter().any(String::is_empty) {
        return Err("names separated by commas, as in a,b".to_owned());
    }
    Ok(names)
}

/// Names separated by commas, or `none`.
pub(crate) fn list_or_none(text: &str) -> Read<Vec<String>> {
    if text == "none" {
        return Ok(Vec::new());
    }
    list(text)
}

/// GPUs separated by commas, each as `HOST:INDEX`.
pub(crate) fn gpus(text: &str) -> Read<Vec<GpuName>> {
    text.split(',').map(gpu).collect()
}

fn gpu(text: &str) -> Read<GpuName> {
    let wanted = || "GPUs, as in n1:0,n1:1".to_owned();
    let (host, index) = text.rsplit_once(':').ok_or_else(wanted)?;
    if host.is_empty() {
        return Err(wanted());
    }
    Ok(GpuName {
        host: host.to_owned(),
        index: index.parse().map_err(|_| wanted())?,
    })
}

/// A host, or one of its GPUs as `HOST:INDEX`.
pub(crate) fn target(text: &str) -> Read<Target> {
    if text.contains(':') {
        return gpu(text).map(Target::Gpu);
    }
    if text.is_empty() {
        return Err("a host or a GPU, as in n1 or n1:3".to_owned());
    }
    Ok(Target::Host(text.to_owned()))
}

/// Sizes of cells: one for all (`4`), or each (`5+7`).
pub(crate) fn sizes(text: &str) -> Read<Vec<u32>> {
    let parsed: Result<Vec<u32>, _> = text.split('+').map(str::parse).collect();
    match parsed {
        Ok(sizes) if !sizes.contains(&0) => Ok(sizes),
        _ => Err("GPUs of each cell: 4, or 5+7 for uneven ones".to_owned()),
    }
}

/// Allocation basis of an attempt; cells are not named.
pub(crate) fn allocation_basis(text: &str) -> Read<AllocationBasis> {
    match text {
        "share" => Ok(AllocationBasis::Share),
        "cells" => Ok(AllocationBasis::Cells(Vec::new())),
        "opportunistic" => Ok(AllocationBasis::Opportunistic),
        _ => Err("share, cells or opportunistic".to_owned()),
    }
}

/// A level of cells; a trailing `?` makes it a preference.
pub(crate) fn within(text: &str) -> Read<muster_model::spec::Within> {
    let required = !text.ends_with('?');
    let level = text.trim_end_matches('?').to_owned();
    if level.is_empty() {
        return Err("a level of cells, as in rack, or rack? for a preference".to_owned());
    }
    Ok(muster_model::spec::Within { level, required })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_parsed_into_milliseconds() {
        assert_eq!(duration("1h30m"), Ok(5_400_000));
        assert_eq!(duration("200ms"), Ok(200));
        assert_eq!(duration("2d1s"), Ok(172_801_000));
        for wrong in ["", "5", "h", "1y", "1hm", "99999999999999999999h"] {
            assert!(duration(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn hosts_and_gpus_are_parsed_as_targets() {
        assert_eq!(target("n1"), Ok(Target::Host("n1".to_owned())));
        let gpu = GpuName {
            host: "n1".to_owned(),
            index: 3,
        };
        assert_eq!(target("n1:3"), Ok(Target::Gpu(gpu)));
        assert!(target("n1:x").is_err());
    }
}
