//! Orders to the library that is loaded into every replica: slow syncs, syncs that fail, a wall clock that is set.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::cluster::Member;
use crate::run::RunError;

/// The library's source: it is built where it is used.
const SOURCE: &str = include_str!("../orders.c");

/// Where the library counts how often it obeyed, in bytes: behind the three orders.
const OBEYED_AT: u64 = 24;

/// What a replica's library is told; nothing by default.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Orders {
    /// By how many milliseconds each sync is late.
    pub(super) sync_delay_ms: i64,
    /// The error number of each sync; 0: none.
    pub(super) sync_error: i64,
    /// By how many seconds the wall clock is wrong.
    pub(super) clock_offset_s: i64,
}

impl Orders {
    /// Gives them to a replica, in force from its next sync and look at the clock on.
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
            // Longer by the library's own count, if it is new.
            let length = OBEYED_AT + size_of::<u64>() as u64;
            if file.metadata()?.len() < length {
                file.set_len(length)?;
            }
            Ok(())
        };
        written().map_err(RunError::io(format!("writing {}", path.display())))
    }

    /// How often a replica's library has made something slow, wrong or fail.
    pub(super) fn obeyed(replica: &Member) -> Result<u64, RunError> {
        let path = replica.orders();
        let mut bytes = [0; size_of::<u64>()];
        let read = File::open(&path).and_then(|file| file.read_exact_at(&mut bytes, OBEYED_AT));
        read.map_err(RunError::io(format!("reading {}", path.display())))?;
        Ok(u64::from_ne_bytes(bytes))
    }
}

/// Builds the library in a folder.
///
/// # Errors
/// If there is no C compiler, or it refuses.
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
        "`cc` cannot build the library of faults: {complaint}"
    )))
}
