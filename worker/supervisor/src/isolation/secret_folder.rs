//! In-memory folder with a task's secrets.
//! Root creates it, at a path that others can guess. So it is created where nothing existed, and from then on
//! accessed only through the open descriptor: what is at its path later does not matter.

use std::fs::{self, DirBuilder, File};
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags, fstat, fstatfs, openat};
use rustix::io::Errno;
use rustix::process::geteuid;

use crate::files::open_folder;
use crate::isolation::account::Account;

/// Types of in-memory file systems: tmpfs and ramfs, by the kernel's numbers.
const IN_MEMORY: [u64; 2] = [0x0102_1994, 0x8584_58f6];
/// Modes of the folder and its files: only for the task's user, and read-only.
const FOLDER_MODE: u32 = 0o700;
const FILE_MODE: Mode = Mode::RUSR;

/// Folder for the secrets of one task.
#[derive(Debug)]
pub(crate) struct SecretFolder {
    path: PathBuf,
    folder: OwnedFd,
}

impl SecretFolder {
    /// Creates the folder. An attempt begins once, and its name is unique: anything that exists there was
    /// made by another party.
    ///
    /// # Errors
    /// Why it cannot be created, as a message for the user. Nothing of it is left then.
    pub(crate) fn make(path: &Path) -> Result<Self, String> {
        let at = |error: io::Error| format!("{}: {error}", path.display());
        let mut builder = DirBuilder::new();
        builder.mode(FOLDER_MODE);
        if let Some(parent) = path.parent() {
            builder.recursive(true).create(parent).map_err(at)?;
        }
        builder.recursive(false).create(path).map_err(at)?;
        Self::open(path).inspect_err(|_| drop(fs::remove_dir(path)))
    }

    fn open(path: &Path) -> Result<Self, String> {
        let at = |error: io::Error| format!("{}: {error}", path.display());
        let folder = open_folder(path).map_err(at)?;
        let found = fstat(&folder).map_err(|error| at(error.into()))?;
        if found.st_uid != geteuid().as_raw() {
            return Err(format!("the owner of {} changed", path.display()));
        }
        let kind = fstatfs(&folder).map_err(|error| at(error.into()))?.f_type;
        if !IN_MEMORY.contains(&u64::try_from(kind).unwrap_or_default()) {
            return Err(format!(
                "{} is on a disk: `run_dir` must be a folder in memory (tmpfs)",
                path.display()
            ));
        }
        Ok(Self {
            path: path.to_owned(),
            folder,
        })
    }

    /// Path of the folder.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Writes a secret, owned by the account if one is given; returns its path. A secret that was written
    /// before, for another variable, uses the same file.
    ///
    /// # Errors
    /// Errors of the file system.
    pub(crate) fn write(
        &self,
        name: &str,
        bytes: &[u8],
        account: Option<&Account>,
    ) -> io::Result<PathBuf> {
        let new = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        match openat(&self.folder, name, new, FILE_MODE) {
            Ok(file) => {
                let mut file = File::from(file);
                file.write_all(bytes)?;
                account.map_or(Ok(()), |account| account.take(&file))?;
            }
            Err(Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(self.path.join(name))
    }

    /// Changes the owner to an account. Until then, no other user can change the contents.
    ///
    /// # Errors
    /// Errors of the file system.
    pub(crate) fn give_to(&self, account: &Account) -> io::Result<()> {
        account.take(&self.folder)
    }
}
