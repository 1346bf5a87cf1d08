//! Values given for options, by a flag or by a variable.

use std::fmt;

use serde_json::{Map, Value};

use crate::settings::option::{Kind, SettingsOption};
use crate::settings::problem::Problem;

/// Origin of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The settings file.
    File {
        /// File name.
        file: String,
        /// Line and column, counted from 1, if known.
        position: Option<(usize, usize)>,
    },
    /// An environment variable.
    Variable(String),
    /// A flag, with its dashes.
    Flag(String),
}

impl fmt::Display for Origin {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File {
                file,
                position: None,
            } => formatter.write_str(file),
            Self::File {
                file,
                position: Some((line, column)),
            } => write!(formatter, "{file}:{line}:{column}"),
            Self::Variable(name) | Self::Flag(name) => formatter.write_str(name),
        }
    }
}

/// A value that overrides the file's.
#[derive(Clone, Debug, PartialEq)]
pub struct OptionValue {
    /// Key of the option.
    pub key: String,
    /// Its value.
    pub value: Value,
    /// Origin of the value.
    pub origin: Origin,
}

impl OptionValue {
    /// Parses the value of a flag or a variable; a repeated flag adds values.
    ///
    /// Lists are written `a,b`, maps `name=value,name=value`; both, and everything that is neither text nor
    /// number, also in TOML syntax.
    ///
    /// # Errors
    /// The text is not a valid value of this option.
    pub fn read(
        option: &SettingsOption,
        texts: &[String],
        origin: Origin,
    ) -> Result<Self, Problem> {
        let text = texts.join(",");
        let value = read(&option.kind, &text).unwrap_or(Value::String(text));
        let given = Self {
            key: option.key.clone(),
            value,
            origin,
        };
        given.check(option)?;
        Ok(given)
    }

    /// Checks the value as far as possible without parsing it as the option's type.
    pub(crate) fn check(&self, option: &SettingsOption) -> Result<(), Problem> {
        // TOML has no null; JSON has.
        let unset = option.can_be_unset && (self.value == "" || self.value.is_null());
        if unset || option.kind.admits(&self.value) {
            return Ok(());
        }
        let message = format!(
            "must be {}, not {}",
            option.kind.description(),
            shown(&self.value)
        );
        Err(Problem::of_option(option, &self.origin, message))
    }
}

/// Describes a value for an error message.
fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => format!("the text \"{text}\""),
        Value::Array(_) => "a list".to_owned(),
        Value::Object(_) => "a table".to_owned(),
        other => other.to_string(),
    }
}

fn read(kind: &Kind, text: &str) -> Option<Value> {
    match kind {
        Kind::Text | Kind::Keyword(_) => None,
        Kind::Texts if !text.starts_with('[') => {
            let items = text
                .split(',')
                .map(str::trim)
                .filter(|item| !item.is_empty());
            Some(items.map(Value::from).collect())
        }
        Kind::Map if !text.starts_with('{') => {
            let entries = text
                .split(',')
                .map(str::trim)
                .filter(|entry| !entry.is_empty());
            let pair = |entry: &str| {
                let (name, value) = entry.split_once('=')?;
                Some((name.trim().to_owned(), Value::from(value.trim())))
            };
            entries
                .map(pair)
                .collect::<Option<Map<_, _>>>()
                .map(Value::Object)
        }
        _ => as_toml(text),
    }
}

/// Parses a value in TOML syntax; none for a bare word, which remains text.
fn as_toml(text: &str) -> Option<Value> {
    let document: toml::Table = toml::from_str(&format!("value = {text}")).ok()?;
    let value = document.get("value").filter(|_| document.len() == 1)?;
    serde_json::to_value(value).ok()
}
