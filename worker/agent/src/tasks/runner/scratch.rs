//! Working directories of tasks on disk: unused ones are reused by later tasks, because creating and
//! removing folders is slow, and most short tasks use none.

use std::collections::BTreeSet;
use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use muster_supervisor::{Account, TaskDirectory, files};

use crate::limits::SCRATCH_FOLDERS_SPARE_MAX;

/// The scratch folders of one host, numbered below one folder.
#[derive(Clone, Debug)]
pub(super) struct ScratchFolders {
    root: PathBuf,
    pool: Arc<Mutex<Pool>>,
}

#[derive(Debug, Default)]
struct Pool {
    spare: Vec<Folder>,
    /// Folders assigned to tasks, with their state at that time.
    given: BTreeSet<Folder>,
    /// Number of the next new folder; none before the first.
    next: Option<u64>,
}

/// A folder, and the time of its last change: entries, rights, attributes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Folder {
    path: PathBuf,
    changed: (i64, i64),
}

impl Folder {
    fn made(path: PathBuf) -> io::Result<Self> {
        fs::create_dir_all(&path)?;
        let changed = changed(&path.metadata()?);
        Ok(Self { path, changed })
    }

    /// The same folder, owned by an account.
    fn given_to(self, account: &Account) -> io::Result<Self> {
        account.own(&self.path)?;
        let changed = changed(&self.path.metadata()?);
        Ok(Self { changed, ..self })
    }

    /// Whether it is unused. The clock of changes ticks in steps of some milliseconds, so it must be empty
    /// as well.
    fn is_untouched(&self) -> bool {
        let is_same = |metadata: Metadata| changed(&metadata) == self.changed;
        self.path.symlink_metadata().is_ok_and(is_same)
            && fs::read_dir(&self.path).is_ok_and(|mut entries| entries.next().is_none())
    }
}

fn changed(metadata: &Metadata) -> (i64, i64) {
    (metadata.ctime(), metadata.ctime_nsec())
}

impl ScratchFolders {
    /// The pool below a folder that need not exist.
    pub(super) fn below(root: PathBuf) -> Self {
        Self {
            root,
            pool: Arc::default(),
        }
    }

