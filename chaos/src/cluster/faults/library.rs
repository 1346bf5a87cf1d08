//! The fault library, which is preloaded into replicas: slow syncs, failing syncs, a shifted wall clock.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::cluster::{ClusterError, LocalCluster, Member, failed};

/// Source of the library: it is compiled where it is used.
const SOURCE: &str = include_str!("library.c");

/// Offset in bytes of the library's counter of applied commands: after the three commands.
const APPLIED_AT: u64 = 24;

/// Commands to a replica's library; none by default.
#[derive(Clone, Copy, Debug, Default)]
pub struct LibraryCommands {
    /// Delay of each sync, in milliseconds.
    pub sync_delay_ms: i64,
    /// Error number of each sync; 0 for none.
    pub sync_error: i64,
    /// Offset of the wall clock, in seconds.
    pub clock_offset_s: i64,
}

impl LibraryCommands {
    /// Writes them for a replica; they apply from its next sync and clock read on.
    pub(in crate::cluster) fn write(self, replica: &Member) -> Result<(), ClusterError> {
        let path = replica.library_commands();
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
            let length = APPLIED_AT + size_of::<u64>() as u64;
            if file.metadata()?.len() < length {
                file.set_len(length)?;
            }
            Ok(())
        };
        written().map_err(failed(format!("writing {}", path.display())))
    }
}

impl LocalCluster {
    /// Gives commands to the library of a replica, in a cluster with [`ClusterOptions::fault_library`].
    ///
    /// # Errors
    /// If they cannot be written.
    ///
    /// [`ClusterOptions::fault_library`]: crate::cluster::ClusterOptions::fault_library
    pub fn command_library(
        &self,
        replica: usize,
        commands: LibraryCommands,
    ) -> Result<(), ClusterError> {
        commands.write(&self.replicas[replica])
    }

    /// Number of times a replica's library delayed, falsified or failed a call.
    ///
    /// # Errors
    /// If its counter cannot be read.
    pub fn library_applied(&self, replica: usize) -> Result<u64, ClusterError> {
        let path = self.replicas[replica].library_commands();
        let mut bytes = [0; size_of::<u64>()];
        let read = File::open(&path).and_then(|file| file.read_exact_at(&mut bytes, APPLIED_AT));
        read.map_err(failed(format!("reading {}", path.display())))?;
        Ok(u64::from_ne_bytes(bytes))
    }
}

/// Compiles the library in a folder.
///
/// # Errors
/// If there is no C compiler, or compilation fails.
pub(in crate::cluster) fn build_library(folder: &Path) -> Result<PathBuf, ClusterError> {
    let (source, library) = (folder.join("library.c"), folder.join("library.so"));
    fs::write(&source, SOURCE).map_err(failed(format!("writing {}", source.display())))?;
    let built = Command::new("cc")
        .args(["-O2", "-fPIC", "-shared", "-o"])
        .arg(&library)
        .arg(&source)
        .output()
        .map_err(failed(
            "starting `cc`: slow and failing syncs and wrong clocks need a C compiler",
        ))?;
    if built.status.success() {
        return Ok(library);
    }
    let complaint = String::from_utf8_lossy(&built.stderr).trim().to_owned();
    Err(ClusterError::Library(complaint))
}
