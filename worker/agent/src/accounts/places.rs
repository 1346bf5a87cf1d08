//! The folders of a host whose tasks run as others than its agent: what is theirs they must come to, and nothing else may be
//! open to them.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::Mode;
use rustix::process::{geteuid, umask};

use crate::identity::DataDirectory;
use crate::task_place;

/// Lets others through a folder without letting them look into it.
const PASSAGE: u32 = 0o011;
/// Rights of others than the owner.
const OTHERS: u32 = 0o077;
/// Those of them by which something can be put in the place of something else.
const OTHERS_WRITE: u32 = 0o022;
/// Those of them by which something can be read or changed.
const OTHERS_READ_OR_WRITE: u32 = 0o066;
/// Those of a folder that is made.
const OURS: u32 = 0o700 | PASSAGE;
/// The part of a mode that is rights.
const RIGHTS: u32 = 0o7777;
/// All rights.
const ALL: u32 = u32::MAX;
/// Folders of the data directory in which tasks have something.
const SHARED: [&str; 3] = ["scratch", "kept", "tasks"];
/// The checkpoints, where they lie in the data directory.
const CHECKPOINTS: &str = "checkpoints";

/// Why what tasks need is not open to them.
#[derive(Debug, thiserror::Error)]
pub enum PlaceError {
    /// A folder above it is closed.
    #[error(
        "tasks of other accounts cannot come to `{}`, because `{}` is closed to them: `chmod o+x` it, or choose another place (`data_dir`, \
         `run_dir`, `checkpoint_root`)", place.display(), closed.display()
    )]
    Closed {
        /// What tasks need.
        place: PathBuf,
        /// What is closed.
        closed: PathBuf,
    },
    /// Somebody else has the folder in hand in which tasks find their secrets.
    #[error(
        "`{}`, in which tasks find their secrets, is {found}: it must be a folder of this worker's own user ({}) into which nobody else may write; \
         remove it, or choose another place (`run_dir`)", place.display(), geteuid().as_raw()
    )]
    Foreign {
        /// What tasks need.
        place: PathBuf,
        /// What it is, and whose.
        found: String,
    },
    /// The file system refused something.
    #[error("opening `{}` to tasks of other accounts failed", place.display())]
    Disk {
        /// What tasks need.
        place: PathBuf,
        /// Why it failed.
        #[source]
        source: io::Error,
    },
}

/// Sees to it that tasks of any account come to what is theirs in the data directory and in `run`, and at the
/// checkpoints, and to nothing else there. What this process makes from now on is its own alone.
///
/// # Errors
/// See [`PlaceError`].
pub(crate) fn open_to_accounts(
    data: &DataDirectory,
    run: &Path,
    checkpoint_root: Option<&Path>,
) -> Result<(), PlaceError> {
    umask(Mode::RWXG | Mode::RWXO);
    let disk = |place: &Path| {
        let place = place.to_owned();
        move |source| PlaceError::Disk { place, source }
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
        return Err(PlaceError::Foreign { place, found });
    }
    // The settings may have chosen a folder that others use as well.
    let memory = task_place::in_memory(data).and_then(|tasks| Some(tasks.parent()?.to_owned()));
    let others: Vec<PathBuf> = [run.to_owned()].into_iter().chain(memory).collect();
    for folder in &others {
        open(folder, ALL).map_err(disk(folder))?;
    }
    let root = checkpoint_root.map(Path::to_owned);
    for place in ours.into_iter().chain(others).chain(root) {
        let place = place.canonicalize().map_err(disk(&place))?;
        if let Some(closed) = closed_above(&place).map_err(disk(&place))? {
            return Err(PlaceError::Closed { place, closed });
        }
    }
    Ok(())
}

/// Makes a folder if nothing is there; what else is, unless nobody but this worker's user can change what lies in it. Users can
/// guess the folder's name, and make a folder or a link of that name where everybody may, as in `/dev/shm`.
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
    let words = if found.is_symlink() {
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
    Ok(Some(words))
}

/// Makes a folder that others may pass, if it is not there, and leaves it only these rights beside that.
fn open(folder: &Path, left: u32) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    let mode = folder.metadata()?.mode() & left;
    fs::set_permissions(folder, Permissions::from_mode(mode | PASSAGE))
}

/// Closes what lies in the data directory itself and is nobody else's.
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

/// Closes what tasks have in a folder that were started while this folder was closed to others: those run as root.
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

/// The first folder above a place, or that itself, that others may not pass.
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

    /// An account that every Linux has, or none: it is but a number.
    const NOBODY: u32 = 65_534;

    #[test]
    fn what_somebody_else_has_in_hand_is_told_with_whose_it_is() {
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
        let told = |place: &Path| foreign(place).unwrap().unwrap();
        assert_eq!(told(&link), format!("a link of the user {us}"));
        assert_eq!(told(&file), format!("a file of the user {us}"));
        for mode in [0o1777, 0o770] {
            fs::set_permissions(&folder, Permissions::from_mode(mode)).unwrap();
            let expected = format!("a folder that others may write into (mode {mode:o})");
            assert_eq!(told(&folder), expected);
        }
        if geteuid().is_root() {
            chown(&folder, Some(NOBODY), None).unwrap();
            assert_eq!(told(&folder), format!("a folder of the user {NOBODY}"));
        }
    }
}
