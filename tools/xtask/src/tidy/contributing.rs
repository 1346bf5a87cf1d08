//! Check that paths in the contributors' guide exist.

use crate::tidy::TextFile;
use crate::tidy::finding::Finding;

/// The document whose tables name files and folders in their second column.
const DOCUMENT: &str = "CONTRIBUTING.md";

/// Checks that every path in backticks in the second column of a table exists.
pub(super) fn check(files: &[TextFile]) -> Vec<Finding> {
    let Some(document) = files.iter().find(|file| file.path == DOCUMENT) else {
        return vec![Finding::new(DOCUMENT, 1, "paths", "is missing")];
    };
    let mut findings = Vec::new();
    for (index, line) in document.text.lines().enumerate() {
        for path in paths(line).filter(|path| !exists(files, path)) {
            let message = format!("`{path}` does not exist");
            findings.push(Finding::new(DOCUMENT, index + 1, "paths", message));
        }
    }
    findings
}

/// The paths in backticks in the second cell of `line`, if that is a table row.
fn paths(line: &str) -> impl Iterator<Item = &str> {
    let row = line.strip_prefix('|').unwrap_or_default();
    let cell = row.split('|').nth(1).unwrap_or_default();
    cell.split('`').skip(1).step_by(2)
}

/// Whether `path` is a file, or a folder with one.
fn exists(files: &[TextFile], path: &str) -> bool {
    files.iter().any(|file| {
        let rest = file.path.strip_prefix(path);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, text: &str) -> TextFile {
        TextFile {
            path: path.to_owned(),
            text: text.to_owned(),
        }
    }

    #[test]
    fn every_path_in_the_second_column_exists() {
        for (row, findings) in [
            ("| a state | `core/src/a.rs` | a file |", 0),
            ("| | `core/src` | a folder |", 0),
            ("| a state | `core/src/b.rs` | |", 1),
            ("| a state | `core/sr` | the beginning of a name |", 1),
            ("| a state | `core/src/a.rs`, `b`, `c` | |", 2),
            ("| `b` | no path | `c` |", 0),
            ("|---|---|---|", 0),
            ("Text with `b`, and a bar | `c` | behind it.", 0),
        ] {
            let document = file(DOCUMENT, &format!("# Contributing\n\n{row}\n"));
            let found = check(&[document, file("core/src/a.rs", "")]);
            assert_eq!(found.len(), findings, "{row}");
            assert!(found.iter().all(|finding| finding.rule == "paths"));
        }
    }

    #[test]
    fn the_guide_exists() {
        assert_eq!(check(&[file("README.md", "")]).len(), 1);
    }
}
