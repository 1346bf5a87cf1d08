//! A log as a sequence of segments, each named after the position of its first byte in the whole output.
//! Positions never change, so a reader's offset stays valid while old segments are removed. A gap between two
//! segments means bytes that could not be written because the disk was full. For the arrival times of the
//! bytes, see [`crate::output::arrivals`].

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use crate::output::arrivals::ArrivalWriter;
use crate::output::shipped::Shipped;
use crate::task::spec::LogLimits;

/// One of a task's two outputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum OutputStream {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

impl OutputStream {
    /// Both outputs.
    pub const ALL: [Self; 2] = [Self::Stdout, Self::Stderr];

    /// Name of the output.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Stdout => "stdout",
            Self::Stderr => "stderr",
        }
    }
}

/// One segment on disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Position of its first byte.
    pub start: u64,
    /// Path of its file.
    pub path: PathBuf,
}

impl Segment {
    /// Path of the file with its arrival times.
    #[must_use]
    pub fn arrivals(&self) -> PathBuf {
        let name = self.path.file_name().unwrap_or_default().to_string_lossy();
        self.path.with_file_name(format!("times.{name}"))
    }

    /// Removes it; ignored if it is gone.
    ///
    /// # Errors
    /// Errors of the file system.
    pub fn remove(&self) -> io::Result<()> {
        for path in [&self.path, &self.arrivals()] {
            match fs::remove_file(path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }
}

/// The segments of one output, oldest first; empty if the directory does not exist.
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
            .and_then(|name| name.strip_prefix(stream.name())?.strip_prefix('.'))
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
    directory.join(format!("{}.{start:020}", stream.name()))
}

/// Appends to a log and enforces its limits.
#[derive(Debug)]
pub struct SegmentWriter {
    directory: PathBuf,
    stream: OutputStream,
    limits: LogLimits,
    /// Position of the next byte.
    position: u64,
    current: Option<Current>,
    /// Bytes that could not be written.
    lost_bytes: u64,
}

#[derive(Debug)]
struct Current {
    segment: Segment,
    file: File,
    bytes: u64,
    arrivals: ArrivalWriter,
}

impl SegmentWriter {
    /// Writer of a new log; nothing is created before the first byte.
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

