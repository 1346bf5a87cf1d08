//! Sources of a container's mounts, restricted to what the task's account can access.
//! An engine runs as root, takes paths, and resolves them later. So each path is checked twice with the
//! account's rights: when it is passed to the engine, without links, and right before the container starts.

use std::os::unix::fs::MetadataExt;
use std::{fs, io};

use muster_model::spec::Mount;

use crate::container::rights::unseen;
use crate::container::task::RunError;
use crate::isolation::account::Account;
use crate::task::spec::TaskSpec;

/// Mount sources as the task's account resolved them.
#[derive(Debug)]
pub(super) struct Sources<'a> {
    /// `None` where tasks run as their agent's user: it may access everything.
    account: Option<&'a Account>,
    seen: Vec<Source>,
}

/// Identity of a resolved path.
#[derive(Debug, PartialEq, Eq)]
struct Source {
    /// Path without links.
    path: String,
    /// Device and inode number.
    identity: (u64, u64),
}

impl<'a> Sources<'a> {
    /// Resolves the sources of the mounts, and replaces them by paths without links.
    ///
    /// # Errors
    /// A source that the account cannot access.
    pub(super) fn settle(spec: &'a TaskSpec, mounts: &mut [Mount]) -> Result<Self, RunError> {
        let mut sources = Self {
            account: spec.identity.account.as_ref(),
            seen: Vec::new(),
        };
        let Some(account) = sources.account else {
            return Ok(sources);
        };
        for mount in mounts {
            let found = account
                .acting(|| Source::find(&mount.source))
                .map_err(|error| RunError::Mount(unseen(account, &mount.source, &error)))?;
            mount.source.clone_from(&found.path);
            sources.seen.push(found);
        }
        Ok(sources)
    }

    /// Checks that the sources are unchanged: the owner of a folder can replace what is in it.
    ///
    /// # Errors
    /// A source that changed.
    pub(super) fn check(&self) -> Result<(), RunError> {
        let Some(account) = self.account else {
            return Ok(());
        };
        for source in &self.seen {
            let why = match account.acting(|| Source::find(&source.path)) {
                Ok(found) if found == *source => continue,
                Ok(_) => "replaced by another file".to_owned(),
                Err(error) => error.to_string(),
            };
            return Err(RunError::Mount(format!(
                "CONTAINER_MOUNT_CHANGED: mount `{}` changed after the container was created ({why}), and might \
                 expose what is not accessible to \
                 the account `{}`: mount a path that does not change",
                source.path, account.name
            )));
        }
        Ok(())
    }
}

impl Source {
    fn find(path: &str) -> io::Result<Self> {
        let real = fs::canonicalize(path)?;
        let found = fs::metadata(&real)?;
        Ok(Self {
            // Engines receive it in JSON.
            path: real
                .into_os_string()
                .into_string()
                .map_err(|_| io::Error::other("path is not Unicode"))?,
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
    fn a_replaced_source_is_not_the_same() {
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
