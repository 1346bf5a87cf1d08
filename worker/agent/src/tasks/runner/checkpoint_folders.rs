//! Pool of empty checkpoint folders, which are reused among tasks because creating and removing folders is
//! slow.
//!
//! Only for folders on a local disk: then only this process creates and removes them, one at a time, and
//! one that was found empty can be moved away. On a shared file system supervisors create and remove them.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use muster_supervisor::RunId;
use rustix::fs::{CWD, RenameFlags, renameat_with};

use crate::limits::CHECKPOINT_FOLDERS_SPARE_MAX;

/// The folder of unused folders, among those of jobs.
const SPARE: &str = ".spare";

/// The folders of one host.
#[derive(Clone, Debug)]
pub(super) struct CheckpointFolders {
    /// None if supervisors create them.
    root: Option<PathBuf>,
    pool: Arc<Mutex<Pool>>,
}

#[derive(Debug, Default)]
struct Pool {
    spare: Vec<PathBuf>,
    /// Unused folders of whole jobs: moving is the slow operation, so one move is cheaper than two.
    pairs: Vec<Pair>,
    /// Assigned folders and those of their jobs, with their state at that time: entries, rights,
    /// attributes.
    given: BTreeMap<PathBuf, Stamp>,
    /// The attempts that hold a folder: the next attempt of a task may begin while the last one is cleaned
    /// up.
    holders: BTreeMap<PathBuf, BTreeSet<RunId>>,
    /// Counter for names of unused folders.
    numbers: u64,
    is_ready: bool,
}

/// An unused job folder with an empty unit folder.
#[derive(Debug)]
struct Pair {
    path: PathBuf,
    unit: OsString,
    stamp: Stamp,
}

/// Last change of a folder's metadata, and its rights: the clock of changes ticks in steps of some
/// milliseconds.
type Stamp = (i64, i64, u32);

fn stamp(path: &Path) -> io::Result<Stamp> {
    let of = |it: Metadata| (it.ctime(), it.ctime_nsec(), it.mode());
    path.symlink_metadata().map(of)
}

impl CheckpointFolders {
    /// The pool below a folder, if that is local to this host.
    pub(super) fn below(root: &Path, is_local: bool) -> Self {
        Self {
            root: is_local.then(|| root.to_owned()),
            pool: Arc::default(),
        }
    }

    /// Creates a unit's folder for an attempt, which holds it until it is taken back. False: it existed, or
    /// its supervisor must create it and report errors.
    pub(super) fn give(&self, folder: &Path, holder: RunId) -> bool {
        let (Some(root), Some(job)) = (&self.root, folder.parent()) else {
            return false;
        };
        let mut pool = self.pool();
        pool.prepare(root);
        pool.hold(folder, holder);
        if pool.place_pair(job, folder) {
            return true;
        }
        let is_new_job = pool.place(job).is_ok();
        let given = pool.within(job, |pool| pool.place(folder));
        if given.is_err() && is_new_job {
            pool.retire(root, job);
        }
        given.is_ok()
    }

    /// Records that an attempt of an earlier agent holds a folder.
    pub(super) fn hold(&self, folder: &Path, holder: RunId) {
        if self.root.is_some() {
            self.pool().hold(folder, holder);
        }
    }

    /// Removes an attempt's folder if it is empty and no other attempt holds it, and the job's folder if
    /// that was its last entry. Call it when no process of the attempt is alive.
    pub(super) fn take_back(&self, folder: &Path, holder: RunId) {
        let (Some(root), Some(job)) = (&self.root, folder.parent()) else {
            return;
        };
        let mut pool = self.pool();
        pool.prepare(root);
        if !pool.let_go(folder, holder) || pool.retire_pair(root, job, folder) {
            return;
        }
        pool.within(job, |pool| pool.retire(root, folder));
        pool.retire(root, job);
        // A folder with checkpoints is no longer tracked when its last task is gone.
        let mut rest = pool.given.range(job.to_owned()..).skip(1);
        if !rest.next().is_some_and(|(path, _)| path.starts_with(job)) {
            pool.given.remove(job);
        }
    }

