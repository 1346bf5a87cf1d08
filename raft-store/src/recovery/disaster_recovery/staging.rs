//! Staging of new data in a data directory: written beside the old data, complete and synced, then moved in
//! by renames.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::syncfs;

use crate::error::OpenError;
use crate::recovery::disaster_recovery::disk;
use crate::recovery::disaster_recovery::owner::DirectoryOwner;
use crate::replica::open::{LOG_FOLDER, SNAPSHOT_FOLDER};

/// Folder of staged data that is not yet in place.
pub(super) const STAGED: &str = "recovery";
/// Marker file that the staged data is complete.
const COMPLETE: &str = "whole";
/// Folders of a replica's data. The log is moved last: without its new log a directory cannot start.
const FOLDERS: [&str; 2] = [SNAPSHOT_FOLDER, LOG_FOLDER];

/// Whether a directory holds data of a replica, in place or staged.
pub(super) fn holds_data(directory: &Path) -> bool {
    let folders = FOLDERS.into_iter().chain([STAGED]);
    folders
        .map(|name| directory.join(name))
        .any(|path| path.exists())
}

/// Rejects a directory whose new data is not yet in place: its content belongs to two groups.
pub(crate) fn check_not_interrupted(directory: &Path) -> Result<(), OpenError> {
    if !directory.join(STAGED).exists() {
        return Ok(());
    }
    Err(OpenError::UnfinishedRecovery {
        directory: directory.to_owned(),
    })
}

/// Creates an empty folder for staged data.
pub(super) fn clear(directory: &Path) -> Result<PathBuf, OpenError> {
    let staged = directory.join(STAGED);
    let failed = |source| disk(format!("clearing {}", staged.display()), source);
    match fs::remove_dir_all(&staged) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
        _ => {}
    }
    fs::create_dir_all(&staged).map_err(failed)?;
    Ok(staged)
}

/// Whether an earlier run was interrupted after its data was complete.
pub(super) fn is_complete(directory: &Path) -> bool {
    directory.join(STAGED).join(COMPLETE).exists()
}

/// Whether an earlier run only has to move its data into place: the data is complete, or none of it is
/// staged any more.
pub(super) fn is_settled(directory: &Path) -> bool {
    let staged = directory.join(STAGED);
    let is_staged = |name: &str| staged.join(name).exists();
    let is_there = |name: &str| is_staged(name) || directory.join(name).exists();
    let is_decided = is_complete(directory) || !FOLDERS.into_iter().any(is_staged);
    staged.exists() && is_decided && FOLDERS.into_iter().all(is_there)
}

/// Unused folder name for the previous content of the directory.
pub(super) fn kept_name(directory: &Path, beginning: &str) -> String {
    let names = (1u32..).map(|number| format!("{beginning}-{number}"));
    let mut free = names.filter(|name| !directory.join(name).exists());
    free.next().unwrap_or_else(|| beginning.to_owned())
}

/// Marks the staged data as complete: from now on it will be moved into place, even after an interruption.
pub(super) fn seal(directory: &Path) -> Result<(), OpenError> {
    let staged = directory.join(STAGED);
    let sealed = File::create(staged.join(COMPLETE)).and_then(|file| file.sync_all());
    sealed
        .and_then(|()| sync(&staged))
        .and_then(|()| sync(directory))
        .map_err(|source| disk(format!("sealing {}", staged.display()), source))
}

/// Moves the staged data into place, and the previous content into the folder `kept`. Continues an
/// interrupted move. Data is handed over to the owner before it is in place.
pub(super) fn move_into_place(
    directory: &Path,
    kept: &str,
    owner: &DirectoryOwner,
) -> Result<(), OpenError> {
    owner.hand_over(&[STAGED])?;
    let staged = directory.join(STAGED);
    let moved = || -> io::Result<()> {
        // Syncing a folder makes its entries durable, but not their ownership.
        syncfs(File::open(directory)?)?;
        for name in FOLDERS {
            let (new, place) = (staged.join(name), directory.join(name));
            if !new.exists() {
                continue;
            }
            if place.exists() {
                let kept = directory.join(kept);
                fs::create_dir_all(&kept)?;
                fs::rename(&place, kept.join(name))?;
                sync(&kept)?;
            }
            fs::rename(&new, &place)?;
            sync(directory)?;
        }
        fs::remove_dir_all(&staged)?;
        sync(directory)
    };
    moved().map_err(|source| {
        let operation = format!("moving the new data of {} into place", directory.display());
        disk(operation, source)
    })?;
    owner.hand_over(&[kept])
}

fn sync(directory: &Path) -> io::Result<()> {
    File::open(directory)?.sync_all()
}
