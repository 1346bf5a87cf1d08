//! What a container's mounts show of the host, held to what the task's account may come to.
//!
//! An engine is root, takes paths, and goes there a while after they were looked at. So each is looked at twice, with the account's
//! rights: when the engine is told of it, by a path without links, and when it is about to be shown.

use std::os::unix::fs::MetadataExt;
use std::{fs, io};

use muster_model::spec::Mount;

use crate::account::Account;
use crate::container::rights::unseen;
use crate::container::task::RunError;
use crate::spec::TaskSpec;

/// What the account of a task came to, by its container's mounts.
#[derive(Debug)]
pub(super) struct Sources<'a> {
    /// None where tasks run as their agent: it may come to all.
    account: Option<&'a Account>,
    seen: Vec<Source>,
}

/// What lies at a path.
#[derive(Debug, PartialEq, Eq)]
struct Source {
    /// Without links.
    path: String,
    /// The number of its file system, and its own number there.
    identity: (u64, u64),
}

impl<'a> Sources<'a> {
    /// Looks at what the mounts are to show, and has them name it without links.
    ///
    /// # Errors
    /// What the account may not come to.
    pub(super) fn settle(spec: &'a TaskSpec, mounts: &mut [Mount]) -> Result<Self, RunError> {
        let mut sources = Self {
            account: spec.identity.account.as_ref(),
            seen: Vec::new(),
        };
        let Some(account) = sources.account else {
            return Ok(sources);
        };
        for mount in mounts {
            let found = account.acting(|| Source::find(&mount.source));
            let found =
                found.map_err(|error| RunError::Mount(unseen(account, &mount.source, &error)))?;
            mount.source.clone_from(&found.path);
            sources.seen.push(found);
        }
        Ok(sources)
    }

    /// Sees that it is still the same: whoever owns a folder can put something else in the place of what is in it.
    ///
    /// # Errors
    /// What is not.
    pub(super) fn check(&self) -> Result<(), RunError> {
        let Some(account) = self.account else {
            return Ok(());
        };
        for source in &self.seen {
            let why = match account.acting(|| Source::find(&source.path)) {
                Ok(found) if found == *source => continue,
                Ok(_) => "something else is there now".to_owned(),
                Err(error) => error.to_string(),
            };
            return Err(RunError::Mount(format!(
                "CONTAINER_MOUNT_CHANGED: its mount `{}` is not what it was before the container was made ({why}), and might show what is not open to \
                 the account `{}`: mount what stays in its place",
                source.path, account.name
            )));
        }
        Ok(())
    }
}

impl Source {
    fn find(path: &str) -> io::Result<Self> {
        let path = fs::canonicalize(path)?;
        let found = fs::metadata(&path)?;
        let path = path.into_os_string().into_string();
        // Engines are told of it in JSON.
        let path = path.map_err(|_| io::Error::other("its path is no Unicode"))?;
        Ok(Self {
            path,
            identity: (found.dev(), found.ino()),
        })
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a failed test should panic")]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn what_is_replaced_by_its_like_or_by_a_link_is_not_the_same() {
        let home = tempfile::tempdir().unwrap();
        let home = home.path().canonicalize().unwrap();
        let (folder, link) = (home.join("folder"), home.join("link"));
        fs::create_dir(&folder).unwrap();
        symlink(&folder, &link).unwrap();
        let find = |path: &std::path::Path| Source::find(path.to_str().unwrap()).unwrap();
        let first = find(&link);
        assert_eq!(first.path, folder.to_str().unwrap());
        assert_eq!(first, find(&folder));
        let aside = home.join("aside");
        fs::rename(&folder, &aside).unwrap();
        fs::create_dir(&folder).unwrap();
        assert_ne!(first, find(&folder));
        fs::remove_dir(&folder).unwrap();
        symlink(&aside, &folder).unwrap();
        assert_ne!(first, find(&folder));
    }
}
