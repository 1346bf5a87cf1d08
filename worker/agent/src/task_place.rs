//! Where the tasks' directories lie: in memory, where the host has a folder there that lasts as long as the kernel runs.
//!
//! All that lies in them is worth nothing once the kernel was started anew, and there is much of it: sockets, claims, what
//! to run. `tasks` in the data directory is then a link to a folder in memory, so every path is what it is without.

use std::fs;
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, symlink};
use std::path::{Path, PathBuf};

use rustix::fs::statfs;
use rustix::process::geteuid;

use crate::identity::DataDirectory;

/// What `statfs` calls a file system in memory (tmpfs).
const IN_MEMORY: i128 = 0x0102_1994;
/// Users with lower numbers are the system's. What others have in shared memory may be removed when they log out.
const USERS_BEGIN: u32 = 1_000;
/// Who may look into the folder.
const MODE: u32 = 0o700;

/// Sees to it that the directory of all tasks is there: in `memory`, a folder that need not exist, if it can be and
/// nothing runs from the disk; with `is_chosen` by the host's settings, whoever the user is.
///
/// # Errors
/// What the file system says about the disk; what it says about memory is no error.
pub(crate) fn settle(data: &DataDirectory, memory: &Path, is_chosen: bool) -> io::Result<()> {
    let tasks = data.tasks();
    // Hosts may share the folder, and a copy of a data directory has the same link as its original.
    let place = memory.join(format!("tasks-{}", data.mark()));
    match fs::read_link(&tasks) {
        // Another worker's.
        Ok(target) if target.file_name() != place.file_name() => fs::remove_file(&tasks)?,
        // It may be gone with the kernel that ran then, or removed with the last task.
        Ok(target) => match made(&target) {
            Ok(()) if target == place => return Ok(()),
            // The settings have changed; what runs stays where it is.
            Ok(()) if fs::read_dir(&target)?.next().is_some() => return Ok(()),
            _ => fs::remove_file(&tasks)?,
        },
        // What an agent before us has there, or one of a build that knew no other place. If tasks run there, they stay.
        Err(error) if error.kind() == ErrorKind::InvalidInput => match fs::remove_dir(&tasks) {
            Err(error) if error.kind() == ErrorKind::DirectoryNotEmpty => return Ok(()),
            removed => removed?,
        },
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    let may = is_chosen || geteuid().as_raw() < USERS_BEGIN;
    if may && made(&place).and_then(|()| symlink(&place, &tasks)).is_ok() {
        return Ok(());
    }
    fs::create_dir_all(&tasks)
}

/// The folder in memory that the directories of all tasks lie in; none if they lie on a disk.
pub(crate) fn in_memory(data: &DataDirectory) -> Option<PathBuf> {
    fs::read_link(data.tasks()).ok()
}

/// The name of the folder beside it in which attempts have shared memory of their own.
pub(crate) fn shared_memory(data: &DataDirectory) -> String {
    format!("shared-{}", data.mark())
}

/// Removes the folders in memory if no task has anything in them: whoever removes the data directory then removes all.
pub(crate) fn leave(data: &DataDirectory) {
    if let Some(place) = in_memory(data)
        && fs::remove_dir(&place).is_ok()
        && let Some(memory) = place.parent()
    {
        drop(fs::remove_dir(memory.join(shared_memory(data))));
        drop(fs::remove_dir(memory));
    }
}

/// Makes a folder, unless it would not lie in memory or is somebody else's.
fn made(place: &Path) -> io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true).mode(MODE).create(place)?;
    let memory: PathBuf = place.parent().unwrap_or(place).into();
    let is_ours = [place, &memory].into_iter().all(|folder| {
        let metadata = folder.symlink_metadata();
        metadata.is_ok_and(|it| it.is_dir() && it.uid() == geteuid().as_raw())
    });
    let kind = i128::from(statfs(place)?.f_type);
    if is_ours && kind == IN_MEMORY {
        return Ok(());
    }
    drop(fs::remove_dir(place));
    Err(ErrorKind::Unsupported.into())
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a failed test should panic")]
mod tests {
    use super::*;

