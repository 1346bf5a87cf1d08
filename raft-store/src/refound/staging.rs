//! How new data takes its place in a data directory: beside what is there, whole and synced, and then by renames.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::syncfs;

use crate::error::OpenError;
use crate::open::{LOG_FOLDER, SNAPSHOT_FOLDER};
use crate::refound::disk;
use crate::refound::owner::Owner;

/// Folder of data that has not taken its place yet.
pub(super) const STAGED: &str = "refounding";
/// File in it that says that the data is whole.
const WHOLE: &str = "whole";
/// The folders of a replica's data. The log goes last: without its new log a directory starts nothing.
const FOLDERS: [&str; 2] = [SNAPSHOT_FOLDER, LOG_FOLDER];

/// Whether there is data of a replica in a directory, or of one that has not taken its place yet.
pub(super) fn holds_data(directory: &Path) -> bool {
    let folders = FOLDERS.into_iter().chain([STAGED]);
    folders
        .map(|name| directory.join(name))
        .any(|path| path.exists())
}

/// Refuses a directory whose new data has not taken its place: what it holds is of two groups.
pub(crate) fn refuse_half_made(directory: &Path) -> Result<(), OpenError> {
    if !directory.join(STAGED).exists() {
        return Ok(());
    }
    Err(OpenError::HalfRefounded {
        directory: directory.to_owned(),
    })
}

/// An empty place for new data.
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

/// Whether an earlier run was cut off after its data was whole.
pub(super) fn is_whole(directory: &Path) -> bool {
    directory.join(STAGED).join(WHOLE).exists()
}

/// Whether nothing is left of an earlier run but to take its place: its data is whole, or none of it is staged any more.
pub(super) fn is_settled(directory: &Path) -> bool {
    let staged = directory.join(STAGED);
    let is_staged = |name: &str| staged.join(name).exists();
    let is_there = |name: &str| is_staged(name) || directory.join(name).exists();
    let is_decided = is_whole(directory) || !FOLDERS.into_iter().any(is_staged);
    staged.exists() && is_decided && FOLDERS.into_iter().all(is_there)
}

/// A name that no folder in the directory has, for what was there before.
pub(super) fn kept_name(directory: &Path, beginning: &str) -> String {
    let names = (1u32..).map(|number| format!("{beginning}-{number}"));
    let mut free = names.filter(|name| !directory.join(name).exists());
    free.next().unwrap_or_else(|| beginning.to_owned())
}

/// Notes that the staged data is whole: from now on it takes its place, whatever happens.
pub(super) fn seal(directory: &Path) -> Result<(), OpenError> {
    let staged = directory.join(STAGED);
    let sealed = File::create(staged.join(WHOLE)).and_then(|file| file.sync_all());
    sealed
        .and_then(|()| sync(&staged))
        .and_then(|()| sync(directory))
        .map_err(|source| disk(format!("sealing {}", staged.display()), source))
}

/// Puts the staged data in its place, and what was there into the folder `kept`. Begun anew, it goes on where it stopped.
/// Nothing is in its place before it is the owner's.
pub(super) fn take_place(directory: &Path, kept: &str, owner: &Owner) -> Result<(), OpenError> {
    owner.give(&[STAGED])?;
    let staged = directory.join(STAGED);
    let moved = || -> io::Result<()> {
        // The sync of a folder covers the names in it, and not whose they are.
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
        let operation = format!(
            "putting the new data of {} in its place",
            directory.display()
        );
        disk(operation, source)
    })?;
    owner.give(&[kept])
}

fn sync(directory: &Path) -> io::Result<()> {
    File::open(directory)?.sync_all()
}