    fn pool(&self) -> MutexGuard<'_, Pool> {
        self.pool.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Pool {
    /// Recreates the folder of unused folders: what an earlier agent left in it is unused.
    fn prepare(&mut self, root: &Path) {
        if !self.is_ready {
            self.is_ready = true;
            let spare = root.join(SPARE);
            let made = muster_supervisor::files::remove_directory(&spare)
                .and_then(|()| fs::create_dir(&spare));
            if let Err(error) = made {
                tracing::warn!(path = %spare.display(), %error,
                    "creating the folder for spare checkpoint folders failed");
            }
        }
    }

    fn hold(&mut self, folder: &Path, holder: RunId) {
        let holders = self.holders.entry(folder.to_owned()).or_default();
        holders.insert(holder);
    }

    /// True: no attempt holds the folder any more.
    fn let_go(&mut self, folder: &Path, holder: RunId) -> bool {
        let Some(holders) = self.holders.get_mut(folder) else {
            return true;
        };
        holders.remove(&holder);
        let is_free = holders.is_empty();
        if is_free {
            self.holders.remove(folder);
        }
        is_free
    }

    /// Moves or creates an empty folder at a path that does not exist.
    fn place(&mut self, path: &Path) -> io::Result<()> {
        match self.spare.last() {
            Some(spare) => {
                renameat_with(CWD, spare, CWD, path, RenameFlags::NOREPLACE)?;
                self.spare.pop();
            }
            None => fs::create_dir(path)?,
        }
        self.given.insert(path.to_owned(), stamp(path)?);
        Ok(())
    }

    /// Moves a job's folder with its first unit's to a path that does not exist. False: one move is not
    /// enough.
    fn place_pair(&mut self, job: &Path, folder: &Path) -> bool {
        let is_same = |pair: &Pair| Some(&*pair.unit) == folder.file_name();
        let Some(index) = self.pairs.iter().rposition(is_same) else {
            return false;
        };
        let from = &self.pairs[index].path;
        if renameat_with(CWD, from, CWD, job, RenameFlags::NOREPLACE).is_err() {
            return false;
        }
        let pair = self.pairs.swap_remove(index);
        self.given.insert(folder.to_owned(), pair.stamp);
        if let Ok(stamp) = stamp(job) {
            self.given.insert(job.to_owned(), stamp);
        }
        true
    }

    /// Keeps a job's folder with its last unit's if both are unchanged. False: a closer look is needed.
    fn retire_pair(&mut self, root: &Path, job: &Path, folder: &Path) -> bool {
        let known = |path: &Path| {
            let known = self.given.get(path).copied();
            known.filter(|known| stamp(path).ok() == Some(*known))
        };
        let (Some(unit), Some(stamp), Some(_)) = (folder.file_name(), known(folder), known(job))
        else {
            return false;
        };
        let names = |path: &Path| -> Vec<OsString> {
            let entries = fs::read_dir(path).into_iter().flatten().flatten();
            entries.take(2).map(|entry| entry.file_name()).collect()
        };
        if 2 * self.pairs.len() >= CHECKPOINT_FOLDERS_SPARE_MAX
            || !fs::read_dir(folder).is_ok_and(|mut entries| entries.next().is_none())
            || names(job) != [unit]
        {
            return false;
        }
        self.numbers += 1;
        let spare = root.join(SPARE).join(self.numbers.to_string());
        if fs::rename(job, &spare).is_err() {
            return false;
        }
        self.given.remove(job);
        self.given.remove(folder);
        self.pairs.push(Pair {
            path: spare,
            unit: unit.to_owned(),
            stamp,
        });
        true
    }

    /// Changes the content of a folder without counting it as a foreign change.
    fn within<T>(&mut self, folder: &Path, act: impl FnOnce(&mut Self) -> T) -> T {
        let before = stamp(folder).ok();
        let is_untouched = before.is_some() && before.as_ref() == self.given.get(folder);
        let done = act(self);
        if is_untouched && let Ok(now) = stamp(folder) {
            self.given.insert(folder.to_owned(), now);
        }
        done
    }

    /// Removes a folder if it is empty; keeps it for later tasks if it is unchanged.
    fn retire(&mut self, root: &Path, path: &Path) {
        let is_empty =
            |path: &Path| fs::read_dir(path).is_ok_and(|mut entries| entries.next().is_none());
        if path.exists() && !is_empty(path) {
            // A job folder with other tasks, or one with checkpoints, which must stay.
            if path.parent() != Some(root) {
                self.given.remove(path);
            }
            return;
        }
        let known = self.given.remove(path);
        let is_untouched = known.is_some() && known == stamp(path).ok();
        if is_untouched && self.spare.len() < CHECKPOINT_FOLDERS_SPARE_MAX {
            self.numbers += 1;
            let spare = root.join(SPARE).join(self.numbers.to_string());
            if fs::rename(path, &spare).is_ok() {
                self.spare.push(spare);
                return;
            }
        }
        // Harmless if it is gone or cannot be removed.
        drop(fs::remove_dir(path));
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a failed test should panic")]
mod tests {
    use muster_model::ids::{AttemptEpoch, JobId, TaskIndex, TaskKey};

    use super::*;

    const FIRST: RunId = attempt(11);

    const fn attempt(epoch: u64) -> RunId {
        RunId {
            key: TaskKey {
                job: JobId(7),
                task: TaskIndex(0),
            },
            epoch: AttemptEpoch(epoch),
        }
    }

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).unwrap();
        let mut names: Vec<String> = entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    fn inode(path: &Path) -> u64 {
        path.metadata().unwrap().ino()
    }

    #[test]
    fn empty_folders_go_from_job_to_job() {
        let home = tempfile::tempdir().unwrap();
        let folders = CheckpointFolders::below(home.path(), true);
        let unit = |name: &str| home.path().join(name);
        assert!(folders.give(&unit("7/0"), FIRST) && folders.give(&unit("7/1"), FIRST));
        assert!(
            !folders.give(&unit("7/1"), FIRST),
            "another attempt made it"
        );
        let first = inode(&unit("7/0"));
        folders.take_back(&unit("7/0"), FIRST);
        assert_eq!(names(&unit("7")), ["1"]);
        assert!(folders.give(&unit("7/2"), FIRST));
        assert_eq!(inode(&unit("7/2")), first);
        folders.take_back(&unit("7/1"), FIRST);
        folders.take_back(&unit("7/2"), FIRST);
        assert_eq!(names(home.path()), [SPARE]);
        assert_eq!(names(&unit(SPARE)).len(), 2);
        assert!(folders.give(&unit("8/0"), FIRST));
        assert_eq!(names(&unit(SPARE)).len(), 1);
    }

    #[test]
    fn a_folder_stays_while_a_later_attempt_has_it() {
        let home = tempfile::tempdir().unwrap();
        let folders = CheckpointFolders::below(home.path(), true);
        let folder = home.path().join("7/0");
        let second = attempt(12);
        assert!(folders.give(&folder, FIRST) && !folders.give(&folder, second));
        // The first is cleaned up after the second has begun; by chance twice.
        folders.take_back(&folder, FIRST);
        folders.take_back(&folder, FIRST);
        assert!(folder.exists());
        folders.take_back(&folder, second);
        assert!(!folder.exists());
        // The second was adopted by an agent that did not create its folder.
        assert!(folders.give(&folder, FIRST));
        let later = CheckpointFolders::below(home.path(), true);
        later.hold(&folder, second);
        later.take_back(&folder, FIRST);
        assert!(folder.exists());
        later.take_back(&folder, second);
        assert!(!folder.exists());
    }

    #[test]
    fn the_folders_of_a_job_with_one_unit_are_reused_together() {
        let home = tempfile::tempdir().unwrap();
        let folders = CheckpointFolders::below(home.path(), true);
        let unit = |name: &str| home.path().join(name);
        assert!(folders.give(&unit("7/0"), FIRST));
        let inodes = (inode(&unit("7")), inode(&unit("7/0")));
        folders.take_back(&unit("7/0"), FIRST);
        assert!(folders.give(&unit("8/0"), FIRST));
        assert_eq!((inode(&unit("8")), inode(&unit("8/0"))), inodes);
        // Until the clock of changes has ticked.
        let before = stamp(&unit("8")).unwrap();
        while stamp(&unit("8")).unwrap() == before {
            fs::write(unit("8/file"), "").unwrap();
            fs::remove_file(unit("8/file")).unwrap();
        }
        folders.take_back(&unit("8/0"), FIRST);
        assert!(!unit("8").exists());
        assert!(folders.give(&unit("9/0"), FIRST) && inode(&unit("9")) != inodes.0);
        fs::write(unit("9/0/saved"), "").unwrap();
        folders.take_back(&unit("9/0"), FIRST);
        assert!(unit("9/0/saved").exists());
    }

    #[test]
    fn saved_checkpoints_stay_and_changed_ones_are_not_passed_on() {
        let home = tempfile::tempdir().unwrap();
        let folders = CheckpointFolders::below(home.path(), true);
        let (saved, changed) = (home.path().join("7/0"), home.path().join("7/1"));
        assert!(folders.give(&saved, FIRST) && folders.give(&changed, FIRST));
        fs::create_dir(saved.join("step_1")).unwrap();
        let before = stamp(&changed).unwrap();
        // Until the clock of changes has ticked.
        while stamp(&changed).unwrap() == before {
            fs::write(changed.join("file"), "").unwrap();
            fs::remove_file(changed.join("file")).unwrap();
        }
        folders.take_back(&saved, FIRST);
        folders.take_back(&changed, FIRST);
        assert!(saved.join("step_1").exists() && !changed.exists());
        assert_eq!(names(&home.path().join(SPARE)), [""; 0]);
        // A later agent, which did not create them.
        fs::remove_dir(saved.join("step_1")).unwrap();
        CheckpointFolders::below(home.path(), true).take_back(&saved, FIRST);
        assert_eq!(names(home.path()), [SPARE]);
    }

    #[test]
    fn a_shared_file_system_is_left_to_the_supervisors() {
        let home = tempfile::tempdir().unwrap();
        let folders = CheckpointFolders::below(home.path(), false);
        let folder = home.path().join("7/0");
        assert!(!folders.give(&folder, FIRST));
        fs::create_dir_all(&folder).unwrap();
        folders.take_back(&folder, FIRST);
        assert!(folder.exists());
    }
}
