//! Commands to the library preloaded into every replica: slow syncs, failing syncs, a shifted wall clock.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::cluster::Member;
use crate::run::RunError;

/// Source of the library: it is compiled where it is used.
const SOURCE: &str = include_str!("../orders.c");

/// Offset in bytes of the library's counter of applied commands: after the three commands.
const OBEYED_AT: u64 = 24;

/// Commands to a replica's library; none by default.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Orders {
    /// Delay of each sync, in milliseconds.
    pub(super) sync_delay_ms: i64,
    /// Error number of each sync; 0 for none.
    pub(super) sync_error: i64,
    /// Offset of the wall clock, in seconds.
    pub(super) clock_offset_s: i64,
}

impl Orders {
    /// Writes them for a replica; they apply from its next sync and clock read on.
    pub(super) fn give(self, replica: &Member) -> Result<(), RunError> {
        let path = replica.orders();
        let fields = [self.sync_delay_ms, self.sync_error, self.clock_offset_s];
        let bytes: Vec<u8> = fields.into_iter().flat_map(i64::to_ne_bytes).collect();
        let written = || -> io::Result<()> {
            // In place: the library has the file mapped.
            let mut options = File::options();
            let file = options
                .create(true)
                .truncate(false)
                .write(true)
                .open(&path)?;
            file.write_all_at(&bytes, 0)?;
            // Includes the library's own counter, in case the file is new.
            let length = OBEYED_AT + size_of::<u64>() as u64;
            if file.metadata()?.len() < length {
                file.set_len(length)?;
            }
            Ok(())
        };
        written().map_err(RunError::io(format!("writing {}", path.display())))
    }

    /// Number of times a replica's library delayed, falsified or failed a call.
    pub(super) fn obeyed(replica: &Member) -> Result<u64, RunError> {
        let path = replica.orders();
        let mut bytes = [0; size_of::<u64>()];
        let read = File::open(&path).and_then(|file| file.read_exact_at(&mut bytes, OBEYED_AT));
        read.map_err(RunError::io(format!("reading {}", path.display())))?;
        Ok(u64::from_ne_bytes(bytes))
    }
}

/// Compiles the library in a folder.
///
/// # Errors
/// If there is no C compiler, or compilation fails.
pub(in crate::run) fn build_library(folder: &Path) -> Result<PathBuf, RunError> {
    let (source, library) = (folder.join("orders.c"), folder.join("orders.so"));
    fs::write(&source, SOURCE).map_err(RunError::io(format!("writing {}", source.display())))?;
    let built = Command::new("cc")
        .args(["-O2", "-fPIC", "-shared", "-o"])
        .arg(&library)
        .arg(&source)
        .output()
        .map_err(RunError::io(
            "starting `cc`: slow and failing syncs and wrong clocks need a C compiler",
        ))?;
    if built.status.success() {
        return Ok(library);
    }
    let complaint = String::from_utf8_lossy(&built.stderr).trim().to_owned();
    Err(RunError::Harness(format!(
        "`cc` cannot compile the fault library: {complaint}"
    )))
}
