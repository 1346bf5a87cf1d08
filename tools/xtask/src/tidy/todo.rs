//! Check that every to-do comment refers to an issue.

use crate::tidy::finding::Finding;

/// The words, spelt so that this file does not match.
const WORDS: [&str; 3] = [
    concat!("TO", "DO"),
    concat!("FIX", "ME"),
    concat!("XX", "X"),
];

/// Checks that such a word is followed by an issue number: `(#12)`.
pub(crate) fn check(path: &str, text: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (index, line) in text.lines().enumerate() {
        for word in WORDS {
            if is_bare(line, word) {
                let message = format!("`{word}` without an issue: write `{word}(#number)`");
                findings.push(Finding::new(path, index + 1, "todo", message));
            }
        }
    }
    findings
}

/// Whether `line` contains `word` as a separate word without an issue number behind it.
fn is_bare(line: &str, word: &str) -> bool {
    line.match_indices(word).any(|(start, _)| {
        let (before, after) = (&line[..start], &line[start + word.len()..]);
        let is_part = before.ends_with(is_word) || after.starts_with(is_word);
        let has_issue = after
            .strip_prefix("(#")
            .is_some_and(|rest| rest.starts_with(|it: char| it.is_ascii_digit()));
        !is_part && !has_issue
    })
}

fn is_word(character: char) -> bool {
    character.is_alphanumeric() || character == '_'
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_needs_an_issue() {
        for word in WORDS {
            assert_eq!(
                check("a.rs", &format!("fine\n// {word}: later"))[0].rule,
                "todo"
            );
            assert_eq!(check("a.rs", &format!("// {word}(me): later")).len(), 1);
            assert!(check("a.rs", &format!("// {word}(#12): later")).is_empty());
            assert!(check("a.rs", &format!("MY_{word}_LIST {word}S")).is_empty());
        }
    }
}
