//! Private shared memory of the attempts of this host.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf, absolute};
use std::{fs, io};

use muster_model::desired::TaskAssignment;
use muster_supervisor::SharedMemoryLocation;
use muster_supervisor::isolation::shared_memory::is_possible;

/// Path of shared memory for programs.
const SHARED_MEMORY: &str = "/dev/shm";

/// The folders of a worker's attempts.
#[derive(Clone, Debug)]
pub(crate) struct SharedMemoryHost {
    /// Their parent.
    folder: PathBuf,
    /// Entry of `/dev/shm` that must stay visible to tasks.
    visible: Option<PathBuf>,
}

/// Reasons why tasks of this host share its `/dev/shm`.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NotPrivate {
    /// There is no folder in memory for private segments.
    #[error("the task directories are not in memory")]
    OnDisk,
    /// A privilege is missing.
    #[error("this worker may not create namespaces and mounts")]
    MayNotMount,
    /// A private mount would hide the whole of `/dev/shm`.
    #[error("tasks need `{}`, which is /dev/shm itself and not a folder in it", .0.display())]
    Itself(PathBuf),
    /// Only one folder of the host's can stay visible.
    #[error("tasks need more than one folder of /dev/shm: {0}")]
    Several(String),
    /// It is unknown whether a private mount would hide a path.
    #[error("resolving `{}` failed: {source}", path.display())]
    Unresolved {
        /// The path that tasks need.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
}

impl SharedMemoryHost {
    /// Plans folders below `folder`, which is in memory, for tasks that need all of `places`.
    ///
    /// # Errors
    /// The reason why tasks get no private shared memory.
    pub(crate) fn find(folder: Option<PathBuf>, places: &[&Path]) -> Result<Self, NotPrivate> {
        let folder = folder.ok_or(NotPrivate::OnDisk)?;
        if !is_possible() {
            return Err(NotPrivate::MayNotMount);
        }
        // It may be a link on old systems.
        let shared = resolved(Path::new(SHARED_MEMORY))?;
        let visible = folder_with(&shared, places)?;
        Ok(Self { folder, visible })
    }

    /// The private segment of a task's attempt; none if it uses the host's: it has no GPU and is no member
    /// of a gang, or its container engine provides one.
    pub(crate) fn place(&self, assignment: &TaskAssignment) -> Option<SharedMemoryLocation> {
        let is_meant = !assignment.gpus.is_empty() || assignment.rank.world_size > 1;
        let is_process = assignment.execution.container.is_none();
        let name = name_of(assignment);
        (is_meant && is_process).then(|| SharedMemoryLocation {
            folder: self.folder.join(name),
            visible: self.visible.clone(),
        })
    }
}

/// The folder in `shared` that contains all those of the places that are in `shared`; none if none is.
fn folder_with(shared: &Path, places: &[&Path]) -> Result<Option<PathBuf>, NotPrivate> {
    let mut folders = BTreeSet::new();
    for place in places {
        let place = resolved(place)?;
        if let Ok(below) = place.strip_prefix(shared) {
            let Some(name) = below.iter().next() else {
                return Err(NotPrivate::Itself(place));
            };
            folders.insert(shared.join(name));
        }
    }
    if folders.len() > 1 {
        let names = folders.iter().map(|folder| folder.display().to_string());
        return Err(NotPrivate::Several(names.collect::<Vec<_>>().join(", ")));
    }
    Ok(folders.pop_first())
}

/// Resolves all links of a path. What does not exist yet will be created below its resolved parent.
fn resolved(path: &Path) -> Result<PathBuf, NotPrivate> {
    let found = absolute(path).and_then(|path| resolve(&path));
    found.map_err(|source| NotPrivate::Unresolved {
        path: path.to_owned(),
        source,
    })
}

fn resolve(path: &Path) -> io::Result<PathBuf> {
    match (fs::canonicalize(path), path.parent(), path.file_name()) {
        (Err(error), Some(parent), Some(name)) if error.kind() == io::ErrorKind::NotFound => {
            Ok(resolve(parent)?.join(name))
        }
        (found, ..) => found,
    }
}

/// The attempt of a task's unit. Members that joined later have epochs of their own, but belong to the same
/// attempt.
fn name_of(assignment: &TaskAssignment) -> String {
    let TaskAssignment {
        key, unit, attempt, ..
    } = assignment;
    format!("{}-{unit}-{attempt}", key.job)
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a failed test should panic")]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn paths_for_tasks_are_found_behind_links_and_before_creation() {
        let home = tempfile::tempdir().unwrap();
        let home = home.path().canonicalize().unwrap();
        let (shared, disk) = (home.join("shm"), home.join("disk"));
        fs::create_dir_all(shared.join("old-run/tasks")).unwrap();
        fs::create_dir(&disk).unwrap();
        symlink(shared.join("old-run/tasks"), disk.join("tasks")).unwrap();
        let found = |places: &[&Path]| folder_with(&shared, places);
        assert_eq!(found(&[&disk, &disk.join("checkpoints")]).unwrap(), None);
        let tasks = disk.join("tasks");
        let old = Some(shared.join("old-run"));
        assert_eq!(found(&[&disk, &tasks]).unwrap(), old);
        assert_eq!(found(&[&tasks, &shared.join("old-run/data")]).unwrap(), old);
        // The settings name another folder than the one that contains the tasks.
        let several = found(&[&tasks, &shared.join("new-run/run")]).unwrap_err();
        let text = several.to_string();
        assert!(
            text.contains("old-run") && text.contains("new-run"),
            "{text}"
        );
        let itself = found(&[&tasks, &shared]).unwrap_err();
        assert!(matches!(itself, NotPrivate::Itself(_)), "{itself}");
    }

    #[test]
    fn task_directories_on_a_disk_are_distinguished_from_a_missing_right() {
        let refused = SharedMemoryHost::find(None, &[]).unwrap_err();
        assert!(matches!(refused, NotPrivate::OnDisk), "{refused}");
    }
}
