//! Access rights of folders on a host whose tasks run as accounts other than the agent's: tasks must reach
//! their own files and nothing else.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::Mode;
use rustix::process::{geteuid, umask};

use crate::identity::DataDirectory;
use crate::tasks::directories;

/// Lets others traverse a folder without listing it.
const PASSAGE: u32 = 0o011;
/// Permission bits of all users but the owner.
const OTHERS: u32 = 0o077;
/// Bits of others that allow entries to be replaced.
const OTHERS_WRITE: u32 = 0o022;
/// Bits of others that allow reading or changing.
const OTHERS_READ_OR_WRITE: u32 = 0o066;
/// Mode of a created folder.
const OURS: u32 = 0o700 | PASSAGE;
/// Mask of the permission bits of a mode.
const RIGHTS: u32 = 0o7777;
/// All rights.
const ALL: u32 = u32::MAX;
/// Folders of the data directory that hold files of tasks.
const SHARED: [&str; 3] = ["scratch", "kept", "tasks"];
/// Folder of the checkpoints, if it is in the data directory.
const CHECKPOINTS: &str = "checkpoints";

/// Reasons why tasks cannot reach what they need.
#[derive(Debug, thiserror::Error)]
pub enum PermissionError {
    /// A parent folder is not traversable.
    #[error(
        "tasks of other accounts cannot reach `{}` because they may not traverse `{}`: `chmod o+x` it, \
         or choose another folder (`data_dir`, `run_dir`, `checkpoint_root`)", place.display(), closed.display()
    )]
    Closed {
        /// The folder that tasks need.
        place: PathBuf,
        /// The parent that is not traversable.
        closed: PathBuf,
    },
    /// The folder of the tasks' secrets is controlled by another user.
    #[error(
        "`{}`, the folder of the tasks' secrets, is {found}: it must belong to this worker's user ({}) \
         and be writable by no one else; remove it, or choose another folder (`run_dir`)",
        place.display(), geteuid().as_raw()
    )]
    Foreign {
        /// The folder of the secrets.
        place: PathBuf,
        /// What was found instead, with its owner.
        found: String,
    },
    /// The file system refused something.
    #[error("opening `{}` to tasks of other accounts failed", place.display())]
    Disk {
        /// The folder to open.
        place: PathBuf,
        /// The error of the operating system.
        #[source]
        source: io::Error,
    },
}

/// Sets permissions so that tasks of any account reach their own files in the data directory, in `run` and
/// in the checkpoint folder, and nothing else there. Files that this process creates from now on are
/// private.
///
/// # Errors
/// See [`PermissionError`].
pub(crate) fn open_to_accounts(
    data: &DataDirectory,
    run: &Path,
    checkpoint_root: Option<&Path>,
) -> Result<(), PermissionError> {
    umask(Mode::RWXG | Mode::RWXO);
    let disk = |place: &Path| {
        let place = place.to_owned();
        move |source| PermissionError::Disk { place, source }
    };
    close(data.path()).map_err(disk(data.path()))?;
    let mut ours: Vec<PathBuf> = SHARED.map(|name| data.path().join(name)).to_vec();
    for folder in &ours {
        close_left(folder).map_err(disk(folder))?;
    }
    ours.push(data.path().to_owned());
    match checkpoint_root {
        None => ours.push(data.path().join(CHECKPOINTS)),
        Some(root) if !root.is_dir() => ours.push(root.to_owned()),
        Some(_) => {}
    }
    for folder in &ours {
        open(folder, !OTHERS_READ_OR_WRITE).map_err(disk(folder))?;
    }
    if let Some(found) = foreign(run).map_err(disk(run))? {
        let place = run.to_owned();
        return Err(PermissionError::Foreign { place, found });
    }
    // The settings may have chosen a folder that others use as well.
    let memory = directories::in_memory(data).and_then(|tasks| Some(tasks.parent()?.to_owned()));
    let others: Vec<PathBuf> = [run.to_owned()].into_iter().chain(memory).collect();
    for folder in &others {
        open(folder, ALL).map_err(disk(folder))?;
    }
    let root = checkpoint_root.map(Path::to_owned);
    for place in ours.into_iter().chain(others).chain(root) {
        let place = place.canonicalize().map_err(disk(&place))?;
        if let Some(closed) = closed_above(&place).map_err(disk(&place))? {
            return Err(PermissionError::Closed { place, closed });
        }
    }
    Ok(())
}

