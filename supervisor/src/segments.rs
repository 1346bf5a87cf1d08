//! A log as a row of segments, each named after the position of its first byte in the whole output.
//!
//! Positions never change, so a reader's offset stays good while old segments are removed. A hole (bytes
//! that a full disk refused) is a gap between two segments.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use crate::spec::LogLimits;

/// Which of a task's two outputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum OutputStream {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

impl OutputStream {
    const fn prefix(self) -> &'static str {
        match self {
            Self::Stdout => "stdout.",
            Self::Stderr => "stderr.",
        }
    }
}

/// One segment on disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Position of its first byte.
    pub start: u64,
    /// Its file.
    pub path: PathBuf,
}

/// The segments of one output, oldest first; none if the directory does not exist.
pub fn list(directory: &Path, stream: OutputStream) -> io::Result<Vec<Segment>> {
    let entries = match fs::read_dir(directory) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut segments = Vec::new();
    for entry in entries {
        let entry = entry?;
        let start = entry
            .file_name()
            .to_str()
            .and_then(|name| name.strip_prefix(stream.prefix()))
            .and_then(|digits| digits.parse().ok());
        if let Some(start) = start {
            segments.push(Segment {
                start,
                path: entry.path(),
            });
        }
    }
    segments.sort_by_key(|segment| segment.start);
    Ok(segments)
}

fn path_of(directory: &Path, stream: OutputStream, start: u64) -> PathBuf {
    directory.join(format!("{}{start:020}", stream.prefix()))
}

/// Appends to a log and keeps it within its limits.
#[derive(Debug)]
pub struct SegmentWriter {
    directory: PathBuf,
    stream: OutputStream,
    limits: LogLimits,
    /// Position of the next byte.
    position: u64,
    current: Option<Current>,
    /// Bytes that the disk refused.
    lost_bytes: u64,
}

#[derive(Debug)]
struct Current {
    file: File,
    bytes: u64,
}

impl SegmentWriter {
    /// A writer of a new log; nothing is created before the first byte.
    pub fn new(directory: PathBuf, stream: OutputStream, limits: LogLimits) -> Self {
        Self {
            directory,
            stream,
            limits,
            position: 0,
            current: None,
            lost_bytes: 0,
        }
    }

    /// Appends. What the disk refuses is counted and left out: a full disk must not stop the task.
    pub fn append(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            match self.append_some(bytes) {
                Ok(count) => bytes = &bytes[count..],
                Err(_) => {
                    self.current = None;
                    self.position += bytes.len() as u64;
                    self.lost_bytes += bytes.len() as u64;
                    return;
                }
            }
        }
    }

    /// Bytes that the disk refused so far.
    pub const fn lost_bytes(&self) -> u64 {
        self.lost_bytes
    }

    fn append_some(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut current = match self.current.take() {
            Some(current) if current.bytes < self.limits.segment_bytes => current,
            _ => self.open_segment()?,
        };
        let room = self.limits.segment_bytes.saturating_sub(current.bytes);
        let limit = usize::try_from(room).unwrap_or(usize::MAX).min(bytes.len());
        let count = current.file.write(&bytes[..limit])?;
        if count == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        current.bytes += count as u64;
        self.position += count as u64;
        self.current = Some(current);
        Ok(count)
    }

    fn open_segment(&self) -> io::Result<Current> {
        fs::create_dir_all(&self.directory)?;
        let segments = list(&self.directory, self.stream)?;
        let surplus = (segments.len() + 1).saturating_sub(self.limits.segments_max.max(1));
        for old in &segments[..surplus.min(segments.len())] {
            fs::remove_file(&old.path)?;
        }
        let file = OpenOptions::new().create(true).append(true).open(path_of(
            &self.directory,
            self.stream,
            self.position,
        ))?;
        Ok(Current { file, bytes: 0 })
    }
}
