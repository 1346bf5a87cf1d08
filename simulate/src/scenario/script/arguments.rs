//! Typed access to a statement's words, one by one; unread words are an error.

use crate::scenario::script::ScriptError;
use crate::scenario::script::grammar::Grammar;
use crate::scenario::script::words::Word;

/// The words after a statement's name.
pub(crate) struct Arguments {
    grammar: &'static Grammar,
    line: u32,
    /// Column after the last word, for errors about missing words.
    end_column: u32,
    words: Vec<Word>,
}

type Result<T> = std::result::Result<T, ScriptError>;

impl Arguments {
    pub(crate) fn new(
        grammar: &'static Grammar,
        line: u32,
        end_column: u32,
        words: Vec<Word>,
    ) -> Self {
        Self {
            grammar,
            line,
            end_column,
            words,
        }
    }

    pub(crate) const fn line(&self) -> u32 {
        self.line
    }

    /// Whether no word is left.
    pub(crate) fn is_empty(&self) -> bool {
        self.words.is_empty()
    }

    /// The next bare word.
    pub(crate) fn optional(&mut self) -> Option<Word> {
        let position = self.words.iter().position(|word| word.key.is_none())?;
        Some(self.words.remove(position))
    }

    /// The next bare word; an error if there is none.
    pub(crate) fn required(&mut self, what: &str) -> Result<Word> {
        let found = self.optional();
        found.ok_or_else(|| self.fail(self.end_column, &format!("{what} is missing here")))
    }

    /// The next bare word, parsed by `read`.
    pub(crate) fn value<T>(&mut self, what: &str, read: Reader<T>) -> Result<T> {
        let word = self.required(what)?;
        self.read(&word, read)
    }

    /// Takes a bare word if present; returns whether it was.
    pub(crate) fn flag(&mut self, name: &str) -> bool {
        let is_it = |word: &Word| word.key.is_none() && word.text == name;
        match self.words.iter().position(is_it) {
            Some(position) => {
                self.words.remove(position);
                true
            }
            None => false,
        }
    }

    /// An option's value, parsed by `read`.
    pub(crate) fn option<T>(&mut self, key: &str, read: Reader<T>) -> Result<Option<T>> {
        let is_it = |word: &Word| word.key.as_deref() == Some(key);
        let Some(position) = self.words.iter().position(is_it) else {
            return Ok(None);
        };
        let word = self.words.remove(position);
        self.read(&word, read).map(Some)
    }

    /// An option's value, or the default.
    pub(crate) fn option_or<T>(&mut self, key: &str, default: T, read: Reader<T>) -> Result<T> {
        Ok(self.option(key, read)?.unwrap_or(default))
    }

    /// All remaining words as one text; `None` if there are none.
    pub(crate) fn rest(&mut self) -> Option<String> {
        if self.words.is_empty() {
            return None;
        }
        let words = self.words.drain(..).map(|word| match word.key {
            Some(key) => format!("{key}={}", word.text),
            None => word.text,
        });
        Some(words.collect::<Vec<_>>().join(" "))
    }

    /// Splits off the words from the first bare `mark` on, without it; the parts keep the grammar.
    pub(crate) fn split_at(&mut self, mark: &str) -> Vec<Self> {
        let words = std::mem::take(&mut self.words);
        let is_mark = |word: &Word| word.key.is_none() && word.text == mark;
        let mut parts = words.split(is_mark).map(<[Word]>::to_vec);
        self.words = parts.next().unwrap_or_default();
        parts
            .map(|words| Self::new(self.grammar, self.line, self.end_column, words))
            .collect()
    }

    /// Every option whose name is in `keys`, in the order of `keys`.
    pub(crate) fn options_named(&mut self, keys: &[String]) -> Vec<Option<Word>> {
        let mut found = Vec::new();
        for key in keys {
            let position = (self.words.iter()).position(|word| word.key.as_ref() == Some(key));
            found.push(position.map(|position| self.words.remove(position)));
        }
        found
    }

    /// Fails if a word is left.
    pub(crate) fn finish(&self) -> Result<()> {
        match self.words.first() {
            None => Ok(()),
            Some(word) => {
                let message = format!("`{}` is not allowed here", word.shown());
                Err(self.fail(word.column, &message))
            }
        }
    }

    /// Parses a word.
    pub(crate) fn read<T>(&self, word: &Word, read: Reader<T>) -> Result<T> {
        read(&word.text).map_err(|wanted| {
            let shown = match &word.key {
                Some(key) => format!("{key}={}", word.text),
                None => word.text.clone(),
            };
            self.fail(
                word.column,
                &format!("invalid `{shown}`: expected {wanted}"),
            )
        })
    }

    /// An error at a column, with the allowed syntax.
    pub(crate) fn fail(&self, column: u32, message: &str) -> ScriptError {
        let message = format!("{message}; allowed: {}", self.grammar.usage);
        ScriptError::new(self.line, column, message)
    }
}

/// Parser of a text; its error is the expected syntax.
pub(crate) type Reader<T> = fn(&str) -> std::result::Result<T, String>;