/// Creates a folder if nothing is at `place`; otherwise returns a description of what is there unless only
/// this worker's user can change its content. Users can guess the folder's name and create a folder or link
/// of that name in a world-writable folder such as `/dev/shm`.
fn foreign(place: &Path) -> io::Result<Option<String>> {
    let found = match fs::symlink_metadata(place) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let mut builder = fs::DirBuilder::new();
            builder.recursive(true).mode(OURS).create(place)?;
            fs::symlink_metadata(place)?
        }
        found => found?,
    };
    let (uid, mode) = (found.uid(), found.mode() & RIGHTS);
    let description = if found.is_symlink() {
        format!("a link of the user {uid}")
    } else if !found.is_dir() {
        format!("a file of the user {uid}")
    } else if uid != geteuid().as_raw() {
        format!("a folder of the user {uid}")
    } else if mode & OTHERS_WRITE != 0 {
        format!("a folder that others may write into (mode {mode:o})")
    } else {
        return Ok(None);
    };
    Ok(Some(description))
}

/// Creates a folder that others may traverse if it does not exist; otherwise reduces its other rights to
/// `left`.
fn open(folder: &Path, left: u32) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    let mode = folder.metadata()?.mode() & left;
    fs::set_permissions(folder, Permissions::from_mode(mode | PASSAGE))
}

/// Makes private what is directly in the data directory and not shared with tasks.
fn close(data: &Path) -> io::Result<()> {
    for entry in fs::read_dir(data)? {
        let entry = entry?;
        let name = entry.file_name();
        let is_shared = SHARED.iter().chain([&CHECKPOINTS]).any(|it| name == *it);
        let metadata = entry.metadata()?;
        if !is_shared && !metadata.is_symlink() {
            let mode = metadata.mode() & !OTHERS;
            fs::set_permissions(entry.path(), Permissions::from_mode(mode))?;
        }
    }
    Ok(())
}

/// Makes private the entries of tasks that were started while this folder was private: those run as root.
fn close_left(folder: &Path) -> io::Result<()> {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries?,
    };
    for entry in entries {
        let entry = entry?;
        let metadata = entry.metadata()?;
        if metadata.is_dir() && metadata.mode() & OTHERS_READ_OR_WRITE != 0 && metadata.uid() == 0 {
            let mode = metadata.mode() & !OTHERS;
            fs::set_permissions(entry.path(), Permissions::from_mode(mode))?;
        }
    }
    Ok(())
}

/// The first folder on the path to `place`, or `place` itself, that others may not traverse.
fn closed_above(place: &Path) -> io::Result<Option<PathBuf>> {
    for folder in place.ancestors() {
        if folder.metadata()?.mode() & 0o001 == 0 {
            return Ok(Some(folder.to_owned()));
        }
    }
    Ok(None)
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a failed test should panic")]
mod tests {
    use std::os::unix::fs::{chown, symlink};

    use super::*;

    /// Any uid will do: chown does not need an existing account.
    const NOBODY: u32 = 65_534;

    #[test]
    fn a_path_that_another_user_controls_is_described_with_its_owner() {
        let home = tempfile::tempdir().unwrap();
        let us = geteuid().as_raw();
        let folder = home.path().join("new/folder");
        for _ in ["made", "found"] {
            assert_eq!(foreign(&folder).unwrap(), None);
            assert!(folder.is_dir());
        }
        let link = home.path().join("link");
        symlink(&folder, &link).unwrap();
        let file = home.path().join("file");
        fs::write(&file, "").unwrap();
        let description = |place: &Path| foreign(place).unwrap().unwrap();
        assert_eq!(description(&link), format!("a link of the user {us}"));
        assert_eq!(description(&file), format!("a file of the user {us}"));
        for mode in [0o1777, 0o770] {
            fs::set_permissions(&folder, Permissions::from_mode(mode)).unwrap();
            let expected = format!("a folder that others may write into (mode {mode:o})");
            assert_eq!(description(&folder), expected);
        }
        if geteuid().is_root() {
            chown(&folder, Some(NOBODY), None).unwrap();
            assert_eq!(
                description(&folder),
                format!("a folder of the user {NOBODY}")
            );
        }
    }
}
