//! Identity of a worker: one process per data directory, with a persistent id.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use muster_model::ids::RequestId;
use muster_supervisor::{files, process};
use serde::{Deserialize, Serialize};

use crate::limits::DATA_DIRECTORY_BYTES_MAX;

/// Version of `identity.json`.
const FORMAT: u32 = 1;
/// Name of the identity file.
const IDENTITY: &str = "identity.json";

/// Reasons why a data directory cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum DataDirectoryError {
    /// The path is too long for sockets below it.
    #[error(
        "data directory `{}` has a path of {found} bytes; sockets below it allow {DATA_DIRECTORY_BYTES_MAX} \
         (DATA_DIRECTORY_BYTES_MAX)",
        path.display()
    )]
    TooLong {
        /// The directory.
        path: PathBuf,
        /// Length of its path in bytes.
        found: usize,
    },
    /// Another worker runs on it.
    #[error("data directory `{}` is in use by another worker process", path.display())]
    InUse {
        /// The directory.
        path: PathBuf,
    },
    /// It was written by a program of another version.
    #[error("data directory `{}` has format {found}; this program knows format {FORMAT}", path.display())]
    Format {
        /// The directory.
        path: PathBuf,
        /// Its format.
        found: u32,
    },
    /// The file system failed.
    #[error("{operation} data directory `{}` failed", path.display())]
    Disk {
        /// The failed operation.
        operation: &'static str,
        /// The directory.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
}

/// A data directory that this process holds exclusively.
#[derive(Debug)]
pub struct DataDirectory {
    path: PathBuf,
    identity: Identity,
    /// The kernel's boot id.
    boot_id: String,
    rebooted: bool,
    /// The directory's inode.
    inode: u64,
    /// Unlocked when the process ends, however it ends.
    _lock: File,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Identity {
    format: u32,
    worker_id: RequestId,
    incarnation: u64,
    /// The kernel's boot id at the last start that called `settle`; empty if it was written by an agent
    /// that did not record it.
    #[serde(default)]
    boot_id: String,
}

impl DataDirectory {
    /// Locks a directory, creates it if necessary, and counts this start, in the given boot of the kernel.
    ///
    /// # Errors
    /// See [`DataDirectoryError`].
    pub fn lock(path: &Path, boot_id: &str) -> Result<Self, DataDirectoryError> {
        fs::create_dir_all(path).map_err(disk("creating", path))?;
        let path = path.canonicalize().map_err(disk("resolving", path))?;
        let found = path.as_os_str().len();
        if found > DATA_DIRECTORY_BYTES_MAX {
            return Err(DataDirectoryError::TooLong { path, found });
        }
        let lock = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .open(path.join("lock"))
            .map_err(disk("locking", &path))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(DataDirectoryError::InUse { path }),
            Err(TryLockError::Error(error)) => return Err(disk("locking", &path)(error)),
        }
        fs::create_dir_all(path.join("logs")).map_err(disk("creating", &path))?;
        let inode = path.metadata().map_err(disk("reading", &path))?.ino();
        let before = read_identity(&path)?;
        let identity = next_incarnation(before, boot_id);
        write_identity(&path, &identity)?;
        let rebooted = identity.boot_id != boot_id;
        Ok(Self {
            path,
            identity,
            boot_id: boot_id.to_owned(),
            rebooted,
            inode,
            _lock: lock,
        })
    }

    /// Its absolute path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Random id, assigned at its creation.
    #[must_use]
    pub const fn worker_id(&self) -> RequestId {
        self.identity.worker_id
    }

    /// Marks resources outside the directory that belong to it. A copy of the directory has the same id but
    /// another mark, so it never removes resources of the original.
    #[must_use]
    pub fn mark(&self) -> String {
        format!("{}-{}", self.worker_id(), self.inode)
    }

    /// Number of agent starts on it, this one included.
    #[must_use]
    pub const fn incarnation(&self) -> u64 {
        self.identity.incarnation
    }

    /// Whether the kernel was rebooted since the last settled start: then all earlier processes are gone,
    /// and their process ids may be reused.
    #[must_use]
    pub const fn rebooted(&self) -> bool {
        self.rebooted
    }

    /// Records that the reboot was handled: later starts in this boot do not report [`Self::rebooted`] any
    /// more. Call it before a task is started, else the next start takes that task for one of an earlier
    /// boot.
    ///
    /// # Errors
    /// See [`DataDirectoryError`].
    pub fn mark_reboot_handled(&self) -> Result<(), DataDirectoryError> {
        if !self.rebooted {
            return Ok(());
        }
        let identity = Identity {
            boot_id: self.boot_id.clone(),
            ..self.identity.clone()
        };
        write_identity(&self.path, &identity)
    }

    /// Path of the task directories, once the agent has set it up.
    #[must_use]
    pub fn tasks(&self) -> PathBuf {
        self.path.join("tasks")
    }

    /// Path of the logs.
    #[must_use]
    pub fn logs(&self) -> PathBuf {
        self.path.join("logs")
    }

    /// Path of the GPU faults that are reported only once.
    #[must_use]
    pub fn gpu_faults(&self) -> PathBuf {
        self.path.join("gpu-faults.json")
    }

    /// Path of the known replicas.
    #[must_use]
    pub fn replicas(&self) -> PathBuf {
        self.path.join("replicas.json")
    }

