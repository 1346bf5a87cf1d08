//! Owner of a data directory. Its replica runs as that user, and must be able to use files that root writes
//! there.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, chownat, openat, statat};
use rustix::io::Errno;
use rustix::process::{Gid, Uid, geteuid};

use crate::error::OpenError;
use crate::recovery::disaster_recovery::staging::STAGED;
use crate::recovery::disaster_recovery::{RecoveryError, disk};
use crate::replica::identity::{DirectoryLock, LOCK_FILE};
use crate::replica::open::{LOG_FOLDER, SNAPSHOT_FOLDER};

/// User list of this host, one user a line: name first, number third.
const USERS: &str = "/etc/passwd";

/// User and group of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Account {
    user: Uid,
    group: Gid,
}

/// Owner of a data directory. When dropped, everything created there is handed over to the owner, on every
/// path out.
pub(super) struct DirectoryOwner {
    directory: PathBuf,
    /// None if files written by this process already belong to the owner.
    account: Option<Account>,
    /// Whether the directory is locked: before that, nothing is created there, and all its content is
    /// foreign.
    is_at_work: bool,
}

impl DirectoryOwner {
    /// Determines the owner of a directory; a missing one will belong to its creator.
    ///
    /// # Errors
    /// [`RecoveryError::Foreign`] if this process cannot hand files over to the owner.
    pub(super) fn of(directory: &Path) -> Result<Self, RecoveryError> {
        let account = match fs::metadata(directory) {
            Ok(about) => {
                let owner = Account {
                    user: Uid::from_raw(about.uid()),
                    group: Gid::from_raw(about.gid()),
                };
                recipient(directory, owner, geteuid())?
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(source) => {
                return Err(disk(format!("inspecting {}", directory.display()), source).into());
            }
        };
        Ok(Self {
            directory: directory.to_owned(),
            account,
            is_at_work: false,
        })
    }

    /// Locks the directory, through a file that the owner can lock later.
    pub(super) fn lock(&mut self) -> Result<DirectoryLock, OpenError> {
        let lock = DirectoryLock::take(&self.directory)?;
        self.is_at_work = true;
        self.hand_over(&[LOCK_FILE])?;
        Ok(lock)
    }

    /// Hands the entries of these names that this process created over to the owner, recursively.
    pub(super) fn hand_over(&self, names: &[&str]) -> Result<(), OpenError> {
        let Some(account) = self.account else {
            return Ok(());
        };
        let given = File::open(&self.directory).and_then(|directory| {
            for name in names {
                hand_over_files(directory.as_fd(), Path::new(name), account)?;
            }
            Ok(())
        });
        given.map_err(|source| {
            let operation = format!("changing the owner of {}", self.directory.display());
            disk(operation, source)
        })
    }
}

impl Drop for DirectoryOwner {
    fn drop(&mut self) {
        if !self.is_at_work {
            return;
        }
        let given = self.hand_over(&[LOCK_FILE, STAGED, SNAPSHOT_FOLDER, LOG_FOLDER]);
        if let Err(error) = given {
            let cause = std::error::Error::source(&error).map(ToString::to_string);
            tracing::error!(%error, cause, "the replica may not be able to use its data");
        }
    }
}

/// User that must receive files written by `us` into a directory of `owner`; none if they already belong to
/// that user.
fn recipient(directory: &Path, owner: Account, us: Uid) -> Result<Option<Account>, RecoveryError> {
    // A directory owned by root is used by others through its group. A Kubernetes volume is: its replica's
    // user writes itself.
    if owner.user == us || owner.user.is_root() {
        return Ok(None);
    }
    if us.is_root() {
        return Ok(Some(owner));
    }
    let Account { user, group } = owner;
    let (owner, as_owner) = match name_of(user) {
        Some(name) => (name.clone(), format!("runuser -u {name} --")),
        // `runuser` accepts names only.
        None => (
            user.to_string(),
            format!("setpriv --reuid {user} --regid {group} --clear-groups"),
        ),
    };
    Err(RecoveryError::Foreign {
        directory: directory.to_owned(),
        owner,
        as_owner,
    })
}

/// Name of a user, if it is in this host's user list.
fn name_of(user: Uid) -> Option<String> {
    let number = user.to_string();
    let users = fs::read_to_string(USERS).unwrap_or_default();
    users.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)? == number).then(|| name.to_owned())
    })
}

/// Changes the owner of our files, recursively. Links are not followed: the owner may have created them.
fn hand_over_files(
    parent: BorrowedFd<'_>,
    name: &Path,
    account: Account,
) -> rustix::io::Result<()> {
    let about = match statat(parent, name, AtFlags::SYMLINK_NOFOLLOW) {
        // The entry was not created, or an open database has removed it.
        Err(Errno::NOENT) => return Ok(()),
        about => about?,
    };
    if FileType::from_raw_mode(about.st_mode) == FileType::Directory {
        give_content(parent, name, account)?;
    }
    if about.st_uid != geteuid().as_raw() {
        return Ok(());
    }
    match chownat(
        parent,
        name,
        Some(account.user),
        Some(account.group),
        AtFlags::SYMLINK_NOFOLLOW,
    ) {
        Err(Errno::NOENT) => Ok(()),
        given => given,
    }
}

fn give_content(parent: BorrowedFd<'_>, name: &Path, account: Account) -> rustix::io::Result<()> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let folder = openat(parent, name, flags, Mode::empty())?;
    for entry in Dir::read_from(&folder)? {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if name != b"." && name != b".." {
            hand_over_files(folder.as_fd(), Path::new(OsStr::from_bytes(name)), account)?;
        }
    }
    Ok(())
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    fn account(number: u32) -> Account {
        Account {
            user: Uid::from_raw(number),
            group: Gid::from_raw(number),
        }
    }

    #[test]
    fn files_are_given_to_the_directorys_owner_or_not_written_at_all() {
        let recipient = |owner, us| recipient(Path::new("data"), account(owner), Uid::from_raw(us));
        for (owner, us) in [(0, 0), (7, 7), (0, 7)] {
            assert_eq!(recipient(owner, us).unwrap(), None, "{owner} {us}");
        }
        assert_eq!(recipient(7, 0).unwrap(), Some(account(7)));

        // User 1 exists in every user list, 3999999999 in none.
        for (owner, way) in [
            (1, "runuser -u daemon -- muster"),
            (
                3_999_999_999,
                "setpriv --reuid 3999999999 --regid 3999999999 --clear-groups muster",
            ),
        ] {
            let refused = recipient(owner, 7).unwrap_err().to_string();
            assert!(refused.contains(way), "{refused}");
        }
    }
}
