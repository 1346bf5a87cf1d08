//! Words of a line with their columns.

use crate::scenario::script::ScriptError;

/// One word: bare (`gang`), or an option with its value (`gpus=8`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Word {
    /// The option's name; `None` for a bare word.
    pub(crate) key: Option<String>,
    /// The word, or the option's value, without quotes.
    pub(crate) text: String,
    /// Column of its first character, counted from 1.
    pub(crate) column: u32,
}

impl Word {
    /// The word as error messages show it.
    pub(crate) fn shown(&self) -> String {
        match &self.key {
            Some(key) => format!("{key}="),
            None => self.text.clone(),
        }
    }
}

/// Splits a line into words. White space separates them, double quotes group characters, and `#` at the
/// beginning of a word starts a comment.
pub(crate) fn split(line: &str, number: u32) -> Result<Vec<Word>, ScriptError> {
    let mut words = Vec::new();
    let mut rest = line.chars().zip(1u32..).peekable();
    while let Some((letter, column)) = rest.peek().copied() {
        if letter.is_whitespace() {
            rest.next();
            continue;
        }
        if letter == '#' {
            break;
        }
        let mut reading = Reading::default();
        while let Some((letter, column)) =
            rest.next_if(|(letter, _)| reading.continues_with(*letter))
        {
            reading.take(letter, column);
        }
        if let Some(column) = reading.quote_column.filter(|_| reading.quoted) {
            let message = "unterminated quotation; allowed: \"...\"".to_owned();
            return Err(ScriptError::new(number, column, message));
        }
        words.push(Word {
            key: reading.key,
            text: reading.text,
            column,
        });
    }
    Ok(words)
}

/// A word being read.
#[derive(Default)]
struct Reading {
    key: Option<String>,
    text: String,
    quoted: bool,
    escaped: bool,
    quote_column: Option<u32>,
}

impl Reading {
    const fn continues_with(&self, letter: char) -> bool {
        self.quoted || !letter.is_whitespace()
    }

    fn take(&mut self, letter: char, column: u32) {
        if std::mem::take(&mut self.escaped) {
            self.text.push(letter);
            return;
        }
        match letter {
            '\\' if self.quoted => self.escaped = true,
            '"' => {
                self.quoted = !self.quoted;
                self.quote_column = Some(column);
            }
            '=' if !self.quoted && self.key.is_none() && is_name(&self.text) => {
                self.key = Some(std::mem::take(&mut self.text));
            }
            other => self.text.push(other),
        }
    }
}

fn is_name(text: &str) -> bool {
    let usable = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '_' | '-');
    !text.is_empty() && text.chars().all(usable)
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests may panic")]
mod tests {
    use super::*;

    fn shown(line: &str) -> Vec<(Option<String>, String, u32)> {
        let words = split(line, 1).unwrap();
        words
            .into_iter()
            .map(|word| (word.key, word.text, word.column))
            .collect()
    }

    #[test]
    fn words_options_quotes_and_comments() {
        let option =
            |key: &str, text: &str, column| (Some(key.to_owned()), text.to_owned(), column);
        assert_eq!(
            shown(r#"block n1:3  reason="a \"b\" = c" # why"#),
            [
                (None, "block".to_owned(), 1),
                (None, "n1:3".to_owned(), 7),
                option("reason", r#"a "b" = c"#, 13),
            ]
        );
        assert_eq!(shown("  # nothing"), []);
    }

    #[test]
    fn an_open_quotation_is_reported_with_its_column() {
        let error = split("block n1 reason=\"fan", 7).unwrap_err();
        assert_eq!((error.line, error.column), (7, 17));
    }
}
