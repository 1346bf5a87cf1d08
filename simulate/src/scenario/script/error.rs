//! Script error with its position.

/// A position at which a script is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}, column {column}: {message}")]
pub struct ScriptError {
    /// Line, counted from 1.
    pub line: u32,
    /// Column, counted from 1.
    pub column: u32,
    /// The error and the allowed syntax.
    pub message: String,
}

impl ScriptError {
    pub(crate) const fn new(line: u32, column: u32, message: String) -> Self {
        Self {
            line,
            column,
            message,
        }
    }
}
