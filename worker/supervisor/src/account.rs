//! The account that a task runs as, where that is not its agent's.
//!
//! Two things are told apart. A task's process becomes the account for good, and can never be anybody else again. A supervisor
//! stays who it is, so that it can kill its task, and only borrows the account's rights over files where it touches what the
//! task may change: a link that the task has put there then leads it nowhere where the task could not go itself.

use std::ffi::CString;
use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, fchmod, fchown};
use rustix::process::{Gid, Uid, getegid, geteuid, getgroups, umask};
use rustix::thread::{
    CapabilitySet, CapabilitySets, set_capabilities, set_no_new_privs, set_thread_groups,
    set_thread_res_gid, set_thread_res_uid,
};
use serde::{Deserialize, Serialize};

use crate::files::open_folder;
use crate::sys::user_database;

/// Who may use what was given to an account.
const MODE: Mode = Mode::RWXU;
/// What files of a task are not open for, unless it says otherwise: what logins have on most systems.
const UMASK: Mode = Mode::WGRP.union(Mode::WOTH);

/// A local account, as the system's user database has it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Account {
    /// Its name.
    pub name: String,
    /// Its number.
    pub uid: u32,
    /// The number of its first group.
    pub gid: u32,
    /// The numbers of all of its groups, with that.
    pub groups: Vec<u32>,
    /// Its home (`HOME`).
    pub home: PathBuf,
    /// Its shell (`SHELL`).
    pub shell: PathBuf,
}

impl Account {
    /// Looks an account up; none if there is none of this name. It may take long: the database may be on another machine.
    ///
    /// # Errors
    /// What the user database says.
    pub fn find(name: &str) -> io::Result<Option<Self>> {
        let Ok(text) = CString::new(name) else {
            return Ok(None);
        };
        let Some(entry) = user_database::entry(&text)? else {
            return Ok(None);
        };
        Ok(Some(Self {
            name: name.to_owned(),
            uid: entry.uid,
            gid: entry.gid,
            groups: user_database::groups(&text, entry.gid)?,
            home: entry.home,
            shell: entry.shell,
        }))
    }

    /// Gives it a folder, for itself alone; a link to one is refused. The way there must be nobody else's.
    ///
    /// # Errors
    /// What the file system says.
    pub fn own(&self, folder: &Path) -> io::Result<()> {
        self.own_open(&open_folder(folder)?)
    }

    /// The same with a folder that is open.
    ///
    /// # Errors
    /// What the file system says.
    pub(crate) fn own_open(&self, folder: &OwnedFd) -> io::Result<()> {
        self.take(folder)?;
        Ok(fchmod(folder, MODE)?)
    }

    /// Gives it what is open.
    ///
    /// # Errors
    /// What the file system says.
    pub(crate) fn take(&self, file: impl AsFd) -> io::Result<()> {
        let (uid, gid) = (Uid::from_raw(self.uid), Gid::from_raw(self.gid));
        Ok(fchown(file, Some(uid), Some(gid))?)
    }

    /// Does something with its rights over files.
    ///
    /// # Errors
    /// That these cannot be had, and what `act` says.
    pub(crate) fn acting<T>(&self, act: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        let groups: Vec<Gid> = self.groups.iter().copied().map(Gid::from_raw).collect();
        let _borrowed = BorrowedRights::take(self.uid, self.gid, &groups)?;
        act()
    }
}

/// Does something with the rights over files of whoever owns a folder, if this process is root and that is somebody else.
///
/// # Errors
/// That these cannot be had, and what `act` says.
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

/// Rights over files that this thread has for a while. It can be sent no signals that it could not be sent before.
struct BorrowedRights {
    groups: Vec<Gid>,
}

impl BorrowedRights {
    fn take(uid: u32, gid: u32, groups: &[Gid]) -> io::Result<Self> {
        let before = getgroups()?;
        set_thread_groups(groups)?;
        let borrowed = Self { groups: before };
        user_database::set_group_of_files(gid);
        user_database::set_user_of_files(uid);
        // Neither call says whether it did anything, but in what the next one gives.
        let is_done = user_database::set_group_of_files(gid) == gid
            && user_database::set_user_of_files(uid) == uid;
        match is_done {
            true => Ok(borrowed),
            false => Err(io::ErrorKind::PermissionDenied.into()),
        }
    }
}

impl Drop for BorrowedRights {
    fn drop(&mut self) {
        user_database::set_user_of_files(geteuid().as_raw());
        user_database::set_group_of_files(getegid().as_raw());
        // They could be taken, so they can be given back; a thread for which that failed has fewer rights than before.
        let _ = set_thread_groups(&self.groups);
    }
}

/// What a child needs to become an account: after its fork nothing may be allocated.
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
            groups: { account.groups.iter() }
                .copied()
                .map(Gid::from_raw)
                .collect(),
        }
    }

    /// Makes the calling thread's process, which has no other thread, the account's for good: without capabilities, and
    /// with no way to gain any by a program that is started. What the kernel sends it when its parent dies must be asked for
    /// anew.
    ///
    /// # Errors
    /// What the kernel says; `PermissionDenied` if there is a way back.
    pub(crate) fn assume(&self) -> io::Result<()> {
        umask(UMASK);
        set_no_new_privs(true)?;
        // In this order: without the user's rights over others, groups cannot be changed any more.
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

    /// Who it is.
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
        // A number is no name, and neither is what has a zero in it.
        for name in ["0", "no-such-account", "", "ro\0ot"] {
            assert_eq!(Account::find(name).unwrap(), None, "{name:?}");
        }
    }

    #[test]
    fn what_a_link_leads_to_is_given_to_nobody() {
        if !geteuid().is_root() {
            crate::output::complain("skipped: only root gives folders away");
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
    fn a_supervisor_with_an_accounts_rights_goes_where_the_account_may_go_and_comes_back() {
        if !geteuid().is_root() {
            crate::output::complain("skipped: only root can borrow others' rights");
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
        assert!(read().is_ok(), "it has its own rights again");
        assert!(acting_as_owner_of(home.path(), read).is_ok());
    }
}