    /// Appends output with its arrival time ([`crate::output::arrivals::ArrivalClock`]). Bytes that cannot be written
    /// are counted and skipped: a full disk must not stop the task.
    pub fn append(&mut self, mut bytes: &[u8], at_us: u64) {
        while !bytes.is_empty() {
            match self.append_some(bytes, at_us) {
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

    /// Bytes that could not be written so far.
    pub const fn lost_bytes(&self) -> u64 {
        self.lost_bytes
    }

    fn append_some(&mut self, bytes: &[u8], at_us: u64) -> io::Result<usize> {
        let mut current = match self.current.take() {
            Some(current) if self.has_room(&current) => current,
            _ => self.open_segment()?,
        };
        let room = self.limits.segment_bytes.saturating_sub(current.bytes);
        let limit = usize::try_from(room).unwrap_or(usize::MAX).min(bytes.len());
        let written = match current.file.write(&bytes[..limit]) {
            Ok(0) => Err(io::ErrorKind::WriteZero.into()),
            written => written,
        };
        let is_first = current.bytes == 0;
        if written.is_err() && is_first {
            drop(current.segment.remove());
        }
        let count = written?;
        if is_first {
            // Only now, because a full disk must not cost earlier output. A failed removal is repeated with
            // the next segment.
            drop(self.remove_surplus());
        }
        current.bytes += count as u64;
        self.position += count as u64;
        // A missing record only makes times coarser: the next one covers these bytes too.
        drop(current.arrivals.note(self.position, at_us));
        self.current = Some(current);
        Ok(count)
    }

    const fn has_room(&self, current: &Current) -> bool {
        current.bytes < self.limits.segment_bytes && !current.arrivals.is_full()
    }

    fn open_segment(&self) -> io::Result<Current> {
        fs::create_dir_all(&self.directory)?;
        let segment = Segment {
            start: self.position,
            path: path_of(&self.directory, self.stream, self.position),
        };
        // Created first, so that no segment exists without it.
        let arrivals = ArrivalWriter::create(&segment.arrivals())?;
        let file = OpenOptions::new()
            .create(true)
            .append(true)
            .open(&segment.path)
            .inspect_err(|_| drop(segment.remove()))?;
        Ok(Current {
            segment,
            file,
            bytes: 0,
            arrivals,
        })
    }

    /// Removes the oldest surplus segments after a new one was started.
    fn remove_surplus(&self) -> io::Result<()> {
        let mut segments = list(&self.directory, self.stream)?;
        segments.retain(|segment| segment.start < self.position);
        for old in &segments[..self.surplus(&segments)] {
            old.remove()?;
        }
        Ok(())
    }

    /// Number of oldest segments that must go because of a further one.
    fn surplus(&self, segments: &[Segment]) -> usize {
        let over = |limit: usize| {
            let surplus = (segments.len() + 1).saturating_sub(limit.max(1));
            surplus.min(segments.len())
        };
        let surplus = over(self.limits.segments_max);
        let Some(unshipped_max) = self.limits.unshipped_segments_max else {
            return surplus;
        };
        // An unreadable record counts as empty: the output is shipped once more.
        let shipped = Shipped::read(&self.directory).unwrap_or_default();
        let ends = segments.iter().skip(1).map(|segment| segment.start);
        let is_shipped = |end: &u64| *end <= shipped.of(self.stream);
        let done = ends.chain([self.position]).take_while(is_shipped).count();
        surplus.min(done.max(over(unshipped_max)))
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a failed test should panic")]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_costs_nothing_that_was_printed_before() {
        let directory = tempfile::tempdir().unwrap();
        let limits = LogLimits {
            segment_bytes: 1,
            segments_max: 2,
            unshipped_segments_max: None,
        };
        let stream = OutputStream::Stdout;
        let mut writer = SegmentWriter::new(directory.path().into(), stream, limits);
        let starts = || -> Vec<u64> {
            let segments = list(directory.path(), stream).unwrap();
            segments.iter().map(|segment| segment.start).collect()
        };
        writer.append(b"ab", 1);
        // The disk is full during the writes of these two.
        for start in [2, 3] {
            let full = path_of(directory.path(), stream, start);
            std::os::unix::fs::symlink("/dev/full", full).unwrap();
            writer.append(b"c", 2);
            assert_eq!((starts(), writer.lost_bytes()), (vec![0, 1], start - 1));
        }
        let files = || fs::read_dir(directory.path()).unwrap().count();
        assert_eq!(files(), 4, "two segments with their times");
        writer.append(b"d", 3);
        assert_eq!((starts(), files()), (vec![1, 4], 4));
    }

    #[test]
    fn segments_wait_to_be_shipped_up_to_a_limit() {
        let directory = tempfile::tempdir().unwrap();
        let limits = LogLimits {
            segment_bytes: 1,
            segments_max: 2,
            unshipped_segments_max: Some(4),
        };
        let mut writer = SegmentWriter::new(directory.path().into(), OutputStream::Stderr, limits);
        let starts = || -> Vec<u64> {
            let segments = list(directory.path(), OutputStream::Stderr).unwrap();
            segments.iter().map(|segment| segment.start).collect()
        };
        for byte in 0..6 {
            writer.append(b"x", byte);
        }
        assert_eq!(starts(), [2, 3, 4, 5], "at most four unshipped");
        let shipped = Shipped::default().with(OutputStream::Stderr, 4);
        shipped.write(directory.path()).unwrap();
        writer.append(b"x", 9);
        assert_eq!(starts(), [4, 5, 6], "two shipped ones may go");
        shipped
            .with(OutputStream::Stderr, 7)
            .write(directory.path())
            .unwrap();
        writer.append(b"x", 9);
        assert_eq!(starts(), [6, 7], "no more than the limit for all");
        let files = fs::read_dir(directory.path()).unwrap().count();
        assert_eq!(files, 5, "two segments with their times, and the record");
    }
}
