//! What is wrong with a script, and where.

/// A place in a script that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}, column {column}: {message}")]
pub struct ScriptError {
    /// Line, counted from 1.
    pub line: u32,
    /// Column, counted from 1.
    pub column: u32,
    /// What is wrong, and what is allowed there.
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
