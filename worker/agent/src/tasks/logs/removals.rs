//! Record of attempts whose output was removed, to distinguish removed output from none.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use muster_supervisor::{RunId, files};

use crate::limits::LOG_REMOVALS_REMEMBERED_MAX;

/// The file in the directory of all logs: one attempt per line, oldest first.
const NAME: &str = "removed";

/// The attempts of one host whose output was removed, the newest `LOG_REMOVALS_REMEMBERED_MAX`.
#[derive(Clone, Debug)]
pub(crate) struct Removals {
    path: PathBuf,
}

impl Removals {
    /// The record in a log directory.
    pub(crate) fn of(logs: &Path) -> Self {
        Self {
            path: logs.join(NAME),
        }
    }

    /// Whether the output of an attempt was removed.
    ///
    /// # Errors
    /// Of the file system.
    pub(crate) fn contains(&self, id: RunId) -> io::Result<bool> {
        Ok(self.read()?.contains(&id))
    }

    /// Adds attempts, before their output is removed.
    ///
    /// # Errors
    /// Of the file system.
    pub(crate) fn add(&self, ids: &[RunId]) -> io::Result<()> {
        let mut all = self.read()?;
        all.retain(|id| !ids.contains(id));
        all.extend(ids);
        let surplus = all.len().saturating_sub(LOG_REMOVALS_REMEMBERED_MAX);
        let lines: String = all[surplus..].iter().map(|id| format!("{id}\n")).collect();
        files::replace(&self.path, lines.as_bytes())
    }

    fn read(&self) -> io::Result<Vec<RunId>> {
        match fs::read_to_string(&self.path) {
            // Lines torn by a power cut are ignored.
            Ok(text) => Ok(text.lines().filter_map(|line| line.parse().ok()).collect()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
            Err(error) => Err(error),
        }
    }
}
