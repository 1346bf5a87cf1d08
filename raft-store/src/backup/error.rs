//! Why a backup cannot be used.

use std::io;

/// Why a backup cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    /// The file could not be read.
    #[error("it cannot be read")]
    Read(#[source] io::Error),
    /// It is something else.
    #[error("it is no backup of a Muster cluster")]
    NotABackup,
    /// Written by a newer build.
    #[error(
        "its format {found} is newer than {supported}, the newest this build reads: use the build that wrote it, or a newer one"
    )]
    NewerFormat {
        /// The version found.
        found: u32,
        /// The newest version understood.
        supported: u32,
    },
    /// It ends before its end.
    #[error("it is cut off after {bytes} bytes, in {place}: take another copy")]
    Cut {
        /// In which part.
        place: String,
        /// Bytes that are there.
        bytes: u64,
    },
    /// Bytes are not those that were written.
    #[error("it is damaged in {place}: {detail}; take another copy")]
    Damaged {
        /// Where.
        place: String,
        /// How that is known.
        detail: String,
    },
    /// Every byte is right, and the content is not.
    #[error("its content cannot be used: {0}")]
    Content(String),
    /// The content is sealed, and no key was given.
    #[error("it is encrypted: give the key that it was saved with")]
    KeyMissing,
    /// The content is sealed with another key.
    #[error("it is whole, and encrypted with another key than the one given")]
    WrongKey,
}
