//! Health rules as admins write them: a valid file stays valid in its form in the log.

use muster_health::rules::{Condition, RuleSet};

use crate::{SMALL, assert_same, bounded};

/// Checks one input.
pub(crate) fn run(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    bounded(data, SMALL, || {
        drop(Condition::parse(text));
        let Ok(rules) = RuleSet::parse(text).map_err(|error| error.to_string()) else {
            return;
        };
        let whole = RuleSet::whole_text(text).and_then(|whole| RuleSet::parse_whole(&whole));
        assert_same(&whole, &Ok(rules));
    });
}
