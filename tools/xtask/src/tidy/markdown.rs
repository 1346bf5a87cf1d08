//! Check that a document has exactly one title, at its beginning.

use crate::tidy::finding::Finding;

/// Checks the title.
pub(crate) fn check(path: &str, text: &str) -> Vec<Finding> {
    let titles = titles(text);
    let first = text
        .lines()
        .position(|line| !line.trim().is_empty())
        .map_or(1, |index| index + 1);
    if let Some(second) = titles.get(1) {
        return vec![Finding::new(
            path,
            *second,
            "markdown-title",
            "a second title: use `##` for sections",
        )];
    }
    if titles.first() != Some(&first) {
        return vec![Finding::new(
            path,
            first,
            "markdown-title",
            "the document does not begin with a `# ` title",
        )];
    }
    Vec::new()
}

/// Lines of top-level headings outside code blocks.
fn titles(text: &str) -> Vec<usize> {
    let mut is_code = false;
    let mut titles = Vec::new();
    for (index, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            is_code = !is_code;
        } else if !is_code && line.starts_with("# ") {
            titles.push(index + 1);
        }
    }
    titles
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_document_begins_with_its_only_title() {
        for (text, findings) in [
            ("# Muster\n\ntext\n\n## Part\n", 0),
            ("# Muster\n\n```sh\n# a comment\n```\n", 0),
            ("# Muster\n\n# Again\n", 1),
            ("text\n\n# Muster\n", 1),
            ("text\n", 1),
            ("", 1),
        ] {
            let found = check("docs/a.md", text);
            assert_eq!(found.len(), findings, "{text:?}");
            assert!(found.iter().all(|finding| finding.rule == "markdown-title"));
        }
    }
}
