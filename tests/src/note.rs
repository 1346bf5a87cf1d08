//! Messages that bypass the test runner's output capture, which shows only failures.

use std::io::Write as _;

/// Prints a message for the user who runs the tests.
///
/// # Panics
/// If standard error is closed.
pub fn note(text: &str) {
    let line = format!("{text}\n");
    std::io::stderr().write_all(line.as_bytes()).unwrap();
}

/// Prints why a test is skipped; for tests that need root, a compiler or the like.
///
/// # Panics
/// Like [`note`].
pub fn skip(reason: &str) {
    note(&format!("skipped: {reason}"));
}
