//! The table `[rails]`: limits of the guard rails.

use std::ops::RangeInclusive;

use crate::guard_rails::RailsLimits;
use crate::rules::RuleError;
use crate::rules::parse::{SPAN_S_MAX, number_in, span_ms};
use crate::rules::text::Table;

/// Name of the table, which no rule can have.
pub(super) const RAILS: &str = "rails";
/// Range of parts of a pool.
const PERMILLE: RangeInclusive<u32> = 1..=1_000;
/// Range of counts that may be zero.
const COUNT: RangeInclusive<u32> = 0..=64;
/// Range of counts that are at least one.
const SOME: RangeInclusive<u32> = 1..=64;
const NAMES: [&str; 10] = [
    "soft_hour_permille",
    "soft_outstanding_permille",
    "hosts_always",
    "hard_permille",
    "per_job",
    "per_tenant",
    "users_min",
    "repairs_permille",
    "repairs_per_rack",
    "breaker_s",
];

/// Parses the table; missing entries have the shipped values.
pub(super) fn read(table: &Table) -> Result<RailsLimits, RuleError> {
    let mut limits = RailsLimits::default();
    for (index, entry) in table.entries.iter().enumerate() {
        let wrong = |problem: &str, remedy: String| {
            RuleError::at(entry.line, problem, remedy).of_field(&entry.name)
        };
        if table.entries[..index]
            .iter()
            .any(|it| it.name == entry.name)
        {
            return Err(wrong("duplicate entry", "remove one".to_owned()));
        }
        if entry.name == "breaker_s" {
            let remedy = || format!("write seconds from 1 to {SPAN_S_MAX}");
            limits.breaker_ms =
                span_ms(&entry.value).ok_or_else(|| wrong("not a valid span", remedy()))?;
            continue;
        }
        let Some((limit, range)) = limit_of(&mut limits, &entry.name) else {
            let remedy = format!("they are {}", NAMES.join(", "));
            return Err(wrong("no such rail exists", remedy));
        };
        *limit = number_in(&entry.value, &range).ok_or_else(|| {
            let (least, most) = range.into_inner();
            let remedy = format!("write a whole number from {least} to {most}");
            wrong("not a number in range", remedy)
        })?;
    }
    Ok(limits)
}

fn limit_of<'a>(
    limits: &'a mut RailsLimits,
    name: &str,
) -> Option<(&'a mut u32, RangeInclusive<u32>)> {
    Some(match name {
        "soft_hour_permille" => (&mut limits.soft_hour_permille, PERMILLE),
        "soft_outstanding_permille" => (&mut limits.soft_outstanding_permille, PERMILLE),
        "hosts_always" => (&mut limits.hosts_always, COUNT),
        "hard_permille" => (&mut limits.hard_permille, PERMILLE),
        "per_job" => (&mut limits.per_job, COUNT),
        "per_tenant" => (&mut limits.per_tenant, COUNT),
        "users_min" => (&mut limits.users_min, SOME),
        "repairs_permille" => (&mut limits.repairs_permille, PERMILLE),
        "repairs_per_rack" => (&mut limits.repairs_per_rack, SOME),
        _ => return None,
    })
}
