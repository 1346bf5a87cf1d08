//! The account that a task runs as, where it differs from the agent's.
//! A task's process becomes the account permanently and cannot change back. A supervisor keeps its own user,
//! so that it can kill its task, and borrows only the account's file access rights where it touches what the
//! task may change: a symbolic link made by the task then leads nowhere that the task itself could not go.

use std::ffi::CString;
use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::unistd::{self, User, getgrouplist, setfsgid, setfsuid};
use rustix::fs::{Mode, fchmod, fchown};
use rustix::process::{Gid, Uid, geteuid, getgroups, umask};
use rustix::thread::{
    CapabilitySet, CapabilitySets, set_capabilities, set_no_new_privs, set_thread_groups,
    set_thread_res_gid, set_thread_res_uid,
};
use serde::{Deserialize, Serialize};

use crate::files::open_folder;

/// Permissions of folders that are given to an account.
const MODE: Mode = Mode::RWXU;
/// Permission bits that new files of a task lack by default: the login default on most systems.
const UMASK: Mode = Mode::WGRP.union(Mode::WOTH);

/// A local account from the system's user database.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Account {
    /// Account name.
    pub name: String,
    /// User id.
    pub uid: u32,
    /// Primary group id.
    pub gid: u32,
    /// Ids of all groups, including the primary one.
    pub groups: Vec<u32>,
    /// Home directory (`HOME`).
    pub home: PathBuf,
    /// Login shell (`SHELL`).
    pub shell: PathBuf,
}

impl Account {
    /// Looks up an account; `None` if no account has this name. May block for long: the database may be
    /// remote.
    ///
    /// # Errors
    /// Errors of the user database.
    pub fn find(name: &str) -> io::Result<Option<Self>> {
        let Some(user) = look_up(name)? else {
            return Ok(None);
        };
        let groups = getgrouplist(&CString::new(name)?, user.gid)?;
        Ok(Some(Self {
            name: name.to_owned(),
            uid: user.uid.as_raw(),
            gid: user.gid.as_raw(),
            groups: groups.into_iter().map(unistd::Gid::as_raw).collect(),
            home: user.dir,
            shell: user.shell,
        }))
    }

    /// Gives a folder to this account exclusively; refuses a symbolic link. No other user may be able to
    /// change the path to it.
    ///
    /// # Errors
    /// Errors of the file system.
    pub fn own(&self, folder: &Path) -> io::Result<()> {
        self.own_open(&open_folder(folder)?)
    }

    /// Like [`Self::own`], for an open folder.
    ///
    /// # Errors
    /// Errors of the file system.
    pub(crate) fn own_open(&self, folder: &OwnedFd) -> io::Result<()> {
        self.take(folder)?;
        Ok(fchmod(folder, MODE)?)
    }

    /// Makes the account the owner of an open file.
    ///
    /// # Errors
    /// Errors of the file system.
    pub(crate) fn take(&self, file: impl AsFd) -> io::Result<()> {
        let (uid, gid) = (Uid::from_raw(self.uid), Gid::from_raw(self.gid));
        Ok(fchown(file, Some(uid), Some(gid))?)
    }

    /// Runs `act` with the account's file access rights.
    ///
    /// # Errors
    /// The rights cannot be borrowed, or the error of `act`.
    pub(crate) fn acting<T>(&self, act: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        let groups: Vec<Gid> = self.groups.iter().copied().map(Gid::from_raw).collect();
        let _borrowed = BorrowedRights::take(self.uid, self.gid, &groups)?;
        act()
    }
}

