//! Whose a data directory is. Its replica runs as that user, and must be able to use what root writes there.

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
use crate::identity::{DirectoryLock, LOCK_FILE};
use crate::open::{LOG_FOLDER, SNAPSHOT_FOLDER};
use crate::refound::staging::STAGED;
use crate::refound::{RefoundError, disk};

/// The users of this host, one a line: the name first, the number third.
const USERS: &str = "/etc/passwd";

/// Whom a data directory belongs to. When this is dropped, they are given what was made there, however it ended.
pub(super) struct Owner {
    directory: PathBuf,
    /// None: what this process writes is theirs already.
    account: Option<(Uid, Gid)>,
    /// Whether the directory was locked: before, nothing is made there, and all that is in it is somebody else's.
    is_at_work: bool,
}

impl Owner {
    /// Looks whose a directory is; one that is not there yet will be its maker's.
    ///
    /// # Errors
    /// [`RefoundError::Foreign`] if it is somebody's to whom this process may give nothing.
    pub(super) fn of(directory: &Path) -> Result<Self, RefoundError> {
        let account = match fs::metadata(directory) {
            Ok(about) => {
                let owner = (Uid::from_raw(about.uid()), Gid::from_raw(about.gid()));
                recipient(directory, owner, geteuid())?
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(source) => {
                return Err(disk(format!("looking at {}", directory.display()), source).into());
            }
        };
        Ok(Self {
            directory: directory.to_owned(),
            account,
            is_at_work: false,
        })
    }

    /// Locks the directory, by a file that the owner can lock later.
    pub(super) fn lock(&mut self) -> Result<DirectoryLock, OpenError> {
        let lock = DirectoryLock::take(&self.directory)?;
        self.is_at_work = true;
        self.give(&[LOCK_FILE])?;
        Ok(lock)
    }

    /// Gives the owner what this process made of the entries of these names, with all that is in them.
    pub(super) fn give(&self, names: &[&str]) -> Result<(), OpenError> {
        let Some(account) = self.account else {
            return Ok(());
        };
        let given = File::open(&self.directory).and_then(|directory| {
            for name in names {
                give(directory.as_fd(), Path::new(name), account)?;
            }
            Ok(())
        });
        given.map_err(|source| {
            let operation = format!("giving {} to its owner", self.directory.display());
            disk(operation, source)
        })
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        if !self.is_at_work {
            return;
        }
        let given = self.give(&[LOCK_FILE, STAGED, SNAPSHOT_FOLDER, LOG_FOLDER]);
        if let Err(error) = given {
            let cause = std::error::Error::source(&error).map(ToString::to_string);
            tracing::error!(%error, cause, "the replica may not be able to use its data");
        }
    }
}

/// To whom `us` has to give what it writes into a directory of `owner`; to nobody if it is theirs already.
fn recipient(
    directory: &Path,
    owner: (Uid, Gid),
    us: Uid,
) -> Result<Option<(Uid, Gid)>, RefoundError> {
    // What is root's is used by others as its group allows. A volume of Kubernetes is so: its replica's user writes for itself.
    if owner.0 == us || owner.0.is_root() {
        return Ok(None);
    }
    if us.is_root() {
        return Ok(Some(owner));
    }
    let (user, group) = owner;
    let (owner, as_owner) = match name_of(user) {
        Some(name) => (name.clone(), format!("runuser -u {name} --")),
        // `runuser` knows names only.
        None => (
            user.to_string(),
            format!("setpriv --reuid {user} --regid {group} --clear-groups"),
        ),
    };
    Err(RefoundError::Foreign {
        directory: directory.to_owned(),
        owner,
        as_owner,
    })
}

/// The name of a user, if this host's own list has one.
fn name_of(user: Uid) -> Option<String> {
    let number = user.to_string();
    let users = fs::read_to_string(USERS).unwrap_or_default();
    users.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)? == number).then(|| name.to_owned())
    })
}

/// Gives away what is ours of a file, or of a folder with all that is in it. No link is followed: the owner may have put it there.
fn give(parent: BorrowedFd<'_>, name: &Path, account: (Uid, Gid)) -> rustix::io::Result<()> {
    let about = match statat(parent, name, AtFlags::SYMLINK_NOFOLLOW) {
        // It was not made; or a database that is open has removed it.
        Err(Errno::NOENT) => return Ok(()),
        about => about?,
    };
    if FileType::from_raw_mode(about.st_mode) == FileType::Directory {
        give_content(parent, name, account)?;
    }
    if about.st_uid != geteuid().as_raw() {
        return Ok(());
    }
    let (user, group) = account;
    match chownat(
        parent,
        name,
        Some(user),
        Some(group),
        AtFlags::SYMLINK_NOFOLLOW,
    ) {
        Err(Errno::NOENT) => Ok(()),
        given => given,
    }
}

fn give_content(
    parent: BorrowedFd<'_>,
    name: &Path,
    account: (Uid, Gid),
) -> rustix::io::Result<()> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let folder = openat(parent, name, flags, Mode::empty())?;
    for entry in Dir::read_from(&folder)? {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if name != b"." && name != b".." {
            give(folder.as_fd(), Path::new(OsStr::from_bytes(name)), account)?;
        }
    }
    Ok(())
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    fn account(number: u32) -> (Uid, Gid) {
        (Uid::from_raw(number), Gid::from_raw(number))
    }

    #[test]
    fn what_is_written_is_given_to_the_owner_or_not_written_at_all() {
        let recipient = |owner, us| recipient(Path::new("data"), account(owner), Uid::from_raw(us));
        for (owner, us) in [(0, 0), (7, 7), (0, 7)] {
            assert_eq!(recipient(owner, us).unwrap(), None, "{owner} {us}");
        }
        assert_eq!(recipient(7, 0).unwrap(), Some(account(7)));

        // The first is in every list of users, the second in none.
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
