//! What a test says past the capture of its output, which shows only what failed.

use std::io::Write as _;

/// Says something that whoever runs the tests should see.
///
/// # Panics
/// If standard error is closed.
pub fn note(text: &str) {
    let line = format!("{text}\n");
    std::io::stderr().write_all(line.as_bytes()).unwrap();
}

/// Says why a test does not run here; for tests that need root, a compiler or the like.
///
/// # Panics
/// As [`note`].
pub fn skip(reason: &str) {
    note(&format!("skipped: {reason}"));
}
