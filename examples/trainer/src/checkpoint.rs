//! Checkpoint folder with the file protocol of the task environment: write `step_N.tmp/`, fsync, rename to
//! `step_N/`, write `_COMMITTED`, fsync. A crash at any point leaves either a committed checkpoint or none.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use crate::state::{StateError, TrainingState};

/// The file that holds the state.
const STATE_FILE: &str = "state.bin";
/// The file whose presence makes a checkpoint valid.
const COMMITTED_FILE: &str = "_COMMITTED";

/// Error while writing or reading a checkpoint.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CheckpointError {
    /// An I/O error.
    #[error("{operation} {}", path.display())]
    Io {
        /// The failed operation.
        operation: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The error of the system.
        #[source]
        source: io::Error,
    },
    /// The checkpoint was never completed.
    #[error("checkpoint {} has no {COMMITTED_FILE} file: it was never completed", .0.display())]
    Uncommitted(PathBuf),
    /// The file does not contain a valid state.
    #[error("checkpoint file {} is unusable", path.display())]
    Unusable {
        /// The file.
        path: PathBuf,
        /// The defect.
        #[source]
        source: StateError,
    },
    /// The checkpoint belongs to another run.
    #[error("checkpoint {} has {what} {found}, this run has {wanted}", path.display())]
    OtherRun {
        /// The checkpoint.
        path: PathBuf,
        /// The parameter that differs.
        what: &'static str,
        /// Its value in the checkpoint.
        found: u64,
        /// Its value in this run.
        wanted: u64,
    },
}

impl CheckpointError {
    /// Whether a new attempt with the same checkpoint would get the same error.
    pub(crate) fn is_permanent(&self) -> bool {
        !matches!(self, Self::Io { .. })
    }
}

/// A completely written checkpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Committed {
    /// Number of completed steps.
    pub(crate) step: u64,
    /// Its folder.
    pub(crate) path: PathBuf,
    /// Size of the state in bytes.
    pub(crate) bytes: u64,
    /// `crc32:` and eight hexadecimal digits, over the state file.
    pub(crate) digest: String,
}

/// The folder of a job's checkpoints.
#[derive(Debug)]
pub(crate) struct CheckpointFolder {
    root: PathBuf,
}

impl CheckpointFolder {
    /// Uses `root`, which is created if missing.
    pub(crate) fn open(root: &Path) -> Result<Self, CheckpointError> {
        fs::create_dir_all(root).map_err(io_error("create", root))?;
        let root = fs::canonicalize(root).map_err(io_error("resolve", root))?;
        Ok(Self { root })
    }

    /// Final folder of the checkpoint of `step`.
    pub(crate) fn path_of(&self, step: u64) -> PathBuf {
        self.root.join(format!("step_{step}"))
    }

    /// Writes `state` durably and commits it.
    pub(crate) fn write(&self, state: &TrainingState) -> Result<Committed, CheckpointError> {
        let path = self.path_of(state.step);
        if let Ok(present) = read(&path)
            && present.weights == state.weights
        {
            // An earlier attempt got as far, and another process may be about to resume from it: leave it
            // untouched.
            return Ok(committed(path, &present));
        }
        let bytes = state.encode();
        let unfinished = self.root.join(format!("step_{}.tmp", state.step));
        // Left by an attempt that died here, or that had other weights and so was another run.
        remove(&unfinished)?;
        remove(&path)?;
        fs::create_dir(&unfinished).map_err(io_error("create", &unfinished))?;
        write_durably(&unfinished.join(STATE_FILE), &bytes)?;
        sync_folder(&unfinished)?;
        fs::rename(&unfinished, &path).map_err(io_error("rename to", &path))?;
        let committed = committed(path, state);
        write_durably(
            &committed.path.join(COMMITTED_FILE),
            committed.digest.as_bytes(),
        )?;
        sync_folder(&committed.path)?;
        sync_folder(&self.root)?;
        Ok(committed)
    }

    /// Removes the oldest committed checkpoints up to `newest` until `kept` are left.
    pub(crate) fn prune(&self, newest: u64, kept: u64) -> Result<(), CheckpointError> {
        let mut steps = steps_in(&self.root)?;
        steps.retain(|step| *step <= newest);
        for step in steps.into_iter().rev().skip(kept as usize) {
            remove(&self.path_of(step))?;
        }
        Ok(())
    }
}

/// A checkpoint to resume from.
#[derive(Debug)]
pub(crate) struct LoadedCheckpoint {
    /// Its folder.
    pub(crate) path: PathBuf,
    /// Its state.
    pub(crate) state: TrainingState,
    /// Reason why another checkpoint than the named one is used, if the named one exists and is unusable.
    pub(crate) fallback_reason: Option<CheckpointError>,
}

