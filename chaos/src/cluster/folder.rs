//! The folder of one local cluster: everything it writes, removed with it unless it is to be kept.

use std::io;
use std::path::{Path, PathBuf};

/// A temporary folder that may be kept.
#[derive(Debug)]
pub struct ClusterFolder {
    path: PathBuf,
    temporary: Option<tempfile::TempDir>,
}

impl ClusterFolder {
    /// A new folder under the system's temporary one; it stays afterwards if `keep` is set.
    ///
    /// # Errors
    /// If it cannot be made.
    pub fn create(keep: bool) -> io::Result<Self> {
        let temporary = tempfile::Builder::new().prefix("muster-").tempdir()?;
        // Processes name the folder in their command lines: no link may stand in the way.
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

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Lets it stay, whatever was wanted before.
    pub fn keep(&mut self) {
        if let Some(temporary) = self.temporary.take() {
            self.path = temporary.keep();
        }
    }

    /// Removes it with everything in it, unless it is to be kept; true if it is gone.
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
