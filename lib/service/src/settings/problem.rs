//! Problems of settings, each with the option, its position and the way out.

use std::fmt;

use serde_json::Value;

use crate::settings::given::Origin;
use crate::settings::option::SettingsOption;

/// Similarity (0 to 1) from which a name is suggested in place of another.
const LIKENESS_MIN: f64 = 0.75;

/// Similarity to a keyword from which a word counts as misspelt, where arbitrary words are allowed.
const MISSPELT_MIN: f64 = 0.9;

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
        let message = format!("{message}{}", way_out(option));
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
pub(crate) fn way_out(option: &SettingsOption) -> String {
    match &option.default {
        Value::Null => "; leave it out to have it unset".to_owned(),
        Value::Object(entries) if entries.is_empty() => String::new(),
        Value::Array(items) if items.is_empty() => String::new(),
        default => format!("; the default is {default}"),
    }
}

/// The most similar name, if any is similar. In a dotted name the last part is also compared by itself, so
/// that an option in the wrong table is found.
pub(crate) fn nearest<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    fn last(name: &str) -> &str {
        name.rsplit('.').next().unwrap_or(name)
    }
    let likeness = |candidate: &str| {
        let whole = strsim::jaro_winkler(name, candidate);
        whole.max(strsim::jaro_winkler(last(name), last(candidate)) + whole / 100.0)
    };
    let rated = known.map(|candidate| (likeness(candidate), candidate));
    let best = rated.max_by(|(left, _), (right, _)| left.total_cmp(right));
    best.filter(|(likeness, _)| *likeness >= LIKENESS_MIN)
        .map(|(_, candidate)| candidate)
}

/// The keyword that a word nearly matches, ignoring case: `submitter` for `submiter`. None for an exact or
/// no match.
pub fn misspelt<'a>(word: &str, keywords: &[&'a str]) -> Option<&'a str> {
    let small = word.to_lowercase();
    let likeness = |keyword: &str| strsim::jaro_winkler(&small, keyword);
    let rated = { keywords.iter() }.map(|keyword| (likeness(keyword), *keyword));
    let best = rated.max_by(|(left, _), (right, _)| left.total_cmp(right));
    best.filter(|(likeness, keyword)| *likeness >= MISSPELT_MIN && word != *keyword)
        .map(|(_, keyword)| keyword)
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
        let lines = { self.problems.iter() }.map(ToString::to_string);
        formatter.write_str(&lines.collect::<Vec<_>>().join("\n"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_that_is_nearly_a_keyword_is_told_from_others() {
        let keywords = ["auto", "submitter", "agent"];
        for (word, keyword) in [
            ("submiter", Some("submitter")),
            ("sumbitter", Some("submitter")),
            ("Submitter", Some("submitter")),
            ("agents", Some("agent")),
            ("atuo", Some("auto")),
            ("auto", None),
            ("muster", None),
            ("nobody", None),
            ("alice", None),
            ("", None),
        ] {
            assert_eq!(misspelt(word, &keywords), keyword, "{word}");
        }
    }
}
