//! Tests that this machine cannot run.

use std::io::Write as _;

/// Says why a test does not run here; for tests that need root, a compiler or the like.
///
/// # Panics
/// If standard error is closed.
pub fn skip(reason: &str) {
    let line = format!("skipped: {reason}\n");
    std::io::stderr().write_all(line.as_bytes()).unwrap();
}
