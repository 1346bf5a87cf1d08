//! A task's checkpoint folder: created before the task starts, removed afterwards if empty.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use rustix::fs::{AtFlags, Mode, OFlags, fchmod, fstat, mkdirat, openat, statat, unlinkat};
use rustix::io::Errno;
use rustix::process::geteuid;

use crate::checkpoint::checkpoints::markers;
use crate::files::open_folder;
use crate::isolation::account::Account;
use crate::lease::clock::file_clock;
use crate::task::spec::TaskSpec;

/// Permission for others to pass through a folder without listing it.
const PASSAGE: Mode = Mode::XGRP.union(Mode::XOTH);
/// Attempts to create a folder whose empty parent another task may remove concurrently.
const CREATE_TRIES: usize = 8;

/// A task's checkpoint folder (`MUSTER_CKPT_DIR`).
#[derive(Clone, Debug)]
pub(crate) struct CheckpointFolder {
    path: PathBuf,
    /// Whether this task scans for checkpoints registered by files alone: all tasks of a unit share the
    /// folder, and one scan is enough.
    scans: bool,
    /// Whether other tasks may be about to write into it.
    is_shared: bool,
    /// Whether the agent created the folder and removes it.
    is_agents: bool,
    /// Markers present before the task began; they belong to other attempts.
    foreign: BTreeMap<u64, SystemTime>,
    prepared_at: SystemTime,
    /// Owner of the folder; the supervisor's user if `None`.
    account: Option<Account>,
}

