//! How reading stored bytes fails.

use std::io;

use crate::convert::InvalidField;

/// Stored bytes cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// A newer build wrote them.
    #[error(
        "format version {found} of the {what} is newer than {supported}, the newest this build reads"
    )]
    NewerVersion {
        /// `command` or `state`.
        what: &'static str,
        /// The version found.
        found: u32,
        /// The newest version that this build reads.
        supported: u32,
    },
    /// They are cut off, damaged or not what they should be.
    #[error("malformed {what}: {detail}")]
    Malformed {
        /// `command` or `state`.
        what: &'static str,
        /// What is wrong.
        detail: String,
    },
    /// The source failed.
    #[error("reading the state failed")]
    Read(#[source] io::Error),
}

impl LogError {
    /// A damaged command.
    pub(crate) fn command(detail: impl ToString) -> Self {
        Self::Malformed {
            what: "command",
            detail: detail.to_string(),
        }
    }

    /// A damaged state.
    pub(crate) fn state(detail: impl ToString) -> Self {
        Self::Malformed {
            what: "state",
            detail: detail.to_string(),
        }
    }
}

/// The caller, which knows what it reads, turns the field into a [`LogError`].
pub(crate) type Field<T> = Result<T, InvalidField>;
