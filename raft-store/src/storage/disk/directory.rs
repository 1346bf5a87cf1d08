//! Snapshots stored as files of one directory.

use std::fs::{self, File};
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};

use crate::storage::disk::{SnapshotDisk, SnapshotWrite};

/// Suffix of staged files.
const STAGED: &str = ".staged";
/// Write buffer in bytes.
const BUFFER_BYTES: usize = 256 * 1024;

/// Snapshot storage in one directory.
#[derive(Debug, Clone)]
pub struct SnapshotDirectory {
    path: PathBuf,
}

impl SnapshotDirectory {
    /// Uses `path`, creating it if it is missing.
    pub fn open(path: impl Into<PathBuf>) -> io::Result<Self> {
        let path = path.into();
        fs::create_dir_all(&path)?;
        Ok(Self { path })
    }

    fn published(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    fn staged(&self, name: &str) -> PathBuf {
        self.path.join(format!("{name}{STAGED}"))
    }

    fn file_names(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(&self.path)? {
            if let Ok(name) = entry?.file_name().into_string() {
                names.push(name);
            }
        }
        names.sort();
        Ok(names)
    }
}

impl SnapshotDisk for SnapshotDirectory {
    fn create(&self, name: &str) -> io::Result<Box<dyn SnapshotWrite>> {
        let file = File::create(self.staged(name))?;
        Ok(Box::new(StagedFile(BufWriter::with_capacity(
            BUFFER_BYTES,
            file,
        ))))
    }

    fn publish(&self, name: &str) -> io::Result<()> {
        match fs::rename(self.staged(name), self.published(name)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                fs::metadata(self.published(name))?;
            }
            other => other?,
        }
        sync_directory(&self.path)
    }

    fn open(&self, name: &str) -> io::Result<Box<dyn Read + Send>> {
        let file = match File::open(self.published(name)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => File::open(self.staged(name))?,
            other => other?,
        };
        Ok(Box::new(BufReader::with_capacity(BUFFER_BYTES, file)))
    }

    fn list(&self) -> io::Result<Vec<String>> {
        let mut names = self.file_names()?;
        names.retain(|name| !name.ends_with(STAGED));
        Ok(names)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        for path in [self.published(name), self.staged(name)] {
            match fs::remove_file(path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }

    fn discard_staged(&self) -> io::Result<()> {
        for name in self.file_names()? {
            if name.ends_with(STAGED) {
                fs::remove_file(self.path.join(name))?;
            }
        }
        Ok(())
    }
}

/// Makes the entries of a directory durable.
fn sync_directory(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

struct StagedFile(BufWriter<File>);

impl Write for StagedFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

impl SnapshotWrite for StagedFile {
    fn finish(mut self: Box<Self>) -> io::Result<()> {
        self.0.flush()?;
        self.0.get_ref().sync_all()
    }
}