/// Reads the checkpoint in `path`; if it is gone, the newest newer one in the same folder; if it is
/// damaged, the newest older one in the same folder.
///
/// The scheduler learns of a checkpoint with the worker's next heartbeat. A host that was lost before may
/// have committed newer ones, and have removed the one that the scheduler names.
pub(crate) fn read_newest_from(path: &Path) -> Result<LoadedCheckpoint, CheckpointError> {
    let found = |path, state, fallback_reason| LoadedCheckpoint {
        path,
        state,
        fallback_reason,
    };
    if let Some((newer, state)) = newer_than_missing(path)? {
        return Ok(found(newer, state, None));
    }
    match read(path) {
        Ok(state) => Ok(found(path.to_owned(), state, None)),
        Err(damage @ CheckpointError::Unusable { .. }) => match older_than(path)? {
            Some((older, state)) => Ok(found(older, state, Some(damage))),
            None => Err(damage),
        },
        Err(error) => Err(error),
    }
}

/// The newest complete checkpoint that is newer than `path`, if that is missing.
fn newer_than_missing(path: &Path) -> Result<Option<(PathBuf, TrainingState)>, CheckpointError> {
    let named = path.file_name().and_then(step_of);
    let (Some(root), Some(named)) = (path.parent(), named) else {
        return Ok(None);
    };
    if !is_missing(path) || is_missing(root) {
        return Ok(None);
    }
    for step in steps_in(root)?
        .into_iter()
        .rev()
        .filter(|step| *step > named)
    {
        let newer = root.join(format!("step_{step}"));
        match read(&newer) {
            Err(CheckpointError::Uncommitted(_)) => {}
            read => return read.map(|state| Some((newer, state))),
        }
    }
    Ok(None)
}

/// The newest checkpoint older than `path` that can be used.
fn older_than(path: &Path) -> Result<Option<(PathBuf, TrainingState)>, CheckpointError> {
    let named = path.file_name().and_then(step_of);
    let (Some(root), Some(named)) = (path.parent(), named) else {
        return Ok(None);
    };
    let older = steps_in(root)?
        .into_iter()
        .rev()
        .filter(|step| *step < named);
    for step in older {
        let path = root.join(format!("step_{step}"));
        match read(&path) {
            Err(error) if error.is_permanent() => {}
            read => return read.map(|state| Some((path, state))),
        }
    }
    Ok(None)
}

fn is_missing(path: &Path) -> bool {
    matches!(path.try_exists(), Ok(false))
}

/// The steps of the checkpoint folders in `root`, in ascending order.
fn steps_in(root: &Path) -> Result<Vec<u64>, CheckpointError> {
    let mut steps = Vec::new();
    for entry in fs::read_dir(root).map_err(io_error("list", root))? {
        let entry = entry.map_err(io_error("list", root))?;
        steps.extend(step_of(&entry.file_name()));
    }
    steps.sort_unstable();
    Ok(steps)
}

fn step_of(folder: &OsStr) -> Option<u64> {
    folder.to_str()?.strip_prefix("step_")?.parse().ok()
}

/// Reads the committed checkpoint in `path`.
fn read(path: &Path) -> Result<TrainingState, CheckpointError> {
    let file = path.join(STATE_FILE);
    let committed = path.join(COMMITTED_FILE);
    let bytes = fs::read(&file).map_err(io_error("read checkpoint", &file))?;
    if !committed
        .try_exists()
        .map_err(io_error("look for", &committed))?
    {
        return Err(CheckpointError::Uncommitted(path.to_owned()));
    }
    TrainingState::decode(&bytes).map_err(|source| CheckpointError::Unusable { path: file, source })
}

/// Describes the checkpoint of `state` in `path`.
fn committed(path: PathBuf, state: &TrainingState) -> Committed {
    let bytes = state.encode();
    let digest = format!("crc32:{:08x}", crc32fast::hash(&bytes));
    Committed {
        step: state.step,
        path,
        bytes: bytes.len() as u64,
        digest,
    }
}

fn write_durably(path: &Path, bytes: &[u8]) -> Result<(), CheckpointError> {
    let mut file = File::create(path).map_err(io_error("create", path))?;
    file.write_all(bytes).map_err(io_error("write", path))?;
    file.sync_all().map_err(io_error("sync", path))
}

fn sync_folder(path: &Path) -> Result<(), CheckpointError> {
    File::open(path)
        .and_then(|folder| folder.sync_all())
        .map_err(io_error("sync", path))
}

/// Removes a checkpoint folder if it exists; the commit file first, so that half a checkpoint never counts.
fn remove(path: &Path) -> Result<(), CheckpointError> {
    let mark = path.join(COMMITTED_FILE);
    for result in [fs::remove_file(&mark), fs::remove_dir_all(path)] {
        match result {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(io_error("remove", path)(error));
            }
            _ => {}
        }
    }
    Ok(())
}

