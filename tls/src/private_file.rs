//! Files that only their owner reads.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::Path;

/// Mode of a file with a secret.
const PRIVATE_MODE: u32 = 0o600;
/// Mode of a folder with such files.
const PRIVATE_FOLDER_MODE: u32 = 0o700;

/// Creates a file that its owner alone may read.
///
/// # Errors
/// `AlreadyExists` if there is one: a secret is never overwritten. Else what the file system says.
pub fn create_private(path: &Path, content: &[u8]) -> io::Result<()> {
    let mut file = begin_private(path)?;
    file.write_all(content)?;
    file.sync_all()
}

/// Begins a file that its owner alone may read, for content that comes piece by piece.
///
/// # Errors
/// `AlreadyExists` if there is one: whoever could read that could read this. Else what the file system says.
pub fn begin_private(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(PRIVATE_MODE)
        .open(path)
}

/// Creates a folder that its owner alone may enter, and those above it that are missing. One that is there stays as it is.
///
/// # Errors
/// What the file system says.
pub fn create_private_folder(path: &Path) -> io::Result<()> {
    DirBuilder::new()
        .recursive(true)
        .mode(PRIVATE_FOLDER_MODE)
        .create(path)
}