impl CheckpointFolder {
    /// Creates the folder. Call it before the task is started: the file system may hang.
    pub(crate) fn prepare(spec: &TaskSpec) -> Self {
        let path = spec.checkpoint_directory.clone();
        let scans = spec.assignment.rank.rank == 0;
        // If the folder cannot be created, the task's own error will be clearer.
        let is_agents = spec.checkpoint_directory_is_new;
        let account = spec.owner().cloned();
        // A task that is refused needs none.
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

    /// Runs `look` with the task's file access rights, since the task may have put links into the folder.
    pub(crate) fn looking<T>(&self, look: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        acting(self.account.as_ref(), look)
    }

    /// File timestamp of the preparation: older files belong to another attempt.
    pub(crate) const fn prepared_at(&self) -> SystemTime {
        self.prepared_at
    }

    /// The folder, if this task is the one that scans it.
    pub(crate) fn scanned(&self) -> Option<&Path> {
        self.scans.then_some(self.path.as_path())
    }

    /// Whether a marker is another attempt's.
    pub(crate) fn is_foreign(&self, step: u64, modified: SystemTime) -> bool {
        self.foreign.get(&step) == Some(&modified)
    }

    /// Removes empty folders: the task's, and its job's if this was the last one. True if nothing is left to
    /// find. Call it once no process of the task is alive.
    /// A folder created by the agent is left to the agent.
    /// A gang's folder stays: a member on another host may be about to write into it.
    pub(crate) fn tidy(&self) -> bool {
        if self.is_shared {
            return !self.scans;
        }
        if self.is_agents {
            // Only where tasks run as their agent's user.
            let mut names = fs::read_dir(&self.path).into_iter().flatten();
            return names.next().is_none();
        }
        match fs::remove_dir(&self.path) {
            Ok(()) => {
                // It is not empty while other tasks of the job have folders; failing to remove it does no
                // harm.
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

/// Creates a folder, owned by the account if one is given. True if it did not exist.
/// Root creates it and changes its owner where the job's folder belongs to this process; otherwise, and on
/// file systems that squash root, the account creates it itself.
fn create_for(account: Option<&Account>, path: &Path) -> io::Result<bool> {
    let Some(account) = account else {
        return create(path);
    };
    match create_in_ours(account, path) {
        Err(error) if error.kind() == ErrorKind::PermissionDenied => {
            account.acting(|| create(path))
        }
        made => made,
    }
}

/// Creates a folder within its job's and gives it to an account; `PermissionDenied` if the job's is not this
/// user's.
fn create_in_ours(account: &Account, path: &Path) -> io::Result<bool> {
    let (Some(job), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(ErrorKind::InvalidInput.into());
    };
    let mut tries = 0;
    loop {
        tries += 1;
        let made = open_ours(job).and_then(|job| create_in(&job, name, account));
        match made {
            Err(error) if error.kind() == ErrorKind::NotFound && tries < CREATE_TRIES => {}
            made => return made,
        }
    }
}

/// Opens a job's folder, creating it if absent. It may be in a directory that accounts can write to:
/// following a link there could lead root anywhere.
fn open_ours(job: &Path) -> io::Result<OwnedFd> {
    let is_new = create(job)?;
    let folder = open_folder(job)?;
    if fstat(&folder)?.st_uid == geteuid().as_raw() {
        return Ok(folder);
    }
    if is_new {
        // Root is squashed here: a folder of its own would obstruct the account.
        drop(fs::remove_dir(job));
    }
    Err(ErrorKind::PermissionDenied.into())
}

/// Creates a folder within its job's and gives it to an account.
fn create_in(job: &OwnedFd, name: &OsStr, account: &Account) -> io::Result<bool> {
    let is_new = match mkdirat(job, name, Mode::RWXU) {
        Ok(()) => true,
        Err(Errno::EXIST) => false,
        Err(error) => return Err(error.into()),
    };
    let given = give(job, name, account);
    if given.is_err() && is_new {
        // The folder is empty and unused: the account can create it again.
        unlinkat(job, name, AtFlags::REMOVEDIR).ok();
    }
    given.map(|()| is_new)
}

/// Changes the owner of a folder, and lets the new owner pass through the job's.
fn give(job: &OwnedFd, name: &OsStr, account: &Account) -> io::Result<()> {
    let found = statat(job, name, AtFlags::SYMLINK_NOFOLLOW)?;
    if found.st_uid == account.uid {
        return Ok(());
    }
    // An earlier attempt of the job ran as its agent's user, or the folder is new.
    if found.st_uid != geteuid().as_raw() {
        return Err(ErrorKind::PermissionDenied.into());
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    account.own_open(&openat(job, name, flags, Mode::empty())?)?;
    let mode = Mode::from_raw_mode(fstat(job)?.st_mode);
    Ok(fchmod(job, mode | PASSAGE)?)
}

/// Creates a folder and its parents. True if it did not exist.
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
    use std::fs::Permissions;
    use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

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
    fn an_empty_folder_is_removed_with_its_jobs_and_a_full_one_stays() {
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

    #[test]
    fn root_neither_creates_nor_opens_files_behind_an_accounts_link() {
        if !geteuid().is_root() {
            crate::output::log_error("skipped: only root can change the owner of a folder");
            return;
        }
        let nobody = Account::find("nobody").unwrap().unwrap();
        let home = tempfile::tempdir().unwrap();
        let within = |name: &str| home.path().join(name);
        let open_to_all = Permissions::from_mode(0o1777);
        fs::set_permissions(home.path(), open_to_all).unwrap();
        for name in ["closed", "theirs"] {
            fs::create_dir(within(name)).unwrap();
            fs::set_permissions(within(name), Permissions::from_mode(0o700)).unwrap();
        }
        nobody.own(&within("theirs")).unwrap();
        symlink(within("closed"), within("7")).unwrap();
        assert!(create_for(Some(&nobody), &within("7/0")).is_err());
        let whose = |name: &str| {
            let found = within(name).metadata().unwrap();
            (found.uid(), found.mode() & 0o777)
        };
        assert_eq!(whose("closed"), (0, 0o700));
        assert_eq!(fs::read_dir(within("closed")).unwrap().count(), 0);
        // In a folder of its own, the account creates it.
        assert!(create_for(Some(&nobody), &within("theirs/0")).unwrap());
        assert_eq!(whose("theirs/0").0, nobody.uid);
        for is_new in [true, false] {
            assert_eq!(create_for(Some(&nobody), &within("8/0")).unwrap(), is_new);
            assert_eq!(whose("8/0"), (nobody.uid, 0o700));
        }
        let (owner, mode) = whose("8");
        assert_eq!((owner, mode & 0o011), (0, 0o011));
    }
}
