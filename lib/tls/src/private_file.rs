//! Files that only their owner reads. On systems other than Unix they have the rights of the folder that they lie in.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Write as _};
#[cfg(unix)]
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;

/// Mode of a file with a secret.
#[cfg(unix)]
const PRIVATE_MODE: u32 = 0o600;
/// Mode of a folder with such files.
#[cfg(unix)]
const PRIVATE_FOLDER_MODE: u32 = 0o700;
/// Bits of a file's mode that let others than its owner and group read or write it.
#[cfg(unix)]
const MODE_OF_OTHERS: u32 = 0o007;

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
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    options.mode(PRIVATE_MODE);
    options.open(path)
}

/// Creates a folder that its owner alone may enter, and those above it that are missing. One that is there stays as it is.
///
/// # Errors
/// What the file system says.
pub fn create_private_folder(path: &Path) -> io::Result<()> {
    let mut builder = DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    builder.mode(PRIVATE_FOLDER_MODE);
    builder.create(path)
}

/// Whether others than its owner and group may read or write a file.
#[cfg(unix)]
pub(crate) fn is_open_to_others(path: &Path) -> bool {
    let metadata = std::fs::metadata(path);
    metadata.is_ok_and(|metadata| metadata.permissions().mode() & MODE_OF_OTHERS != 0)
}

/// False: its rights cannot be told.
#[cfg(not(unix))]
pub(crate) fn is_open_to_others(_path: &Path) -> bool {
    false
}
