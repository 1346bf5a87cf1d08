//! Files that only their owner reads.

use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

/// Mode of a file with a secret.
const PRIVATE_MODE: u32 = 0o600;

/// Creates a file that its owner alone may read.
///
/// # Errors
/// `AlreadyExists` if there is one: a secret is never overwritten. Else what the file system says.
pub fn create_private(path: &Path, content: &[u8]) -> io::Result<()> {
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(PRIVATE_MODE)
        .open(path)?;
    file.write_all(content)?;
    file.sync_all()
}