    /// Gives an existing task directory an empty folder, owned by the account that the task runs as.
    ///
    /// # Errors
    /// Of the file system.
    pub(super) fn give(
        &self,
        directory: &TaskDirectory,
        account: Option<&Account>,
    ) -> io::Result<()> {
        let taken = self.take()?;
        let folder = match account {
            Some(account) => taken.given_to(account)?,
            None => taken,
        };
        let link = directory.scratch();
        match std::os::unix::fs::symlink(&folder.path, &link) {
            // An earlier start of this task already has one.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                self.pool().spare.push(folder);
            }
            outcome => {
                outcome?;
                self.pool().given.insert(folder);
            }
        }
        Ok(())
    }

    fn take(&self) -> io::Result<Folder> {
        let mut pool = self.pool();
        if let Some(spare) = pool.spare.pop() {
            return Ok(spare);
        }
        let number = match pool.next {
            Some(number) => number,
            None => self.numbers()?.last().map_or(0, |last| last + 1),
        };
        pool.next = Some(number + 1);
        drop(pool);
        Folder::made(self.root.join(number.to_string()))
    }

    /// The folder linked from a task's directory; none if there is no link to a folder of this pool.
    pub(super) fn of(&self, directory: &TaskDirectory) -> Option<PathBuf> {
        let target = fs::read_link(directory.scratch()).ok()?;
        (target.parent() == Some(&self.root)).then_some(target)
    }

    /// Takes back the folder of a task that is gone and whose link is removed; it is reused if it is
    /// unused.
    ///
    /// # Errors
    /// Of the file system during removal.
    pub(super) fn take_back(&self, path: &Path) -> io::Result<()> {
        let mut pool = self.pool();
        let known = pool
            .given
            .iter()
            .find(|folder| folder.path == path)
            .cloned();
        if let Some(known) = &known {
            pool.given.remove(known);
        }
        drop(pool);
        if let Some(folder) = known.filter(Folder::is_untouched) {
            let mut pool = self.pool();
            if pool.spare.len() < SCRATCH_FOLDERS_SPARE_MAX {
                pool.spare.push(folder);
                return Ok(());
            }
        }
        files::remove_directory(path)
    }

    /// Removes all folders of earlier agents that none of these tasks has. Call it before any folder is
    /// assigned.
    ///
    /// # Errors
    /// Of the file system.
    pub(super) fn sweep<'a>(
        &self,
        tasks: impl Iterator<Item = &'a TaskDirectory>,
    ) -> io::Result<()> {
        let used: BTreeSet<PathBuf> = tasks.filter_map(|task| self.of(task)).collect();
        let numbers = self.numbers()?;
        self.pool().next = Some(numbers.last().map_or(0, |last| last + 1));
        let unused: Vec<PathBuf> = numbers
            .iter()
            .map(|number| self.root.join(number.to_string()))
            .filter(|path| !used.contains(path))
            .collect();
        // They may contain very many files.
        std::thread::spawn(move || {
            for path in unused {
                if let Err(error) = files::remove_directory(&path) {
                    tracing::warn!(path = %path.display(), %error, "removing a task's scratch folder failed");
                }
            }
        });
        Ok(())
    }

    fn numbers(&self) -> io::Result<BTreeSet<u64>> {
        let entries = match fs::read_dir(&self.root) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(BTreeSet::new()),
            entries => entries?,
        };
        let mut numbers = BTreeSet::new();
        for entry in entries {
            numbers.extend(
                entry?
                    .file_name()
                    .to_str()
                    .and_then(|name| name.parse::<u64>().ok()),
            );
        }
        Ok(numbers)
    }

    fn pool(&self) -> MutexGuard<'_, Pool> {
        self.pool.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a failed test should panic")]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    /// A task's directory that has a folder.
    fn task(home: &Path, folders: &ScratchFolders, name: &str) -> (TaskDirectory, PathBuf) {
        let directory = TaskDirectory::new(home.join(name));
        fs::create_dir_all(directory.path()).unwrap();
        folders.give(&directory, None).unwrap();
        let folder = folders.of(&directory).unwrap();
        (directory, folder)
    }

    #[test]
    fn only_an_untouched_folder_goes_to_the_next_task() {
        let home = tempfile::tempdir().unwrap();
        let folders = ScratchFolders::below(home.path().join("scratch"));
        let (_, first) = task(home.path(), &folders, "1-0-1");
        folders.take_back(&first).unwrap();
        let (directory, again) = task(home.path(), &folders, "2-0-2");
        assert_eq!(again, first);
        // Through the link, as a task does.
        fs::write(directory.scratch().join("result"), "").unwrap();
        folders.take_back(&again).unwrap();
        assert!(!first.exists());
        let (_, other) = task(home.path(), &folders, "3-0-3");
        assert_ne!(other, first);
        // The clock of changes has ticked by then.
        let before = changed(&other.metadata().unwrap());
        while changed(&other.metadata().unwrap()) == before {
            fs::set_permissions(&other, Permissions::from_mode(0o700)).unwrap();
        }
        folders.take_back(&other).unwrap();
        assert!(!other.exists());
    }

    #[test]
    fn the_next_agent_removes_what_no_task_has() {
        let home = tempfile::tempdir().unwrap();
        let root = home.path().join("scratch");
        let folders = ScratchFolders::below(root.clone());
        let (held, kept) = task(home.path(), &folders, "1-0-1");
        let (_, stray) = task(home.path(), &folders, "2-0-2");
        fs::write(stray.join("rest"), "").unwrap();
        let next = ScratchFolders::below(root);
        next.sweep([&held].into_iter()).unwrap();
        muster_supervisor::testing::eventually("the stray's end", || !stray.exists());
        assert!(kept.exists());
        let (_, fresh) = task(home.path(), &next, "3-0-3");
        assert!(fresh != kept && fresh != stray);
        // The next agent does not know its original state.
        next.take_back(&kept).unwrap();
        assert!(!kept.exists());
    }
}
