//! Atomic reads and writes of small files.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags, open};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::isolation::account::acting_as_owner_of;

/// Replaces a file atomically; durable once this returns.
///
/// # Errors
/// Errors of the file system.
pub fn replace_durably(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let temporary = temporary_beside(path);
    let mut file = File::create(&temporary)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(&temporary, path)?;
    sync_directory(parent_of(path))
}

/// Replaces a file atomically; the result survives this process, but not a power failure.
///
/// # Errors
/// Errors of the file system.
pub fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let temporary = temporary_beside(path);
    fs::write(&temporary, bytes)?;
    fs::rename(&temporary, path)
}

/// Replaces a file in a folder that a task may control, with the task's file access rights: links that the
/// task put there lead nowhere else.
///
/// # Errors
/// Errors of the file system.
pub(crate) fn replace_for_owner(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let temporary = temporary_beside(path);
    acting_as_owner_of(parent_of(path), || {
        remove_file(&temporary)?;
        File::create_new(&temporary)?.write_all(bytes)?;
        fs::rename(&temporary, path)
    })
}

/// Reads a file of a folder that a task may control, and where it may have put anything instead: a link to an
/// endless device, a pipe without a writer.
///
/// # Errors
/// Errors of the file system, and `InvalidData` if it is not a regular file or longer than `bytes_max`.
pub(crate) fn read_of_task(path: &Path, bytes_max: u64) -> io::Result<Vec<u8>> {
    let flags = OFlags::NONBLOCK | OFlags::NOFOLLOW;
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(flags.bits().cast_signed())
        .open(path)?;
    let refused = |why: &str| Err(io::Error::new(io::ErrorKind::InvalidData, why));
    if !file.metadata()?.is_file() {
        return refused("not a regular file");
    }
    let mut bytes = Vec::new();
    // It may grow meanwhile, so its size is no bound.
    file.take(bytes_max + 1).read_to_end(&mut bytes)?;
    match bytes.len() as u64 > bytes_max {
        true => refused("file too long"),
        false => Ok(bytes),
    }
}

/// Opens a folder itself; refuses a symbolic link.
///
/// # Errors
/// Errors of the file system.
pub(crate) fn open_folder(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(open(path, flags, Mode::empty())?)
}

/// Removes a file or link, not the target of the link; ignored if it is gone.
fn remove_file(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Syncs the entries of a directory.
///
/// # Errors
/// Errors of the file system.
pub fn sync_directory(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

/// Reads a JSON file; `None` if there is none.
///
/// # Errors
/// Errors of the file system, and `InvalidData` for other contents.
pub fn read_json<T: DeserializeOwned>(path: &Path) -> io::Result<Option<T>> {
    match fs::read(path) {
        Ok(bytes) => serde_json::from_slice(&bytes)
            .map(Some)
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Serializes a value to JSON.
///
/// # Errors
/// `InvalidData` for what JSON cannot represent.
pub fn json_bytes(value: &impl Serialize) -> io::Result<Vec<u8>> {
    serde_json::to_vec(value).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}

/// Removes a directory with its contents; ignored if it is gone.
///
/// # Errors
/// Errors of the file system.
pub fn remove_directory(path: &Path) -> io::Result<()> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

fn temporary_beside(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".new");
    PathBuf::from(name)
}

fn parent_of(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a failed test should panic")]
mod tests {
    use std::os::unix::fs::symlink;

    use rustix::fs::{CWD, Mode, mkfifoat};

    use super::*;

    #[test]
    fn only_short_regular_files_are_read() {
        let home = tempfile::tempdir().unwrap();
        let at = |name: &str| home.path().join(name);
        fs::write(at("short"), "12345").unwrap();
        assert_eq!(read_of_task(&at("short"), 5).unwrap(), b"12345");
        let kind = |name: &str| read_of_task(&at(name), 5).unwrap_err().kind();
        fs::write(at("long"), "123456").unwrap();
        fs::create_dir(at("folder")).unwrap();
        mkfifoat(CWD, at("pipe"), Mode::RUSR | Mode::WUSR).unwrap();
        for name in ["long", "folder", "pipe"] {
            assert_eq!(kind(name), io::ErrorKind::InvalidData, "{name}");
        }
        symlink("/dev/zero", at("device")).unwrap();
        symlink(at("short"), at("link")).unwrap();
        for name in ["device", "link"] {
            assert!(read_of_task(&at(name), 5).is_err(), "{name}");
        }
        assert_eq!(kind("none"), io::ErrorKind::NotFound);
    }
}
