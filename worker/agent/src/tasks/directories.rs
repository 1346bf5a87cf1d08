//! Location of the task directories: in memory, if the host has a folder there that lives as long as the
//! kernel.
//!
//! Their content is worthless after a reboot, and there is much of it: sockets, claims, specifications.
//! `tasks` in the data directory is then a link to a folder in memory, so all paths stay the same.

use std::fs;
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, symlink};
use std::path::{Path, PathBuf};

use rustix::fs::statfs;
use rustix::process::geteuid;

use crate::identity::DataDirectory;

/// File system type of tmpfs in `statfs`.
const IN_MEMORY: i128 = 0x0102_1994;
/// First uid of ordinary users. Their files in shared memory may be removed when they log out.
const USERS_BEGIN: u32 = 1_000;
/// Mode of the folder.
const MODE: u32 = 0o700;

/// Creates the directory of all tasks: in `memory`, a folder that need not exist, if possible and no task
/// runs from the disk; with `is_chosen`, set by the host's settings, regardless of the user.
///
/// # Errors
/// Of the file system on disk; errors of the one in memory only prevent its use.
pub(crate) fn set_up(data: &DataDirectory, memory: &Path, is_chosen: bool) -> io::Result<()> {
    let tasks = data.tasks();
    // Hosts may share the folder, and a copy of a data directory has the same link as its original.
    let place = memory.join(format!("tasks-{}", data.mark()));
    match fs::read_link(&tasks) {
        // A folder of another worker.
        Ok(target) if target.file_name() != place.file_name() => fs::remove_file(&tasks)?,
        // It may be gone after a reboot, or removed with the last task.
        Ok(target) => match create_in_memory(&target) {
            Ok(()) if target == place => return Ok(()),
            // The settings changed; running tasks stay where they are.
            Ok(()) if fs::read_dir(&target)?.next().is_some() => return Ok(()),
            _ => fs::remove_file(&tasks)?,
        },
        // A directory on disk, from an earlier agent or from a build that knew no other place. If tasks run
        // there, it stays.
        Err(error) if error.kind() == ErrorKind::InvalidInput => match fs::remove_dir(&tasks) {
            Err(error) if error.kind() == ErrorKind::DirectoryNotEmpty => return Ok(()),
            removed => removed?,
        },
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    let may_use_memory = is_chosen || geteuid().as_raw() < USERS_BEGIN;
    if may_use_memory
        && create_in_memory(&place)
            .and_then(|()| symlink(&place, &tasks))
            .is_ok()
    {
        return Ok(());
    }
    fs::create_dir_all(&tasks)
}

/// The folder in memory of all task directories; none if they are on a disk.
pub(crate) fn in_memory(data: &DataDirectory) -> Option<PathBuf> {
    fs::read_link(data.tasks()).ok()
}

/// Name of the sibling folder for private shared memory of attempts.
pub(crate) fn shared_memory(data: &DataDirectory) -> String {
    format!("shared-{}", data.mark())
}

/// Removes the folders in memory if no task has files in them, so that removing the data directory removes
/// everything.
pub(crate) fn clean_up(data: &DataDirectory) {
    if let Some(place) = in_memory(data)
        && fs::remove_dir(&place).is_ok()
        && let Some(memory) = place.parent()
    {
        drop(fs::remove_dir(memory.join(shared_memory(data))));
        drop(fs::remove_dir(memory));
    }
}

/// Creates a folder, unless it would not be in memory or belongs to another user.
fn create_in_memory(place: &Path) -> io::Result<()> {
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

    /// A data directory, and a folder in memory for it; none if the machine has no tmpfs.
    fn home() -> Option<(tempfile::TempDir, tempfile::TempDir, DataDirectory)> {
        let memory = tempfile::tempdir_in("/dev/shm").ok()?;
        (i128::from(statfs(memory.path()).ok()?.f_type) == IN_MEMORY).then_some(())?;
        let home = tempfile::tempdir().unwrap();
        let data = DataDirectory::lock(home.path(), "boot").unwrap();
        Some((home, memory, data))
    }

    #[test]
    fn tasks_lie_in_memory_and_again_after_a_reboot() {
        let Some((_home, memory, data)) = home() else {
            return;
        };
        let run = memory.path().join("run");
        set_up(&data, &run, true).unwrap();
        fs::create_dir(data.tasks().join("7-0-11")).unwrap();
        assert!(fs::read_link(data.tasks()).unwrap().join("7-0-11").is_dir());
        clean_up(&data);
        set_up(&data, &run, true).unwrap();
        assert!(data.tasks().join("7-0-11").is_dir());
        fs::remove_dir_all(&run).unwrap();
        set_up(&data, &run, true).unwrap();
        assert_eq!(fs::read_dir(data.tasks()).unwrap().count(), 0);
        clean_up(&data);
        assert!(!run.exists());
        set_up(&data, &run, true).unwrap();
        assert!(data.tasks().is_dir());
    }

    #[test]
    fn directories_of_running_tasks_are_not_moved() {
        let Some((_home, memory, data)) = home() else {
            return;
        };
        let old = data.tasks().join("7-0-11");
        fs::create_dir_all(&old).unwrap();
        set_up(&data, memory.path(), true).unwrap();
        assert!(old.is_dir() && fs::read_link(data.tasks()).is_err());
        fs::remove_dir(&old).unwrap();
        set_up(&data, memory.path(), true).unwrap();
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
        set_up(&data, &other, true).unwrap();
        assert!(old.is_dir());
        fs::remove_dir(&old).unwrap();
        set_up(&data, &other, true).unwrap();
        assert_eq!(parent(), other);
    }

    #[test]
    fn a_copy_of_a_data_directory_leaves_its_originals_tasks_alone() {
        let Some((_home, memory, data)) = home() else {
            return;
        };
        set_up(&data, memory.path(), true).unwrap();
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
        let copy = DataDirectory::lock(other.path(), "boot").unwrap();
        set_up(&copy, memory.path(), true).unwrap();
        assert_eq!(fs::read_dir(copy.tasks()).unwrap().count(), 0);
        assert!(task.is_dir());
    }

    #[test]
    fn folders_on_disk_are_not_used() {
        let home = tempfile::tempdir().unwrap();
        let data = DataDirectory::lock(home.path(), "boot").unwrap();
        let disk = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        set_up(&data, disk.path(), true).unwrap();
        assert!(data.tasks().is_dir());
        let is_in_memory = statfs(disk.path()).unwrap().f_type == 0x0102_1994;
        assert_eq!(fs::read_link(data.tasks()).is_ok(), is_in_memory);
    }
}
