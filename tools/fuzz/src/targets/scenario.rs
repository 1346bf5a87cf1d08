//! Scenario scripts: a valid one is unchanged when read again without its results.

use std::collections::BTreeMap;

use muster_simulate::scenario::{NoFiles, Script};

use crate::{SMALL, bounded, or_panic};

/// Checks one input.
pub(crate) fn run(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    bounded(data, SMALL, || {
        let Ok(script) = Script::parse(text, &NoFiles) else {
            return;
        };
        let bare = script.with_results(&BTreeMap::new());
        let again = or_panic(Script::parse(&bare, &NoFiles), "its own text is refused");
        assert!(!again.is_recorded());
        assert_eq!(again.with_results(&BTreeMap::new()), bare);
    });
}
