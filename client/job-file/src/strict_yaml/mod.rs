//! Strict YAML and JSON parsing: an unknown field, a repeated key or a wrong type is an error with its
//! position.
//!
//! JSON uses the same parser, as YAML contains it.

mod locate;

use std::fmt;

use muster_text::nearest;
use serde::de::DeserializeOwned;

pub use locate::Positions;

/// One document of a file.
#[derive(Clone, Debug)]
pub struct Document<'a, T> {
    /// The parsed value.
    pub value: T,
    /// Source text of the document.
    pub text: &'a str,
    /// Number of lines of the file before the document.
    pub lines_before: u64,
}

/// An error in a file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct FileError {
    /// Name of the file; `<stdin>` for standard input.
    pub file: String,
    /// Line and column, counted from 1; `None` if unknown.
    pub position: Option<(u64, u64)>,
    /// Path of the field (`groups[1].count`); empty for the document itself.
    pub field: String,
    /// Description of the problem.
    pub message: String,
}

impl fmt::Display for FileError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}:", self.file)?;
        if let Some((line, column)) = self.position {
            write!(formatter, "{line}:{column}:")?;
        }
        if !self.field.is_empty() {
            write!(formatter, " {}:", self.field)?;
        }
        write!(formatter, " {}", self.message)
    }
}

/// Parses a file of one document.
///
/// # Errors
/// The first syntax error.
pub fn parse_one<T: DeserializeOwned>(file: &str, text: &str) -> Result<T, FileError> {
    parse_document(file, text, 0)
}

/// Parses all documents of a file (YAML separates them by `---`); at least one.
///
/// # Errors
/// The first syntax error, or that there is no document.
pub fn parse_all<'a, T: DeserializeOwned>(
    file: &str,
    text: &'a str,
) -> Result<Vec<Document<'a, T>>, FileError> {
    let mut documents = Vec::new();
    for (lines_before, text) in split_documents(text) {
        let value = parse_document(file, text, lines_before)?;
        documents.push(Document {
            value,
            text,
            lines_before,
        });
    }
    if documents.is_empty() {
        return Err(FileError {
            file: file.to_owned(),
            position: None,
            field: String::new(),
            message: "holds no document".to_owned(),
        });
    }
    Ok(documents)
}

/// The non-empty documents, each with the number of lines before it.
///
/// A line that begins with `---` cannot be anything else in YAML, not even within a block scalar.
fn split_documents(text: &str) -> Vec<(u64, &str)> {
    let mut documents = Vec::new();
    let (mut begin, mut begin_line) = (0usize, 0u64);
    let (mut position, mut line_number) = (0usize, 0u64);
    for line in text.split_inclusive('\n') {
        if is_separator(line) && position > begin {
            documents.push((begin_line, &text[begin..position]));
            (begin, begin_line) = (position, line_number);
        }
        position += line.len();
        line_number += 1;
    }
    documents.push((begin_line, &text[begin..]));
    documents.retain(|(_, text)| text.lines().any(holds_content));
    documents
}

fn is_separator(line: &str) -> bool {
    let rest = line.strip_prefix("---");
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(char::is_whitespace))
}

fn holds_content(line: &str) -> bool {
    let after_separator = if is_separator(line) { &line[3..] } else { line };
    let rest = after_separator.trim();
    !rest.is_empty() && !rest.starts_with('#') && rest != "..."
}

fn parse_document<T: DeserializeOwned>(
    file: &str,
    text: &str,
    lines_before: u64,
) -> Result<T, FileError> {
    let mut track = serde_path_to_error::Track::new();
    let options = serde_saphyr::options! { with_snippet: false };
    let parsed = serde_saphyr::with_deserializer_from_str_with_options(text, options, |source| {
        T::deserialize(serde_path_to_error::Deserializer::new(source, &mut track))
    });
    parsed.map_err(|error| FileError {
        file: file.to_owned(),
        position: error
            .location()
            .map(|place| (place.line() + lines_before, place.column())),
        field: known_path(&track.path()),
        message: message(&error),
    })
}

/// Path of a field, without the last step if its key was not parsed.
fn known_path(path: &serde_path_to_error::Path) -> String {
    let text = path.to_string();
    let known = text
        .strip_suffix('?')
        .map_or(&*text, |text| text.trim_end_matches('.'));
    if known == "." {
        return String::new();
    }
    known.to_owned()
}

/// Message of an error without the position, which is printed before it.
fn message(error: &serde_saphyr::Error) -> String {
    if let Some(text) = plain_message(error.without_snippet()) {
        return text;
    }
    let text = error.without_snippet().to_string();
    let place = error
        .location()
        .map(|place| format!(" at line {}, column {}", place.line(), place.column()));
    match place.and_then(|place| text.strip_suffix(&place).map(str::to_owned)) {
        Some(bare) => bare,
        None => text,
    }
}

/// Rewrites the most common parser errors for users who do not know the parser.
fn plain_message(error: &serde_saphyr::Error) -> Option<String> {
    use serde_saphyr::Error;
    Some(match error {
        Error::DuplicateMappingKey { key, .. } => {
            let key = key.as_deref().unwrap_or("a key");
            format!("`{key}` is given twice")
        }
        Error::InvalidScalar { ty, .. } => match *ty {
            "u8" | "u16" | "u32" | "u64" => "must be a whole number, 0 or more".to_owned(),
            "i8" | "i16" | "i32" | "i64" => "must be a whole number".to_owned(),
            "bool" => "must be true or false".to_owned(),
            other => format!("must be a {other}"),
        },
        Error::Unexpected { expected, .. } => match *expected {
            "sequence start" => "must be a list, as in [a, b]".to_owned(),
            "mapping start" => "must be a map, as in {a: b}".to_owned(),
            "string scalar" => "must be a text".to_owned(),
            other => format!("must be a {other}"),
        },
        Error::NullIntoString { .. } => {
            "must be a text, not null: write \"\" for an empty one".to_owned()
        }
        Error::SerdeUnknownField {
            field, expected, ..
        } => {
            let known = nearest(field, expected.iter().copied())?;
            format!("unknown field `{field}`; did you mean `{known}`?")
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_are_split_at_their_separators() {
        let text = "# head\n---\na: 1\n---\n\n# nothing\n--- # second\nb: 2\n";
        let documents = split_documents(text);
        let expected = vec![(1, "---\na: 1\n"), (6, "--- # second\nb: 2\n")];
        assert_eq!(documents, expected);
    }

    #[test]
    fn dashes_within_a_value_do_not_split_documents() {
        assert_eq!(split_documents("a: ---\nb: 1\n").len(), 1);
        assert_eq!(split_documents("a: |\n  ---\n  x\n").len(), 1);
        assert_eq!(split_documents("----\n").len(), 1);
    }

    #[test]
    fn a_file_without_a_document_is_rejected() {
        let error = parse_all::<String>("empty.yaml", "# nothing\n---\n");
        let text = error.map(|_| ()).map_err(|error| error.to_string());
        assert_eq!(text, Err("empty.yaml: holds no document".to_owned()));
    }
}