fn look_up(name: &str) -> io::Result<Option<User>> {
    loop {
        match User::from_name(name) {
            Ok(user) => return Ok(user),
            // Returned by some sources of the database for an unknown name.
            Err(Errno::ENOENT | Errno::ESRCH) => return Ok(None),
            Err(Errno::EINTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Runs `act` with the file access rights of a folder's owner, if this process is root and the owner is
/// another user.
///
/// # Errors
/// The rights cannot be borrowed, or the error of `act`.
pub fn acting_as_owner_of<T>(folder: &Path, act: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    if !geteuid().is_root() {
        return act();
    }
    let owner = fs::symlink_metadata(folder)?;
    if owner.uid() == 0 {
        return act();
    }
    let _borrowed = BorrowedRights::take(owner.uid(), owner.gid(), &[])?;
    act()
}

/// File access rights that this thread borrows temporarily. They do not let other users send it more signals.
struct BorrowedRights {
    groups: Vec<Gid>,
}

impl BorrowedRights {
    fn take(uid: u32, gid: u32, groups: &[Gid]) -> io::Result<Self> {
        let before = getgroups()?;
        set_thread_groups(groups)?;
        let borrowed = Self { groups: before };
        let (uid, gid) = (unistd::Uid::from_raw(uid), unistd::Gid::from_raw(gid));
        setfsgid(gid);
        setfsuid(uid);
        // Neither call reports success; only the value that the next call returns shows it.
        let is_done = setfsgid(gid) == gid && setfsuid(uid) == uid;
        match is_done {
            true => Ok(borrowed),
            false => Err(io::ErrorKind::PermissionDenied.into()),
        }
    }
}

impl Drop for BorrowedRights {
    fn drop(&mut self) {
        setfsuid(unistd::geteuid());
        setfsgid(unistd::getegid());
        // Borrowing succeeded, so returning does too; a thread for which it failed has fewer rights than
        // before.
        let _ = set_thread_groups(&self.groups);
    }
}

/// What a child needs to become an account: nothing may be allocated after its fork.
#[derive(Debug)]
pub(crate) struct Credentials {
    uid: Uid,
    gid: Gid,
    groups: Vec<Gid>,
}

impl Credentials {
    pub(crate) fn of(account: &Account) -> Self {
        Self {
            uid: Uid::from_raw(account.uid),
            gid: Gid::from_raw(account.gid),
            groups: account.groups.iter().copied().map(Gid::from_raw).collect(),
        }
    }

    /// Makes the calling thread's process, which has no other thread, run as the account permanently: without
    /// capabilities, and unable to gain any by executing a program. The parent death signal must be requested
    /// again afterwards.
    ///
    /// # Errors
    /// Errors of the kernel; `PermissionDenied` if the process could still change back.
    pub(crate) fn assume(&self) -> io::Result<()> {
        umask(UMASK);
        set_no_new_privs(true)?;
        // The order matters: groups can no longer be changed once root's user id is given up.
        set_thread_groups(&self.groups)?;
        set_thread_res_gid(self.gid, self.gid, self.gid)?;
        set_thread_res_uid(self.uid, self.uid, self.uid)?;
        let none = CapabilitySet::empty();
        set_capabilities(
            None,
            CapabilitySets {
                effective: none,
                permitted: none,
                inheritable: none,
            },
        )?;
        let is_back = |outcome: rustix::io::Result<()>| outcome.is_ok();
        if is_back(set_thread_res_uid(Uid::ROOT, Uid::ROOT, Uid::ROOT))
            || is_back(set_thread_groups(&[Gid::ROOT]))
        {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        Ok(())
    }

    /// User id of the account.
    pub(crate) const fn uid(&self) -> Uid {
        self.uid
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a failed test should panic")]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    #[test]
    fn accounts_are_found_by_name_alone() {
        let root = Account::find("root").unwrap().unwrap();
        assert_eq!((root.uid, root.gid), (0, 0));
        assert!(root.groups.contains(&0) && root.home.is_absolute());
        // A number is not a name, and neither is a text with a zero byte.
        for name in ["0", "no-such-account", "", "ro\0ot"] {
            assert_eq!(Account::find(name).unwrap(), None, "{name:?}");
        }
    }

    #[test]
    fn the_target_of_a_link_keeps_its_owner() {
        if !geteuid().is_root() {
            crate::output::log_error("skipped: only root can change the owner of a folder");
            return;
        }
        let nobody = Account::find("nobody").unwrap().unwrap();
        let home = tempfile::tempdir().unwrap();
        let (folder, link) = (home.path().join("folder"), home.path().join("link"));
        fs::create_dir(&folder).unwrap();
        symlink(&folder, &link).unwrap();
        assert!(nobody.own(&link).is_err());
        assert_eq!(folder.metadata().unwrap().uid(), 0);
        nobody.own(&folder).unwrap();
        let given = folder.metadata().unwrap();
        assert_eq!((given.uid(), given.gid()), (nobody.uid, nobody.gid));
        assert_eq!(given.mode() & 0o777, 0o700);
    }

    #[test]
    fn a_supervisor_with_an_accounts_rights_has_its_access_and_returns_to_its_own() {
        if !geteuid().is_root() {
            crate::output::log_error("skipped: only root can borrow another user's rights");
            return;
        }
        let nobody = Account::find("nobody").unwrap().unwrap();
        let home = tempfile::tempdir().unwrap();
        fs::set_permissions(home.path(), fs::Permissions::from_mode(0o711)).unwrap();
        let (secret, theirs) = (home.path().join("secret"), home.path().join("theirs"));
        fs::write(&secret, "root's").unwrap();
        fs::set_permissions(&secret, fs::Permissions::from_mode(0o600)).unwrap();
        fs::create_dir(&theirs).unwrap();
        nobody.own(&theirs).unwrap();
        symlink(&secret, theirs.join("link")).unwrap();
        let read = || fs::read(theirs.join("link"));
        assert!(read().is_ok());
        for refused in [nobody.acting(read), acting_as_owner_of(&theirs, read)] {
            assert_eq!(refused.unwrap_err().kind(), io::ErrorKind::PermissionDenied);
        }
        nobody
            .acting(|| fs::write(theirs.join("mine"), "x"))
            .unwrap();
        assert_eq!(theirs.join("mine").metadata().unwrap().uid(), nobody.uid);
        assert!(read().is_ok(), "its own rights are restored");
        assert!(acting_as_owner_of(home.path(), read).is_ok());
    }
}
