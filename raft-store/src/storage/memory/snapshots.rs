//! Snapshots in memory.

use std::collections::BTreeMap;
use std::io::{self, Cursor, Read, Write};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::storage::disk::{SnapshotDisk, SnapshotWrite};

#[derive(Debug, Default)]
struct Files {
    published: BTreeMap<String, Arc<Vec<u8>>>,
    staged: BTreeMap<String, Arc<Vec<u8>>>,
}

/// Snapshots in memory. Publishing is durable at once; staged files are discarded at a restart, when the
/// replica is opened.
#[derive(Debug, Clone, Default)]
pub struct MemorySnapshots {
    files: Arc<Mutex<Files>>,
}

impl MemorySnapshots {
    /// An empty folder.
    pub fn new() -> Self {
        Self::default()
    }

    /// The bytes of a published file.
    pub fn bytes(&self, name: &str) -> Option<Vec<u8>> {
        self.files().published.get(name).map(|bytes| bytes.to_vec())
    }

    /// Puts a published file in place.
    pub fn insert(&self, name: &str, bytes: Vec<u8>) {
        self.files()
            .published
            .insert(name.to_owned(), Arc::new(bytes));
    }

    fn files(&self) -> MutexGuard<'_, Files> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SnapshotDisk for MemorySnapshots {
    fn create(&self, name: &str) -> io::Result<Box<dyn SnapshotWrite>> {
        Ok(Box::new(MemoryFile {
            name: name.to_owned(),
            bytes: Vec::new(),
            files: Arc::clone(&self.files),
        }))
    }

    fn publish(&self, name: &str) -> io::Result<()> {
        let mut files = self.files();
        match files.staged.remove(name) {
            Some(bytes) => {
                files.published.insert(name.to_owned(), bytes);
                Ok(())
            }
            None if files.published.contains_key(name) => Ok(()),
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }

    fn open(&self, name: &str) -> io::Result<Box<dyn Read + Send>> {
        let files = self.files();
        let bytes = files
            .published
            .get(name)
            .or_else(|| files.staged.get(name))
            .ok_or(io::ErrorKind::NotFound)?;
        Ok(Box::new(Cursor::new(SharedBytes(Arc::clone(bytes)))))
    }

    fn list(&self) -> io::Result<Vec<String>> {
        Ok(self.files().published.keys().cloned().collect())
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let mut files = self.files();
        files.published.remove(name);
        files.staged.remove(name);
        Ok(())
    }

    fn discard_staged(&self) -> io::Result<()> {
        self.files().staged.clear();
        Ok(())
    }
}

struct SharedBytes(Arc<Vec<u8>>);

impl AsRef<[u8]> for SharedBytes {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

struct MemoryFile {
    name: String,
    bytes: Vec<u8>,
    files: Arc<Mutex<Files>>,
}

impl Write for MemoryFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl SnapshotWrite for MemoryFile {
    fn finish(self: Box<Self>) -> io::Result<()> {
        let mut files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        files.staged.insert(self.name, Arc::new(self.bytes));
        Ok(())
    }
}
