//! Record of how far the output of an attempt was shipped off its host: written by the agent, respected when
//! segments are removed.

use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::files;
use crate::output::segments::OutputStream;

/// Name of the file in the directory of an attempt's logs.
const NAME: &str = "shipped.json";

/// First unshipped position of each output.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shipped {
    /// Of standard output.
    pub stdout: u64,
    /// Of standard error.
    pub stderr: u64,
}

impl Shipped {
    /// Path of the record in an attempt's log directory.
    #[must_use]
    pub fn file(logs: &Path) -> PathBuf {
        logs.join(NAME)
    }

    /// Reads the record; all zero if there is none.
    ///
    /// # Errors
    /// Errors of the file system, or a damaged record.
    pub fn read(logs: &Path) -> io::Result<Self> {
        Ok(files::read_json(&Self::file(logs))?.unwrap_or_default())
    }

    /// Writes the record, not durably: after a power failure some output is shipped once more.
    ///
    /// # Errors
    /// Errors of the file system.
    pub fn write(&self, logs: &Path) -> io::Result<()> {
        files::replace(&Self::file(logs), &files::json_bytes(self)?)
    }

    /// Position of one output.
    #[must_use]
    pub const fn of(&self, stream: OutputStream) -> u64 {
        match stream {
            OutputStream::Stdout => self.stdout,
            OutputStream::Stderr => self.stderr,
        }
    }

    /// A copy with another position for one output.
    #[must_use]
    pub const fn with(mut self, stream: OutputStream, position: u64) -> Self {
        match stream {
            OutputStream::Stdout => self.stdout = position,
            OutputStream::Stderr => self.stderr = position,
        }
        self
    }
}
