//! The trainer's own proof that nobody else holds its GPUs.
//!
//! Every task of a demo or a chaos run locks one file per GPU for as long as it lives. A scheduler that gives
//! a GPU to two tasks is found out by the tasks themselves, whatever it believes.

use std::env;
use std::fs::{File, TryLockError};
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// Names the folder of the locks; without it nothing is locked.
const FOLDER_VARIABLE: &str = "GPU_LEDGER_DIR";
/// The GPUs that the scheduler gave to this task.
const GPUS_VARIABLE: &str = "CUDA_VISIBLE_DEVICES";
/// File that collects what must not happen, one line each.
const CONFLICTS_FILE: &str = "conflicts";

/// The locks of this process; they are free again when it ends, however it ends.
#[derive(Debug)]
pub(crate) struct GpuLedger {
    _held: Vec<File>,
}

impl GpuLedger {
    /// Locks every GPU of this task; one that somebody else holds is written down as a conflict.
    pub(crate) fn hold_own_gpus() -> Result<Self> {
        let Some(folder) = env::var_os(FOLDER_VARIABLE).map(PathBuf::from) else {
            return Ok(Self { _held: Vec::new() });
        };
        let gpus = env::var(GPUS_VARIABLE).unwrap_or_default();
        let held = gpus
            .split(',')
            .filter(|gpu| !gpu.is_empty())
            .map(|gpu| hold(&folder, gpu))
            .collect::<Result<_>>()?;
        Ok(Self { _held: held })
    }
}

fn hold(folder: &Path, gpu: &str) -> Result<File> {
    let path = folder.join(gpu);
    let file = File::create(&path).with_context(|| format!("open {}", path.display()))?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => note_conflict(folder, gpu)?,
        Err(TryLockError::Error(error)) => {
            return Err(error).with_context(|| format!("lock {}", path.display()));
        }
    }
    Ok(file)
}

fn note_conflict(folder: &Path, gpu: &str) -> Result<()> {
    let path = folder.join(CONFLICTS_FILE);
    let mut conflicts = File::options()
        .create(true)
        .append(true)
        .open(&path)
        .with_context(|| format!("open {}", path.display()))?;
    let job = env::var("MUSTER_JOB_ID").unwrap_or_default();
    let epoch = env::var("MUSTER_EPOCH").unwrap_or_default();
    writeln!(
        conflicts,
        "{gpu} is held by somebody else as attempt {epoch} of job {job} starts"
    )
    .with_context(|| format!("write {}", path.display()))
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn a_second_owner_is_written_down() {
        let folder = tempfile::tempdir().unwrap();
        let first = hold(folder.path(), "GPU-1").unwrap();
        drop(hold(folder.path(), "GPU-2").unwrap());
        assert!(!folder.path().join(CONFLICTS_FILE).exists());
        let _second = hold(folder.path(), "GPU-1").unwrap();
        let conflicts = std::fs::read_to_string(folder.path().join(CONFLICTS_FILE)).unwrap();
        assert!(conflicts.starts_with("GPU-1 is held"), "{conflicts}");
        drop(first);
    }
}
