//! Keeps the logs of ended attempts within their bounds.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use crate::limits::{LOG_ATTEMPTS_KEPT_MAX, LOG_BYTES_KEPT_MAX};
use muster_supervisor::RunId;
use muster_supervisor::files;

/// One attempt's log directory.
struct Kept {
    path: PathBuf,
    bytes: u64,
    modified: SystemTime,
}

/// Removes the oldest logs until those left keep to the bounds. Those of `live` attempts stay.
///
/// # Errors
/// What the file system says.
pub(crate) fn forget_old(logs: &Path, live: &BTreeSet<RunId>) -> io::Result<()> {
    let mut kept = ended(logs, live)?;
    kept.sort_by_key(|attempt| std::cmp::Reverse(attempt.modified));
    let mut bytes = 0u64;
    for (count, attempt) in kept.iter().enumerate() {
        bytes = bytes.saturating_add(attempt.bytes);
        if count >= LOG_ATTEMPTS_KEPT_MAX || bytes > LOG_BYTES_KEPT_MAX {
            files::remove_directory(&attempt.path)?;
        }
    }
    Ok(())
}

fn ended(logs: &Path, live: &BTreeSet<RunId>) -> io::Result<Vec<Kept>> {
    let mut kept = Vec::new();
    for entry in fs::read_dir(logs)? {
        let entry = entry?;
        let id: Option<RunId> = entry
            .file_name()
            .to_str()
            .and_then(|name| name.parse().ok());
        if id.is_some_and(|id| !live.contains(&id)) {
            kept.push(Kept {
                bytes: bytes_in(&entry.path())?,
                modified: entry.metadata()?.modified()?,
                path: entry.path(),
            });
        }
    }
    Ok(kept)
}

fn bytes_in(directory: &Path) -> io::Result<u64> {
    let mut bytes = 0;
    for entry in fs::read_dir(directory)? {
        bytes += entry?.metadata()?.len();
    }
    Ok(bytes)
}
