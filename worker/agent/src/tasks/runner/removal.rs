//! Removal of checkpoint folders that are not kept any more: never outside their unit's checkpoint
//! directory, never a kept one, and never partially: a folder is renamed first, so that its remains are not
//! taken for a checkpoint.

use std::ffi::OsString;
use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Component, Path, PathBuf};

use muster_supervisor::acting_as_owner_of;

/// Prefix of the name of a folder that is being removed.
const REMOVING_PREFIX: &str = ".removing-";

/// Reasons why a checkpoint was not removed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RemovalError {
    /// It may not be removed.
    #[error("it {0}")]
    Refused(&'static str),
    /// The file system failed.
    #[error("{operation} failed: {source}")]
    System {
        /// The failed operation.
        operation: &'static str,
        /// The cause.
        source: io::Error,
    },
}

/// Removes a checkpoint below its unit's directory; true if it existed. One that is gone already is not an
/// error.
///
/// Runs with the file permissions of the task that owns the directory: even if the task changes something
/// meanwhile, only what it could remove itself is removed.
pub(crate) fn remove(directory: &Path, path: &Path, kept: &[String]) -> Result<bool, RemovalError> {
    let mut removed = Ok(false);
    let acted = acting_as_owner_of(directory, || {
        removed = remove_as_owner(directory, path, kept);
        Ok(())
    });
    found(acted, "taking its owner's permissions").and(removed)
}

fn remove_as_owner(directory: &Path, path: &Path, kept: &[String]) -> Result<bool, RemovalError> {
    let is_plain = |part: Component<'_>| !matches!(part, Component::ParentDir | Component::CurDir);
    if !path.is_absolute() || !path.components().all(is_plain) {
        return Err(RemovalError::Refused("is not a plain absolute path"));
    }
    let mut kept = kept.iter().map(Path::new);
    if kept.any(|kept| kept.starts_with(path) || path.starts_with(kept)) {
        return Err(RemovalError::Refused(
            "contains a kept checkpoint, or is inside one",
        ));
    }
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(RemovalError::Refused("is not the folder of a checkpoint"));
    };
    let Some(parent) = found(parent.canonicalize(), "resolving its parent")? else {
        return Ok(false);
    };
    let Some(directory) = found(directory.canonicalize(), "resolving the directory")? else {
        return Ok(false);
    };
    // Links in the path must not lead elsewhere.
    if !parent.starts_with(&directory) {
        return Err(RemovalError::Refused(
            "is outside of its unit's checkpoint directory",
        ));
    }
    let doomed = removal_name(&parent, name.to_owned());
    discard(&doomed)?;
    let renamed = fs::rename(parent.join(name), &doomed);
    if found(renamed, "renaming it")?.is_none() {
        return Ok(false);
    }
    discard(&doomed)?;
    Ok(true)
}

fn removal_name(parent: &Path, name: OsString) -> PathBuf {
    let mut hidden = OsString::from(REMOVING_PREFIX);
    hidden.push(name);
    parent.join(hidden)
}

/// Removes a folder, a file or a link (not its target), if it exists.
fn discard(path: &Path) -> Result<(), RemovalError> {
    let Some(metadata) = found(path.symlink_metadata(), "inspecting it")? else {
        return Ok(());
    };
    let removed = match metadata.is_dir() {
        true => fs::remove_dir_all(path),
        false => fs::remove_file(path),
    };
    found(removed, "removing it").map(drop)
}

/// None if the file does not exist.
fn found<T>(result: io::Result<T>, operation: &'static str) -> Result<Option<T>, RemovalError> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(source) => Err(RemovalError::System { operation, source }),
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a failed test should panic")]
mod tests {
    use super::*;

    /// A unit's directory with three checkpoints.
    fn unit(home: &Path) -> PathBuf {
        let directory = home.join("checkpoints/7/0");
        for step in ["step_1", "step_2", "step_3"] {
            fs::create_dir_all(directory.join(step)).unwrap();
            fs::write(directory.join(step).join("weights"), step).unwrap();
        }
        directory
    }

    fn text(path: PathBuf) -> String {
        path.to_str().unwrap().to_owned()
    }

    #[test]
    fn a_checkpoint_is_removed_once_and_its_neighbours_stay() {
        let home = tempfile::tempdir().unwrap();
        let directory = unit(home.path());
        let kept = [
            text(directory.join("step_2")),
            text(directory.join("step_3")),
        ];
        let first = directory.join("step_1");
        assert!(remove(&directory, &first, &kept).unwrap());
        assert!(!remove(&directory, &first, &kept).unwrap());
        let left = fs::read_dir(&directory).unwrap().count();
        assert_eq!(left, 2);
    }

    #[test]
    fn a_removal_that_was_cut_short_is_finished() {
        let home = tempfile::tempdir().unwrap();
        let directory = unit(home.path());
        fs::create_dir_all(directory.join(".removing-step_1/rest")).unwrap();
        assert!(remove(&directory, &directory.join("step_1"), &[]).unwrap());
        assert!(!directory.join(".removing-step_1").exists());
    }

    #[test]
    fn kept_folders_and_folders_elsewhere_are_not_removed() {
        let home = tempfile::tempdir().unwrap();
        let directory = unit(home.path());
        let other = home.path().join("checkpoints/8/0/step_1");
        fs::create_dir_all(&other).unwrap();
        std::os::unix::fs::symlink(other.parent().unwrap(), directory.join("link")).unwrap();
        let kept = [text(directory.join("step_3"))];
        let refused = [
            directory.clone(),
            directory.join("step_3"),
            directory.join("step_3/weights"),
            directory.join("../0/step_1"),
            directory.join("link/step_1"),
            other.clone(),
            PathBuf::from("step_1"),
            PathBuf::from("/"),
        ];
        for path in refused {
            let outcome = remove(&directory, &path, &kept);
            assert!(
                matches!(outcome, Err(RemovalError::Refused(_))),
                "{}: {outcome:?}",
                path.display()
            );
        }
        assert!(other.exists() && directory.join("step_1").exists());
        assert!(directory.join("step_3/weights").exists());
    }

    #[test]
    fn a_link_is_removed_and_its_target_stays() {
        let home = tempfile::tempdir().unwrap();
        let directory = unit(home.path());
        let other = home.path().join("elsewhere");
        fs::create_dir(&other).unwrap();
        std::os::unix::fs::symlink(&other, directory.join("step_0")).unwrap();
        assert!(remove(&directory, &directory.join("step_0"), &[]).unwrap());
        assert!(other.exists());
    }
}
