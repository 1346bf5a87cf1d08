//! How far the output of an attempt has been shipped off its host: written by the agent, respected by whoever removes
//! segments.

use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::files;
use crate::segments::OutputStream;

/// The file in the directory of an attempt's logs.
const NAME: &str = "shipped.json";

/// The first position of each output that has not been shipped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shipped {
    /// Of standard output.
    pub stdout: u64,
    /// Of standard error.
    pub stderr: u64,
}

impl Shipped {
    /// The record of an attempt's logs.
    #[must_use]
    pub fn file(logs: &Path) -> PathBuf {
        logs.join(NAME)
    }

    /// What is on record; nothing was shipped if there is no record.
    ///
    /// # Errors
    /// What the file system says, or a record that is damaged.
    pub fn read(logs: &Path) -> io::Result<Self> {
        Ok(files::read_json(&Self::file(logs))?.unwrap_or_default())
    }

    /// Puts it on record. What a power cut takes back is shipped once more.
    ///
    /// # Errors
    /// What the file system says.
    pub fn write(&self, logs: &Path) -> io::Result<()> {
        files::replace(&Self::file(logs), &files::json_bytes(self)?)
    }

    /// That of one output.
    #[must_use]
    pub const fn of(&self, stream: OutputStream) -> u64 {
        match stream {
            OutputStream::Stdout => self.stdout,
            OutputStream::Stderr => self.stderr,
        }
    }

    /// The same with another position for one output.
    #[must_use]
    pub const fn with(mut self, stream: OutputStream, position: u64) -> Self {
        match stream {
            OutputStream::Stdout => self.stdout = position,
            OutputStream::Stderr => self.stderr = position,
        }
        self
    }
}
