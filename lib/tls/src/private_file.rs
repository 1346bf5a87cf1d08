//! Files that only their owner may read. On systems other than Unix they have the permissions of their
//! folder.

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
/// Mode bits that let users outside of owner and group read or write the file.
#[cfg(unix)]
const MODE_OF_OTHERS: u32 = 0o007;

/// Creates a file that only its owner may read.
///
/// # Errors
/// `AlreadyExists` if there is one: a secret is never overwritten. Otherwise the file system's error.
pub fn create_private(path: &Path, content: &[u8]) -> io::Result<()> {
    let mut file = begin_private(path)?;
    file.write_all(content)?;
    file.sync_all()
}

/// Creates a file that only its owner may read, for content written piece by piece.
///
/// # Errors
/// `AlreadyExists` if there is one: its readers could read the new content. Otherwise the file system's
/// error.
pub fn begin_private(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    options.mode(PRIVATE_MODE);
    options.open(path)
}

/// Creates a folder that only its owner may enter, and its missing parents. An existing one is unchanged.
///
/// # Errors
/// The file system's error.
pub fn create_private_folder(path: &Path) -> io::Result<()> {
    let mut builder = DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    builder.mode(PRIVATE_FOLDER_MODE);
    builder.create(path)
}

/// Whether users outside of owner and group may read or write a file.
#[cfg(unix)]
pub(crate) fn is_open_to_others(path: &Path) -> bool {
    let metadata = std::fs::metadata(path);
    metadata.is_ok_and(|metadata| metadata.permissions().mode() & MODE_OF_OTHERS != 0)
}

/// False: permissions are unknown on this system.
#[cfg(not(unix))]
pub(crate) fn is_open_to_others(_path: &Path) -> bool {
    false
}