    /// A data directory, and a folder in memory for it; none where the machine has no memory for files.
    fn home() -> Option<(tempfile::TempDir, tempfile::TempDir, DataDirectory)> {
        let memory = tempfile::tempdir_in("/dev/shm").ok()?;
        (i128::from(statfs(memory.path()).ok()?.f_type) == IN_MEMORY).then_some(())?;
        let home = tempfile::tempdir().unwrap();
        let data = DataDirectory::take(home.path(), "boot").unwrap();
        Some((home, memory, data))
    }

    #[test]
    fn tasks_lie_in_memory_and_again_after_a_reboot() {
        let Some((_home, memory, data)) = home() else {
            return;
        };
        let run = memory.path().join("run");
        settle(&data, &run, true).unwrap();
        fs::create_dir(data.tasks().join("7-0-11")).unwrap();
        assert!(fs::read_link(data.tasks()).unwrap().join("7-0-11").is_dir());
        leave(&data);
        settle(&data, &run, true).unwrap();
        assert!(data.tasks().join("7-0-11").is_dir());
        fs::remove_dir_all(&run).unwrap();
        settle(&data, &run, true).unwrap();
        assert_eq!(fs::read_dir(data.tasks()).unwrap().count(), 0);
        leave(&data);
        assert!(!run.exists());
        settle(&data, &run, true).unwrap();
        assert!(data.tasks().is_dir());
    }

    #[test]
    fn tasks_of_the_build_before_stay_where_they_are_until_they_are_over() {
        let Some((_home, memory, data)) = home() else {
            return;
        };
        let old = data.tasks().join("7-0-11");
        fs::create_dir_all(&old).unwrap();
        settle(&data, memory.path(), true).unwrap();
        assert!(old.is_dir() && fs::read_link(data.tasks()).is_err());
        fs::remove_dir(&old).unwrap();
        settle(&data, memory.path(), true).unwrap();
        let parent = || {
            fs::read_link(data.tasks())
                .unwrap()
                .parent()
                .unwrap()
                .to_owned()
        };
        assert_eq!(parent(), memory.path());
        // Tasks run there when the settings name another folder.
        fs::create_dir(&old).unwrap();
        let other = memory.path().join("other");
        settle(&data, &other, true).unwrap();
        assert!(old.is_dir());
        fs::remove_dir(&old).unwrap();
        settle(&data, &other, true).unwrap();
        assert_eq!(parent(), other);
    }

    #[test]
    fn a_copy_of_a_data_directory_leaves_its_originals_tasks_alone() {
        let Some((_home, memory, data)) = home() else {
            return;
        };
        settle(&data, memory.path(), true).unwrap();
        let task = data.tasks().join("7-0-11");
        fs::create_dir(&task).unwrap();
        let other = tempfile::tempdir().unwrap();
        fs::copy(
            data.path().join("identity.json"),
            other.path().join("identity.json"),
        )
        .unwrap();
        symlink(
            fs::read_link(data.tasks()).unwrap(),
            other.path().join("tasks"),
        )
        .unwrap();
        let copy = DataDirectory::take(other.path(), "boot").unwrap();
        settle(&copy, memory.path(), true).unwrap();
        assert_eq!(fs::read_dir(copy.tasks()).unwrap().count(), 0);
        assert!(task.is_dir());
    }

    #[test]
    fn what_is_not_in_memory_is_not_used() {
        let home = tempfile::tempdir().unwrap();
        let data = DataDirectory::take(home.path(), "boot").unwrap();
        let disk = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        settle(&data, disk.path(), true).unwrap();
        assert!(data.tasks().is_dir());
        let is_in_memory = statfs(disk.path()).unwrap().f_type == 0x0102_1994;
        assert_eq!(fs::read_link(data.tasks()).is_ok(), is_in_memory);
    }
}
