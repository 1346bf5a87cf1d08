//! Arrival times of output: a small file next to each segment, so that the text stays as the task wrote it.
//! A record states the position in the whole output up to which bytes had arrived at an instant. Instants
//! strictly increase over both outputs of a task, so they also give the order in which the two were read.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::UNIX_EPOCH;

use crate::limits::{ARRIVAL_RECORDS_MAX, ARRIVAL_RESOLUTION_US};
use crate::output::segments::{OutputStream, Segment};

/// Size of a record: two little-endian numbers.
const RECORD_BYTES: u64 = 16;

/// One record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// Position behind the last byte that had arrived.
    pub end: u64,
    /// Arrival time in microseconds since the Unix epoch, by the host's wall clock.
    pub at_us: u64,
}

/// Assigns arrival times to one task's output.
#[derive(Debug, Default)]
pub struct ArrivalClock {
    last_us: u64,
    last_stream: Option<OutputStream>,
}

impl ArrivalClock {
    /// Returns the arrival time of bytes read now. Consecutive reads of one output may share a time; the two
    /// outputs never do.
    pub fn stamp(&mut self, stream: OutputStream, now_us: u64) -> u64 {
        let continues = self.last_stream == Some(stream)
            && now_us.abs_diff(self.last_us) < ARRIVAL_RESOLUTION_US;
        if !continues {
            // A wall clock that is set back must not reverse the order.
            self.last_us = now_us.max(self.last_us.saturating_add(1));
            self.last_stream = Some(stream);
        }
        self.last_us
    }
}

/// Writes the records of one segment.
#[derive(Debug)]
pub(crate) struct ArrivalWriter {
    file: File,
    records: u64,
    last_us: Option<u64>,
}

impl ArrivalWriter {
    /// Creates the record file of a new segment.
    pub(crate) fn create(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new()
            .create(true)
            .truncate(true)
            .write(true)
            .open(path)?;
        Ok(Self {
            file,
            records: 0,
            last_us: None,
        })
    }

    /// Whether the segment must end because it holds the maximum number of records.
    pub(crate) const fn is_full(&self) -> bool {
        self.records >= ARRIVAL_RECORDS_MAX
    }

    /// Records that the bytes before `end` have arrived.
    pub(crate) fn note(&mut self, end: u64, at_us: u64) -> io::Result<()> {
        let is_new = self.last_us != Some(at_us);
        let number = self.records - u64::from(!is_new);
        let mut record = [0u8; RECORD_BYTES as usize];
        record[..8].copy_from_slice(&end.to_le_bytes());
        record[8..].copy_from_slice(&at_us.to_le_bytes());
        self.file.write_all_at(&record, number * RECORD_BYTES)?;
        self.records += u64::from(is_new);
        self.last_us = Some(at_us);
        Ok(())
    }
}

/// Returns the records of a segment that end behind a position, oldest first, at most `limit` of them.
/// A segment without records counts as arrived at its last modification.
///
/// # Errors
/// Errors of the file system.
pub fn behind(segment: &Segment, position: u64, limit: usize) -> io::Result<Vec<Arrival>> {
    let Some(records) = Records::open(segment)? else {
        return last_write(segment, position);
    };
    let first = records.first(|arrival| arrival.end > position)?;
    records.some(first, limit)
}

/// Returns the position before which all of a segment had arrived at an instant; its start if nothing had.
///
/// # Errors
/// Errors of the file system.
pub fn position_at(segment: &Segment, at_us: u64) -> io::Result<u64> {
    let Some(records) = Records::open(segment)? else {
        let whole = last_write(segment, segment.start)?;
        let before = whole.iter().filter(|arrival| arrival.at_us < at_us);
        return Ok(before
            .map(|arrival| arrival.end)
            .max()
            .unwrap_or(segment.start));
    };
    match records.first(|arrival| arrival.at_us >= at_us)? {
        0 => Ok(segment.start),
        later => Ok(records.get(later - 1)?.end),
    }
}

/// Records of one segment; both of their numbers ascend.
struct Records {
    file: File,
    count: u64,
}

impl Records {
    fn open(segment: &Segment) -> io::Result<Option<Self>> {
        let file = match File::open(segment.arrivals()) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        // A record that is still being written does not count.
        let count = file.metadata()?.len() / RECORD_BYTES;
        Ok(Some(Self { file, count }))
    }

    fn get(&self, number: u64) -> io::Result<Arrival> {
        let mut record = [0u8; RECORD_BYTES as usize];
        self.file
            .read_exact_at(&mut record, number * RECORD_BYTES)?;
        Ok(parsed(&record))
    }

