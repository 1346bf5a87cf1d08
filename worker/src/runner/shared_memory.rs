//! Where the attempts of this host have shared memory of their own.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use muster_core::desired::TaskAssignment;
use muster_supervisor::SharedMemoryPlace;
use muster_supervisor::shared_memory::{is_possible, remove_unless_used};

/// Where programs look for shared memory.
const SHARED_MEMORY: &str = "/dev/shm";

/// The folders of a worker's attempts.
#[derive(Clone, Debug)]
pub(crate) struct SharedMemoryHost {
    /// They lie in here.
    folder: PathBuf,
    /// What lies in `/dev/shm` and tasks must see all the same.
    visible: Option<PathBuf>,
}

impl SharedMemoryHost {
    /// The folders below `folder`, which lies in memory below `run`; none if this worker may not give them to tasks.
    pub(crate) fn find(run: &Path, folder: PathBuf) -> Option<Self> {
        if !is_possible() {
            return None;
        }
        // It may be a link on old systems.
        let shared = fs::canonicalize(SHARED_MEMORY).ok()?;
        let run = fs::canonicalize(run).ok()?;
        let visible = match run.strip_prefix(&shared) {
            // Tasks could not see their own directories: none of those may lie in there directly.
            Ok(below) => Some(shared.join(below.iter().next()?)),
            Err(_) => None,
        };
        Some(Self { folder, visible })
    }

    /// Where a task's attempt has its own; none for one that uses the host's: it has no GPU and is no member of a gang, or its
    /// engine sees to it.
    pub(crate) fn place(&self, assignment: &TaskAssignment) -> Option<SharedMemoryPlace> {
        let is_meant = !assignment.gpus.is_empty() || assignment.rank.world_size > 1;
        let is_process = assignment.execution.container.is_none();
        let name = name_of(assignment);
        (is_meant && is_process).then(|| SharedMemoryPlace {
            folder: self.folder.join(name),
            visible: self.visible.clone(),
        })
    }

    /// Removes what attempts left that no supervisor looks after.
    ///
    /// # Errors
    /// What the file system says.
    pub(crate) fn sweep(&self) -> io::Result<()> {
        let entries = match fs::read_dir(&self.folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            entries => entries?,
        };
        let mut folders = BTreeSet::new();
        for entry in entries {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                folders.insert(entry.path());
            }
        }
        folders.iter().try_for_each(|it| remove_unless_used(it))
    }
}

/// The attempt of a task's unit. Members that came later have numbers of their own in it, and belong to it all the same.
fn name_of(assignment: &TaskAssignment) -> String {
    let TaskAssignment {
        key, unit, attempt, ..
    } = assignment;
    format!("{}-{unit}-{attempt}", key.job)
}
