//! One violation of a rule.

use std::fmt;

/// Location and description of a violation.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Finding {
    path: String,
    line: usize,
    pub(crate) rule: &'static str,
    message: String,
}

impl Finding {
    /// `path` is relative to the repository's root, `line` counts from 1.
    pub(crate) fn new(
        path: &str,
        line: usize,
        rule: &'static str,
        message: impl Into<String>,
    ) -> Self {
        Self {
            path: path.to_owned(),
            line,
            rule,
            message: message.into(),
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            path,
            line,
            rule,
            message,
        } = self;
        write!(f, "{path}:{line}: {rule}: {message}")
    }
}
