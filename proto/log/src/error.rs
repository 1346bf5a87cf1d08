//! Errors of reading stored bytes.

use std::io;
use std::ops::RangeInclusive;

use muster_proto::field::InvalidField;

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
        /// Version found.
        found: u32,
        /// Newest version that this build reads.
        supported: u32,
    },
    /// A build wrote them whose format is no longer read.
    #[error(
        "format version {found} of the {what} is older than {oldest}, the oldest this build reads"
    )]
    OlderVersion {
        /// `command` or `state`.
        what: &'static str,
        /// Version found.
        found: u32,
        /// Oldest version that this build reads.
        oldest: u32,
    },
    /// They are truncated, damaged or of another kind.
    #[error("malformed {what}: {detail}")]
    Malformed {
        /// `command` or `state`.
        what: &'static str,
        /// The defect.
        detail: String,
    },
    /// The source failed.
    #[error("reading the state failed")]
    Read(#[source] io::Error),
}

impl LogError {
    /// Error of a damaged command.
    pub(crate) fn command(detail: impl ToString) -> Self {
        Self::Malformed {
            what: "command",
            detail: detail.to_string(),
        }
    }

    /// Error of a damaged state.
    pub(crate) fn state(detail: impl ToString) -> Self {
        Self::Malformed {
            what: "state",
            detail: detail.to_string(),
        }
    }
}

/// Refuses a format version outside those that this build reads.
pub(crate) fn check_version(
    what: &'static str,
    found: u32,
    read: RangeInclusive<u32>,
) -> Result<(), LogError> {
    let (oldest, supported) = read.into_inner();
    if found > supported {
        return Err(LogError::NewerVersion {
            what,
            found,
            supported,
        });
    }
    if found < oldest {
        return Err(LogError::OlderVersion {
            what,
            found,
            oldest,
        });
    }
    Ok(())
}

/// The caller, which knows what it reads, turns the field into a [`LogError`].
pub(crate) type Field<T> = Result<T, InvalidField>;
