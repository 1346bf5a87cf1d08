//! Plain English: banned words, empty documentation comments, and lines that are too long to read.
//!
//! `docs/glossary.md` has the word to use instead. Words in backticks are code and may stay.

use crate::tidy::finding::Finding;

/// Words and phrases of a private dialect; matched as whole words in any case.
/// Spelt so that this file does not find itself.
const BANNED: [&str; 45] = [
    concat!("who", "ever"),
    concat!("whom", "ever"),
    concat!("whoso", "ever"),
    concat!("no", "body"),
    concat!("some", "body"),
    concat!("a", "new"),
    concat!("in v", "ain"),
    concat!("to", "ld"),
    concat!("for g", "ood"),
    concat!("all the s", "ame"),
    concat!("so m", "any"),
    concat!("what there i", "s"),
    concat!("is none o", "f"),
    concat!("stand st", "ill"),
    concat!("stands st", "ill"),
    concat!("stood st", "ill"),
    concat!("standing st", "ill"),
    concat!("stand", "still"),
    concat!("be", "at"),
    concat!("be", "ats"),
    concat!("be", "fall"),
    concat!("be", "falls"),
    concat!("be", "fell"),
    concat!("be", "fallen"),
    concat!("bur", "ial"),
    concat!("bur", "ials"),
    concat!("he", "ir"),
    concat!("he", "irs"),
    concat!("de", "ed"),
    concat!("de", "eds"),
    concat!("re", "ign"),
    concat!("re", "igns"),
    concat!("ten", "ure"),
    concat!("ten", "ures"),
    concat!("sta", "nce"),
    concat!("lo", "yal"),
    concat!("ass", "ail"),
    concat!("be", "set"),
    concat!("i", "ll"),
    concat!("ill", "ness"),
    concat!("wa", "rd"),
    concat!("wa", "rds"),
    concat!("he", "ars"),
    concat!("he", "ard"),
    concat!("when", "ce"),
];
/// Words that say nothing as the only words of a documentation comment.
const EMPTY: [&str; 30] = [
    "whose",
    "which",
    "which one",
    "who",
    "whom",
    "where",
    "when",
    "why",
    "what",
    "how",
    "it",
    "that",
    "this",
    "of whom",
    "of which",
    "of what",
    "to whom",
    "by whom",
    "for whom",
    "does it",
    "is it",
    "has it",
    "on what",
    "in what",
    "by what",
    "how many",
    "how much",
    "how long",
    "since when",
    "the same",
];
/// First words of a module comment that announces a question instead of the module.
const QUESTIONS: [&str; 9] = [
    "What", "Who", "Whom", "Whose", "Which", "Where", "Why", "How", "When",
];
/// Characters in a line of code or of a comment.
const LINE_WIDTH_MAX: usize = 120;

/// The part of a line that people read, and its kind.
struct Text<'a> {
    kind: Kind,
    text: &'a str,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Module,
    Documentation,
    Other,
}

/// Checks a file of any kind; files that hold data are not concerned.
pub(crate) fn check(path: &str, text: &str) -> Vec<Finding> {
    let is_rust = path.ends_with(".rs") || path.ends_with(".proto");
    let is_markdown = path.ends_with(".md");
    let is_commented = [".toml", ".yaml", ".yml", ".sh", "Makefile"]
        .iter()
        .any(|ending| path.ends_with(ending));
    if !is_rust && !is_markdown && !is_commented {
        return Vec::new();
    }
    let mut findings = Vec::new();
    let mut before = Kind::Other;
    let mut is_code = false;
    for (index, line) in text.lines().enumerate() {
        let mut find = |rule: &'static str, message: String| {
            findings.push(Finding::new(path, index + 1, rule, message));
        };
        if is_rust && line.chars().count() > LINE_WIDTH_MAX {
            find("width", format!("more than {LINE_WIDTH_MAX} characters"));
        }
        let texts = if is_rust {
            rust(line)
        } else if is_markdown {
            is_code ^= line.starts_with("```");
            if is_code {
                Vec::new()
            } else {
                vec![Text {
                    kind: Kind::Other,
                    text: line,
                }]
            }
        } else {
            comment(line)
        };
        let kind = texts.first().map_or(Kind::Other, |text| text.kind);
        for text in &texts {
            let prose = without_code(text.text);
            for word in banned(&prose) {
                find(
                    "words",
                    format!(
                        "\"{word}\" is not plain English: docs/glossary.md has the word to use"
                    ),
                );
            }
            if kind == Kind::Module && before != Kind::Module && asks(&prose) {
                find(
                    "words",
                    "a module comment begins with a noun: the module, not a question".to_owned(),
                );
            }
            if kind == Kind::Documentation && before != Kind::Documentation && is_empty(&prose) {
                find(
                    "words",
                    format!("\"{}\" documents nothing", text.text.trim()),
                );
            }
        }
        before = kind;
    }
    findings
}