    /// Path of the journal.
    #[must_use]
    pub fn journal(&self) -> PathBuf {
        self.path.join("journal")
    }
}

fn read_identity(path: &Path) -> Result<Option<Identity>, DataDirectoryError> {
    let before: Option<Identity> =
        files::read_json(&path.join(IDENTITY)).map_err(disk("reading", path))?;
    match before.as_ref().map(|known| known.format) {
        Some(found) if found != FORMAT => {
            let path = path.to_owned();
            Err(DataDirectoryError::Format { path, found })
        }
        _ => Ok(before),
    }
}

/// The identity from this start on. Keeps the earlier boot id: a start that fails must not hide the reboot.
fn next_incarnation(before: Option<Identity>, boot_id: &str) -> Identity {
    let Some(before) = before else {
        return Identity {
            format: FORMAT,
            worker_id: RequestId(uuid::Uuid::new_v4().as_u128()),
            incarnation: 1,
            boot_id: boot_id.to_owned(),
        };
    };
    let is_known = !before.boot_id.is_empty();
    Identity {
        incarnation: before.incarnation + 1,
        boot_id: if is_known {
            before.boot_id
        } else {
            boot_id.to_owned()
        },
        ..before
    }
}

fn write_identity(path: &Path, identity: &Identity) -> Result<(), DataDirectoryError> {
    let bytes = files::json_bytes(identity).map_err(disk("writing", path))?;
    files::replace_durably(&path.join(IDENTITY), &bytes).map_err(disk("writing", path))
}

fn disk(operation: &'static str, path: &Path) -> impl FnOnce(io::Error) -> DataDirectoryError {
    let path = path.to_owned();
    move |source| DataDirectoryError::Disk {
        operation,
        path,
        source,
    }
}

/// Resources of the machine for tasks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Machine {
    /// Its name.
    pub name: String,
    /// The kernel's boot id.
    pub boot_id: String,
    /// Thousandths of CPUs.
    pub cpus_milli: u32,
    /// Memory in MiB.
    pub memory_mib: u64,
}

impl Machine {
    /// Queries the operating system.
    ///
    /// # Errors
    /// Of the operating system.
    pub fn inspect() -> io::Result<Self> {
        let cpus = std::thread::available_parallelism()?.get();
        let memory = fs::read_to_string("/proc/meminfo")?
            .lines()
            .find_map(|line| {
                line.strip_prefix("MemTotal:")?
                    .trim()
                    .strip_suffix(" kB")?
                    .parse()
                    .ok()
            })
            .unwrap_or(0u64);
        let name = fs::read_to_string("/proc/sys/kernel/hostname")?;
        Ok(Self {
            name: name.trim().to_owned(),
            boot_id: process::boot_id()?,
            cpus_milli: u32::try_from(cpus.saturating_mul(1_000)).unwrap_or(u32::MAX),
            memory_mib: memory / 1_024,
        })
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a failed test should panic")]
mod tests {
    use super::*;

    #[test]
    fn identity_stays_and_incarnations_count() {
        let directory = tempfile::tempdir().unwrap();
        let first = DataDirectory::lock(directory.path(), "boot").unwrap();
        let (id, incarnation) = (first.worker_id(), first.incarnation());
        drop(first);
        let second = DataDirectory::lock(directory.path(), "boot").unwrap();
        assert_eq!(
            (second.worker_id(), second.incarnation()),
            (id, incarnation + 1)
        );
    }

    #[test]
    fn another_boot_is_distinguished_from_another_start() {
        let directory = tempfile::tempdir().unwrap();
        let rebooted = |boot_id| {
            let taken = DataDirectory::lock(directory.path(), boot_id).unwrap();
            taken.mark_reboot_handled().unwrap();
            taken.rebooted()
        };
        assert!(!rebooted("first") && !rebooted("first"));
        assert!(rebooted("second") && !rebooted("second"));
        // Earlier agents did not record the boot id.
        let identity = directory.path().join(IDENTITY);
        let text = std::fs::read_to_string(&identity).unwrap();
        std::fs::write(&identity, text.replace(",\"boot_id\":\"second\"", "")).unwrap();
        assert!(!rebooted("third"));
    }

    #[test]
    fn another_boot_is_reported_until_a_start_has_handled_it() {
        let directory = tempfile::tempdir().unwrap();
        let take = |boot_id| DataDirectory::lock(directory.path(), boot_id).unwrap();
        take("first").mark_reboot_handled().unwrap();
        // A start that fails.
        assert!(take("second").rebooted());
        let taken = take("second");
        assert!(taken.rebooted());
        taken.mark_reboot_handled().unwrap();
        assert_eq!(taken.incarnation(), 3);
        drop(taken);
        let next = take("second");
        assert!(!next.rebooted() && next.incarnation() == 4);
    }

    #[test]
    fn a_second_holder_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let _first = DataDirectory::lock(directory.path(), "boot").unwrap();
        let error = DataDirectory::lock(directory.path(), "boot").unwrap_err();
        assert!(matches!(error, DataDirectoryError::InUse { .. }), "{error}");
    }

    #[test]
    fn a_path_too_long_for_sockets_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let error =
            DataDirectory::lock(&directory.path().join("x".repeat(60)), "boot").unwrap_err();
        assert!(
            error.to_string().contains("DATA_DIRECTORY_BYTES_MAX"),
            "{error}"
        );
    }
}
