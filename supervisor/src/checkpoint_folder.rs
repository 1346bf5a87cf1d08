//! A task's checkpoint folder: made before the task starts, and not left behind empty.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, ErrorKind};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use rustix::process::geteuid;

use crate::account::Account;
use crate::checkpoints::markers;
use crate::clock::file_clock;
use crate::spec::TaskSpec;

/// What lets others through a folder without letting them look into it.
const PASSAGE: u32 = 0o011;
/// Tries to make a folder whose parent another task may remove at the same time, because it was empty.
const CREATE_TRIES: usize = 8;

/// Where one task's checkpoints go (`MUSTER_CKPT_DIR`).
#[derive(Clone, Debug)]
pub(crate) struct CheckpointFolder {
    path: PathBuf,
    /// Whether this task looks for checkpoints registered by files alone: all tasks of a unit share the folder, and one
    /// of them looking at it is enough.
    scans: bool,
    /// Whether other tasks may be about to write into it.
    is_shared: bool,
    /// Whether the agent made it, and removes it.
    is_agents: bool,
    /// Markers that lay there before the task began: another attempt's.
    foreign: BTreeMap<u64, SystemTime>,
    prepared_at: SystemTime,
    /// Whose it is; ours if none.
    account: Option<Account>,
}

impl CheckpointFolder {
    /// Makes the folder. Call it before the task is started: the file system may hang.
    pub(crate) fn prepare(spec: &TaskSpec) -> Self {
        let path = spec.checkpoint_directory.clone();
        let scans = spec.assignment.rank.rank == 0;
        // If it cannot be made, the task that wants it will say so better than we can.
        let is_agents = spec.checkpoint_directory_is_new;
        let account = spec.owner().cloned();
        // One that does not begin needs none.
        let is_refused = spec.identity.refusal.is_some();
        let is_new =
            is_agents || !is_refused && create_for(account.as_ref(), &path).unwrap_or(false);
        let foreign = if scans && !is_new {
            acting(account.as_ref(), || markers(&path)).unwrap_or_default()
        } else {
            BTreeMap::new()
        };
        Self {
            path,
            scans,
            is_shared: spec.assignment.rank.world_size > 1,
            is_agents,
            foreign,
            prepared_at: file_clock(),
            account,
        }
    }

    /// Looks into it with no more rights over files than the task has, who may have put links there.
    pub(crate) fn looking<T>(&self, look: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        acting(self.account.as_ref(), look)
    }

    /// When it was prepared, by the times of files: what is older is another attempt's.
    pub(crate) const fn prepared_at(&self) -> SystemTime {
        self.prepared_at
    }

    /// The folder, if this task is the one that looks at it.
    pub(crate) fn scanned(&self) -> Option<&Path> {
        self.scans.then_some(self.path.as_path())
    }

    /// Whether a marker is another attempt's.
    pub(crate) fn is_foreign(&self, step: u64, modified: SystemTime) -> bool {
        self.foreign.get(&step) == Some(&modified)
    }

    /// Removes what is empty: the task's folder, and its job's if this was the last one. True if nothing is left that
    /// anybody could look for. Call it when nothing of the task lives.
    ///
    /// One that the agent made is left to it.
    ///
    /// A gang's folder stays: a member on another host may be about to write into it.
    pub(crate) fn tidy(&self) -> bool {
        if self.is_shared {
            return !self.scans;
        }
        if self.is_agents {
            // Only where tasks run as their agent.
            let mut names = fs::read_dir(&self.path).into_iter().flatten();
            return names.next().is_none();
        }
        match fs::remove_dir(&self.path) {
            Ok(()) => {
                // Not empty while the job's other tasks have theirs; no harm if it cannot be removed.
                if let Some(job) = self.path.parent() {
                    drop(fs::remove_dir(job));
                }
                true
            }
            Err(error) => error.kind() == ErrorKind::NotFound,
        }
    }
}

fn acting<T>(account: Option<&Account>, act: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    match account {
        Some(account) => account.acting(act),
        None => act(),
    }
}

/// Makes a folder, which is an account's then if one is given. True: it was not there before.
///
/// It is made by root, who may do so in folders of ours, and given away; on file systems of others, where root is nobody, by the
/// account itself.
fn create_for(account: Option<&Account>, path: &Path) -> io::Result<bool> {
    let Some(account) = account else {
        return create(path);
    };
    let made = create(path).and_then(|is_new| match give(account, path) {
        Err(error) if is_new => {
            // It is empty, and in nobody's way but its own: the next line makes it anew.
            drop(fs::remove_dir(path));
            Err(error)
        }
        given => given.map(|()| is_new),
    });
    match made {
        Err(error) if error.kind() == ErrorKind::PermissionDenied => {
            account.acting(|| create(path))
        }
        made => made,
    }
}

/// Gives a folder away that is ours, and lets its new owner through its job's.
fn give(account: &Account, path: &Path) -> io::Result<()> {
    let us = geteuid().as_raw();
    let found = fs::symlink_metadata(path)?;
    if found.uid() == account.uid {
        return Ok(());
    }
    // An earlier attempt of the job ran as its agent, or the folder is new.
    if found.uid() != us || !found.is_dir() {
        return Err(ErrorKind::PermissionDenied.into());
    }
    account.own(path)?;
    let job = path.parent().unwrap_or(path);
    let mode = fs::symlink_metadata(job)?.mode();
    fs::set_permissions(job, fs::Permissions::from_mode(mode | PASSAGE))
}

/// Makes a folder and its parents. True: it was not there before.
fn create(path: &Path) -> io::Result<bool> {
    let mut tries = 0;
    loop {
        tries += 1;
        match fs::create_dir(path) {
            Ok(()) => return Ok(true),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => return Ok(false),
            Err(error) if error.kind() != ErrorKind::NotFound || tries == CREATE_TRIES => {
                return Err(error);
            }
            Err(error) => match path.parent() {
                Some(parent) => fs::create_dir_all(parent)?,
                None => return Err(error),
            },
        }
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a failed test should panic")]
mod tests {
    use super::*;

    fn folder(path: &Path, is_shared: bool) -> CheckpointFolder {
        CheckpointFolder {
            path: path.to_owned(),
            scans: true,
            is_shared,
            is_agents: false,
            foreign: BTreeMap::new(),
            prepared_at: SystemTime::UNIX_EPOCH,
            account: None,
        }
    }

    #[test]
    fn an_empty_folder_goes_with_its_jobs_and_a_full_one_stays() {
        let home = tempfile::tempdir().unwrap();
        let (first, second) = (home.path().join("7/0"), home.path().join("7/1"));
        assert!(create(&first).unwrap() && create(&second).unwrap());
        assert!(!create(&first).unwrap());
        fs::write(second.join("step"), "").unwrap();
        assert!(folder(&first, false).tidy());
        assert!(!first.exists() && second.exists());
        assert!(!folder(&second, false).tidy());
        fs::remove_file(second.join("step")).unwrap();
        assert!(folder(&second, false).tidy());
        assert!(!home.path().join("7").exists());
    }

    #[test]
    fn a_gangs_folder_stays_for_its_other_members() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("7/0");
        create(&path).unwrap();
        assert!(!folder(&path, true).tidy());
        assert!(path.exists());
    }
}
