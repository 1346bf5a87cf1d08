//! Problems of settings, each with the option, its position and the way out.

use std::fmt;

use muster_text::nearest;
use serde_json::Value;

use crate::settings::option::SettingsOption;
use crate::settings::value::Origin;

/// One problem.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Origin of the value; none if it follows from the defaults.
    pub origin: Option<Origin>,
    /// Key of the option; empty for a file as a whole.
    pub key: String,
    /// The problem and its correction.
    pub message: String,
}

impl Problem {
    pub(crate) fn new(origin: Option<&Origin>, key: &str, message: String) -> Self {
        Self {
            origin: origin.cloned(),
            key: key.to_owned(),
            message,
        }
    }

    /// Problem with an option's value; mentions its default.
    pub(crate) fn of_option(option: &SettingsOption, origin: &Origin, message: String) -> Self {
        let message = format!("{message}{}", hint(option));
        Self::new(Some(origin), &option.key, message)
    }

    /// Problem with an unknown name.
    pub(crate) fn unknown(key: &str, origin: &Origin, options: &[SettingsOption]) -> Self {
        let message = match nearest(key, options.iter().map(|option| &*option.key)) {
            Some(name) => format!("there is no such option; did you mean `{name}`?"),
            None => "there is no such option".to_owned(),
        };
        Self::new(Some(origin), key, message)
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(origin) = &self.origin {
            write!(formatter, "{origin}: ")?;
        }
        if !self.key.is_empty() {
            write!(formatter, "{}: ", self.key)?;
        }
        formatter.write_str(&self.message)
    }
}

/// Remedy for an invalid value: its default.
pub(crate) fn hint(option: &SettingsOption) -> String {
    match &option.default {
        Value::Null => "; leave it out to have it unset".to_owned(),
        Value::Object(entries) if entries.is_empty() => String::new(),
        Value::Array(items) if items.is_empty() => String::new(),
        default => format!("; the default is {default}"),
    }
}

/// All problems of a role's settings.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct Problems {
    /// The role.
    pub role: &'static str,
    /// In the order of the files' lines, as far as known; at least one.
    pub problems: Vec<Problem>,
}

impl fmt::Display for Problems {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines = self.problems.iter().map(ToString::to_string);
        formatter.write_str(&lines.collect::<Vec<_>>().join("\n"))
    }
}