/// Comments and string literals of a line of Rust or of a schema.
fn rust(line: &str) -> Vec<Text<'_>> {
    let trimmed = line.trim_start();
    for (mark, kind) in [
        ("//!", Kind::Module),
        ("///", Kind::Documentation),
        ("//", Kind::Other),
    ] {
        if let Some(text) = trimmed.strip_prefix(mark) {
            return vec![Text { kind, text }];
        }
    }
    // Pieces at odd positions lie between quotes; what follows the last quote may hold a comment.
    let mut texts: Vec<Text<'_>> = line
        .split('"')
        .enumerate()
        .filter(|(index, piece)| index % 2 == 1 && piece.contains(' '))
        .map(|(_, text)| Text {
            kind: Kind::Other,
            text,
        })
        .collect();
    let rest = line.rsplit('"').next().unwrap_or_default();
    if let Some((_, text)) = rest.split_once("// ") {
        texts.push(Text {
            kind: Kind::Other,
            text,
        });
    }
    texts
}

/// The comment of a line of a script or a configuration.
fn comment(line: &str) -> Vec<Text<'_>> {
    let start = if line.starts_with('#') {
        Some(line)
    } else {
        line.split_once(" # ").map(|(_, text)| text)
    };
    start
        .map(|text| Text {
            kind: Kind::Other,
            text,
        })
        .into_iter()
        .collect()
}

/// The text without code: backticks, targets of links, and arguments of format strings.
fn without_code(text: &str) -> String {
    let prose: String = text.split('`').step_by(2).collect::<Vec<_>>().join(" ");
    without(&without(&prose, "](", ')'), "{", '}')
}

/// The text without what stands between `open` and the next `close`.
fn without(text: &str, open: &str, close: char) -> String {
    let mut rest = text;
    let mut kept = String::new();
    while let Some((before, after)) = rest.split_once(open) {
        kept.push_str(before);
        kept.push(' ');
        rest = after.split_once(close).map_or("", |(_, after)| after);
    }
    kept.push_str(rest);
    kept
}

/// The banned words and phrases in `prose`.
fn banned(prose: &str) -> impl Iterator<Item = &'static str> {
    let words: Vec<String> = prose
        .split(|letter: char| {
            !letter.is_alphanumeric() && letter != '_' && letter != '-' && letter != '\''
        })
        .filter(|word| !word.is_empty())
        .map(str::to_lowercase)
        .collect();
    BANNED.into_iter().filter(move |banned| {
        let wanted: Vec<&str> = banned.split(' ').collect();
        words
            .windows(wanted.len())
            .any(|found| found.iter().eq(wanted.iter().copied()))
    })
}

fn asks(prose: &str) -> bool {
    prose
        .split_whitespace()
        .next()
        .is_some_and(|word| QUESTIONS.contains(&word))
}

fn is_empty(prose: &str) -> bool {
    let plain = prose.trim().trim_end_matches('.').to_lowercase();
    EMPTY.contains(&plain.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(path: &str, text: &str) -> usize {
        check(path, text).len()
    }

    #[test]
    fn banned_words_are_found_in_comments_strings_and_documents() {
        let word = concat!("No", "body");
        for text in [
            format!("// {word} knows.\n"),
            format!("/// {word} knows.\n"),
            format!("let text = \"{word} knows\";\n"),
            format!("let number = 1; // {word} knows\n"),
        ] {
            assert_eq!(count("a.rs", &text), 1, "{text}");
        }
        assert_eq!(count("a.md", &format!("{word} knows.\n")), 1);
        assert_eq!(count("a.toml", &format!("a = 1 # {word} knows.\n")), 1);
        let phrase = concat!("They come in v", "ain.");
        assert_eq!(count("a.md", phrase), 1);
    }

    #[test]
    fn code_data_and_other_words_pass() {
        let word = concat!("no", "body");
        assert_eq!(count("a.rs", &format!("let {word} = 1; // `{word}`\n")), 0);
        assert_eq!(count("a.rs", &format!("// {word}_else\n")), 0);
        assert_eq!(
            count("a.md", &format!("```\n{word}\n```\n[here]({word}.md)\n")),
            0
        );
        assert_eq!(
            count("a.rs", &format!("let text = \"found {{{word}}} there\";\n")),
            0
        );
        assert_eq!(count("a.csv", word), 0);
    }

    #[test]
    fn uninformative_comments_are_found() {
        assert_eq!(count("a.rs", "/// Whose.\nfield: u8,\n"), 1);
        assert_eq!(count("a.rs", "/// The owner.\n/// Which.\nfield: u8,\n"), 0);
        assert_eq!(count("a.rs", "//! What workers found.\n"), 1);
        assert_eq!(
            count("a.rs", "//! Findings of workers.\n//! What they found.\n"),
            0
        );
    }

    #[test]
    fn long_lines_are_found() {
        assert_eq!(
            count("a.rs", &format!("// {}\n", "a".repeat(LINE_WIDTH_MAX))),
            1
        );
        assert_eq!(
            count("a.md", &format!("{}\n", "a".repeat(LINE_WIDTH_MAX + 1))),
            0
        );
    }
}