    /// Reads at most `limit` records, starting at index `first`.
    fn some(&self, first: u64, limit: usize) -> io::Result<Vec<Arrival>> {
        let left = usize::try_from(self.count - first).unwrap_or(usize::MAX);
        let mut bytes = vec![0u8; left.min(limit) * RECORD_BYTES as usize];
        self.file.read_exact_at(&mut bytes, first * RECORD_BYTES)?;
        let records = bytes.chunks_exact(RECORD_BYTES as usize);
        Ok(records.map(parsed).collect())
    }

    /// Index of the first record for which a monotone condition holds.
    fn first(&self, holds: impl Fn(Arrival) -> bool) -> io::Result<u64> {
        let (mut low, mut high) = (0, self.count);
        while low < high {
            let middle = low + (high - low) / 2;
            if holds(self.get(middle)?) {
                high = middle;
            } else {
                low = middle + 1;
            }
        }
        Ok(low)
    }
}

fn parsed(record: &[u8]) -> Arrival {
    let (end, at_us) = record.split_at(record.len() / 2);
    Arrival {
        end: number_of(end),
        at_us: number_of(at_us),
    }
}

fn number_of(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .rev()
        .fold(0, |number, byte| number << 8 | u64::from(*byte))
}

fn last_write(segment: &Segment, position: u64) -> io::Result<Vec<Arrival>> {
    let metadata = segment.path.metadata()?;
    let end = segment.start + metadata.len();
    // A host whose clock is before 1970 has no better time to offer.
    let age = metadata.modified()?.duration_since(UNIX_EPOCH);
    let at_us = age.map_or(0, |age| u64::try_from(age.as_micros()).unwrap_or(u64::MAX));
    let whole = Arrival { end, at_us };
    Ok(if end > position {
        vec![whole]
    } else {
        Vec::new()
    })
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a failed test should panic")]
mod tests {
    use super::*;
    use crate::output::segments::{SegmentWriter, list};
    use crate::task::spec::LogLimits;

    #[test]
    fn instants_never_decrease_and_distinguish_the_outputs() {
        let mut clock = ArrivalClock::default();
        let (out, err) = (OutputStream::Stdout, OutputStream::Stderr);
        assert_eq!(clock.stamp(out, 1_000_000), 1_000_000);
        assert_eq!(clock.stamp(out, 1_000_500), 1_000_000);
        assert_eq!(clock.stamp(err, 1_000_500), 1_000_500);
        assert_eq!(clock.stamp(out, 1_000_500), 1_000_501);
        // The wall clock is set back by a second.
        assert_eq!(clock.stamp(out, 500), 1_000_502);
        assert_eq!(clock.stamp(err, 900), 1_000_503);
        assert_eq!(clock.stamp(err, 2_000_000), 2_000_000);
    }

    fn written(pieces: &[(&[u8], u64)]) -> (tempfile::TempDir, Segment) {
        let directory = tempfile::tempdir().unwrap();
        let mut writer = SegmentWriter::new(
            directory.path().into(),
            OutputStream::Stdout,
            LogLimits::default(),
        );
        for (bytes, at_us) in pieces {
            writer.append(bytes, *at_us);
        }
        let segment = list(directory.path(), OutputStream::Stdout)
            .unwrap()
            .remove(0);
        (directory, segment)
    }

    #[test]
    fn records_are_found_by_position_and_by_time() {
        let (_directory, segment) = written(&[(b"ab", 10), (b"c", 10), (b"def", 20), (b"g", 30)]);
        let all = behind(&segment, 0, 9).unwrap();
        let pairs: Vec<(u64, u64)> = all.iter().map(|one| (one.end, one.at_us)).collect();
        assert_eq!(pairs, [(3, 10), (6, 20), (7, 30)]);
        assert_eq!(behind(&segment, 3, 1).unwrap(), all[1..2]);
        assert_eq!(behind(&segment, 7, 9).unwrap(), []);
        for (at_us, position) in [(0, 0), (10, 0), (11, 3), (20, 3), (31, 7)] {
            assert_eq!(position_at(&segment, at_us).unwrap(), position, "{at_us}");
        }
    }

    #[test]
    fn a_segment_without_records_came_when_it_was_written() {
        let (_directory, segment) = written(&[(b"abc", 10)]);
        std::fs::remove_file(segment.arrivals()).unwrap();
        let all = behind(&segment, 1, 9).unwrap();
        assert_eq!(all.len(), 1);
        assert!(all[0].end == 3 && all[0].at_us > 1_000_000);
        assert_eq!(position_at(&segment, 5).unwrap(), 0);
        assert_eq!(position_at(&segment, u64::MAX).unwrap(), 3);
    }
}
