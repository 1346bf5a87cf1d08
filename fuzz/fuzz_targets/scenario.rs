//! Scripts of scenarios: one that is read is read again, without its results, as the same.
#![no_main]

use std::collections::BTreeMap;

use libfuzzer_sys::fuzz_target;
use muster_fuzz::{SMALL, bounded, or_panic};
use muster_scenario::{NoFiles, Script};

fuzz_target!(|data: &[u8]| {
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
});