fn io_error(operation: &'static str, path: &Path) -> impl FnOnce(io::Error) -> CheckpointError {
    let path = path.to_owned();
    move |source| CheckpointError::Io {
        operation,
        path,
        source,
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;
    use crate::model::Model;

    fn state(step: u64) -> TrainingState {
        let weights = Model::random(1).weights().to_vec();
        TrainingState {
            seed: 1,
            batch: 120,
            step,
            restarts: 0,
            loss_first: 2.0,
            weights,
        }
    }

    #[test]
    fn a_committed_checkpoint_is_read_back_and_may_be_written_again() {
        let home = tempfile::tempdir().unwrap();
        let folder = CheckpointFolder::open(home.path()).unwrap();
        for _ in 0..2 {
            let committed = folder.write(&state(50)).unwrap();
            assert!(committed.path.ends_with("step_50"));
            assert_ne!(committed.digest, folder.write(&state(51)).unwrap().digest);
            assert!(!home.path().join("step_50.tmp").exists());
            assert_eq!(read(&committed.path).unwrap(), state(50));
        }
    }

    #[test]
    fn an_unfinished_or_damaged_checkpoint_is_refused_permanently() {
        let home = tempfile::tempdir().unwrap();
        let folder = CheckpointFolder::open(home.path()).unwrap();
        let path = folder.write(&state(50)).unwrap().path;
        fs::remove_file(path.join(COMMITTED_FILE)).unwrap();
        let error = read(&path).unwrap_err();
        assert!(matches!(error, CheckpointError::Uncommitted(_)) && error.is_permanent());

        let path = folder.write(&state(50)).unwrap().path;
        let mut bytes = fs::read(path.join(STATE_FILE)).unwrap();
        bytes[1_000] ^= 1;
        fs::write(path.join(STATE_FILE), bytes).unwrap();
        let error = read(&path).unwrap_err();
        assert!(matches!(error, CheckpointError::Unusable { .. }) && error.is_permanent());
    }

    #[test]
    fn a_checkpoint_that_is_gone_is_replaced_by_the_newest_complete_one_after_it() {
        let home = tempfile::tempdir().unwrap();
        let folder = CheckpointFolder::open(home.path()).unwrap();
        for step in [5, 10, 15, 20] {
            folder.write(&state(step)).unwrap();
        }
        fs::remove_file(folder.path_of(20).join(COMMITTED_FILE)).unwrap();
        let resumed = |step| read_newest_from(&folder.path_of(step)).map(|found| found.state.step);
        assert_eq!(resumed(5).unwrap(), 5);
        folder.prune(15, 1).unwrap();
        assert_eq!(resumed(5).unwrap(), 15);
        let found = read_newest_from(&folder.path_of(5)).unwrap();
        assert_eq!(found.path, folder.path_of(15));
        // Older checkpoints would lose acknowledged progress.
        assert!(matches!(resumed(17), Err(CheckpointError::Io { .. })));
        assert!(matches!(resumed(20), Err(CheckpointError::Uncommitted(_))));
    }

    #[test]
    fn a_damaged_checkpoint_is_replaced_by_the_newest_usable_one_before_it() {
        let home = tempfile::tempdir().unwrap();
        let folder = CheckpointFolder::open(home.path()).unwrap();
        for step in [5, 10, 15, 20, 25] {
            folder.write(&state(step)).unwrap();
        }
        let damage = |step| fs::write(folder.path_of(step).join(STATE_FILE), b"torn").unwrap();
        damage(20);
        fs::remove_file(folder.path_of(15).join(COMMITTED_FILE)).unwrap();
        let found = read_newest_from(&folder.path_of(20)).unwrap();
        assert_eq!((found.path, found.state.step), (folder.path_of(10), 10));
        assert!(matches!(
            found.fallback_reason,
            Some(CheckpointError::Unusable { .. })
        ));
        damage(10);
        damage(5);
        let error = read_newest_from(&folder.path_of(20)).unwrap_err();
        assert!(matches!(error, CheckpointError::Unusable { .. }) && error.is_permanent());
    }

    #[test]
    fn pruning_keeps_the_newest_and_whatever_is_not_a_checkpoint() {
        let home = tempfile::tempdir().unwrap();
        let folder = CheckpointFolder::open(home.path()).unwrap();
        for step in [5, 10, 15, 100] {
            folder.write(&state(step)).unwrap();
        }
        fs::create_dir(home.path().join("step_1.tmp")).unwrap();
        folder.prune(15, 2).unwrap();
        let left = [5, 10, 15, 100].map(|step| folder.path_of(step).exists());
        assert_eq!(left, [false, true, true, true]);
        assert!(home.path().join("step_1.tmp").exists());
    }
}
