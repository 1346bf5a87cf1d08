//! Check that every file begins with a module comment.

use crate::tidy::finding::Finding;
use crate::tidy::source::Source;

/// Checks that the first line is a module comment.
pub(crate) fn check(source: &Source) -> Vec<Finding> {
    let first = source.text.lines().find(|line| !line.trim().is_empty());
    if first.is_some_and(|line| line.starts_with("//!") && line.len() > "//! ".len()) {
        return Vec::new();
    }
    let message = "the file does not begin with a `//!` comment that says what it is for";
    vec![Finding::new(&source.path, 1, "module-docs", message)]
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    #[test]
    fn a_file_begins_with_its_purpose() {
        for (text, findings) in [
            ("//! Counts GPUs.\nfn f() {}\n", 0),
            ("fn f() {}\n", 1),
            ("//!\nfn f() {}\n", 1),
            ("", 1),
        ] {
            let source = Source::parse("core/src/a.rs", text).unwrap();
            assert_eq!(check(&source).len(), findings, "{text:?}");
        }
        assert_eq!(
            check(&Source::parse("a.rs", "fn f() {}").unwrap())[0].rule,
            "module-docs"
        );
    }
}
