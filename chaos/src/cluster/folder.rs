//! Folder with all files of one local cluster, removed with it unless kept.

use std::io;
use std::path::{Path, PathBuf};

/// A temporary folder that can be kept.
#[derive(Debug)]
pub struct ClusterFolder {
    path: PathBuf,
    temporary: Option<tempfile::TempDir>,
}

impl ClusterFolder {
    /// Creates a folder in the system's temporary folder; it is not removed if `keep` is set.
    ///
    /// # Errors
    /// If it cannot be created.
    pub fn create(keep: bool) -> io::Result<Self> {
        let temporary = tempfile::Builder::new().prefix("muster-").tempdir()?;
        // Processes name the folder in their command lines, so the path must not contain symbolic links.
        let path = temporary.path().canonicalize()?;
        if keep {
            return Ok(Self {
                path: temporary.keep(),
                temporary: None,
            });
        }
        Ok(Self {
            path,
            temporary: Some(temporary),
        })
    }

    /// Path of the folder.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Keeps the folder, overriding the option given at creation.
    pub fn keep(&mut self) {
        if let Some(temporary) = self.temporary.take() {
            self.path = temporary.keep();
        }
    }

    /// Removes the folder with its contents unless it is kept; returns true if it is gone.
    ///
    /// # Errors
    /// If something in it cannot be removed.
    pub fn remove(self) -> io::Result<bool> {
        match self.temporary {
            Some(temporary) => temporary.close().map(|()| true),
            None => Ok(false),
        }
    }
}
