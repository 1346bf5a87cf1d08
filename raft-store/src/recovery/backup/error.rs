//! Errors of unusable backups.

use std::io;

/// Error of a backup that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    /// The file could not be read.
    #[error("it cannot be read")]
    Read(#[source] io::Error),
    /// The file is not a backup.
    #[error("it is not a backup of a Muster cluster")]
    NotABackup,
    /// Written by a newer build.
    #[error(
        "its format {found} is newer than {supported}, the newest this build reads: use the build \
         that wrote it, or a newer one"
    )]
    NewerFormat {
        /// Format version of the file.
        found: u32,
        /// Newest format version that this build reads.
        supported: u32,
    },
    /// The file is truncated.
    #[error("it is cut off after {bytes} bytes, in {place}: take another copy")]
    Cut {
        /// Part of the file in which it ends.
        place: String,
        /// Size of the file in bytes.
        bytes: u64,
    },
    /// A part of the file fails its integrity check.
    #[error("it is damaged in {place}: {detail}; take another copy")]
    Damaged {
        /// Damaged part of the file.
        place: String,
        /// Failed check.
        detail: String,
    },
    /// The file is intact, but its content is invalid.
    #[error("its content cannot be used: {0}")]
    Content(String),
    /// The content is sealed, and no key was given.
    #[error("it is encrypted: give the key that it was saved with")]
    KeyMissing,
    /// The content is sealed with another key.
    #[error("it is intact, but encrypted with a different key")]
    WrongKey,
}
