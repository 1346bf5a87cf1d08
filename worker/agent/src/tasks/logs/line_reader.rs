//! Lines of one output of an attempt, with the time at which each was completed.

use std::collections::VecDeque;
use std::io;
use std::path::PathBuf;

use muster_supervisor::output::arrivals::{self, Arrival};
use muster_supervisor::output::segments::{OutputStream, list};

use crate::limits::{LOG_CHUNK_BYTES, LOG_LINE_BYTES_MAX};
use crate::tasks::logs::reader::LogReader;

/// Arrival records read at once.
const RECORDS_AT_ONCE: usize = 4_096;

/// A line, or a part of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Line {
    /// The output.
    pub(crate) stream: OutputStream,
    /// Position of its first byte.
    pub(crate) offset: u64,
    /// Its bytes, with the line end if it has one.
    pub(crate) data: Vec<u8>,
    /// Arrival of its last byte, in microseconds since the Unix epoch.
    pub(crate) at_us: u64,
}

/// Reader of one output from a position on.
#[derive(Clone, Debug)]
pub(super) struct LineReader {
    directory: PathBuf,
    stream: OutputStream,
    reader: LogReader,
    /// Position of the first byte not returned yet.
    next: u64,
    /// Bytes read from that position on.
    bytes: Vec<u8>,
    /// Number of bytes already searched for a line end, without success.
    searched: usize,
    /// Arrival times of the bytes read: records that end behind `next`.
    arrivals: VecDeque<Arrival>,
    /// End of the requested range.
    until: u64,
    last_us: u64,
    /// Whether the bytes read must be returned before more is read: the output continues at another
    /// position.
    is_cut: bool,
    /// Whether the last read reached the end.
    is_at_end: bool,
}

impl LineReader {
    pub(super) fn new(directory: PathBuf, stream: OutputStream) -> Self {
        Self {
            reader: LogReader::new(directory.clone(), stream),
            directory,
            stream,
            next: 0,
            bytes: Vec::new(),
            searched: 0,
            arrivals: VecDeque::new(),
            until: u64::MAX,
            last_us: 0,
            is_cut: false,
            is_at_end: false,
        }
    }

    /// Starts at a position.
    pub(super) fn begin_at(&mut self, position: u64) {
        self.next = position;
    }

    /// Ends at the current end.
    pub(super) fn end_here(&mut self) -> io::Result<()> {
        self.until = self.reader.end()?;
        Ok(())
    }

    /// Removes the end position.
    pub(super) fn clear_end(&mut self) {
        self.until = u64::MAX;
    }

    /// Starts at this number of lines before the end.
    pub(super) fn begin_with_last(&mut self, lines: u64) -> io::Result<()> {
        let range = self.reader.last_lines(lines)?;
        self.begin_at(range.start);
        self.until = range.end;
        Ok(())
    }

    /// Starts at the line that was incomplete at a time.
    pub(super) fn begin_since(&mut self, since_us: u64) -> io::Result<()> {
        let mut position = 0;
        for segment in list(&self.directory, self.stream)? {
            position = match arrivals::position_at(&segment, since_us) {
                // Rotated away since it was listed.
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                found => found?,
            };
            if !arrivals::behind(&segment, position, 1)?.is_empty() {
                break;
            }
        }
        let start = position.saturating_sub(LOG_LINE_BYTES_MAX as u64);
        let before = self.reader.read_whole(start..position)?;
        let line_start = before.data.iter().rposition(|byte| *byte == b'\n');
        self.begin_at(match line_start {
            Some(index) => before.offset + index as u64 + 1,
            None => before.offset.min(position),
        });
        Ok(())
    }

    /// The output, and the position of its first byte not returned yet.
    pub(super) const fn position(&self) -> (OutputStream, u64) {
        (self.stream, self.next)
    }

    /// Forces the next call to read again.
    pub(super) fn reset_end(&mut self) {
        self.is_at_end = false;
    }

    /// End of the bytes with known arrival times.
    pub(super) fn known_end(&self) -> u64 {
        self.arrivals.back().map_or(self.next, |one| one.end)
    }

    /// End of the next line; without one, the position of the first byte not returned yet.
    pub(super) fn line_position(&mut self, all: bool) -> u64 {
        self.next_end(all).unwrap_or(self.next)
    }

    fn read_end(&self) -> u64 {
        self.next + self.bytes.len() as u64
    }

    /// Reads more, unless a complete line with known arrival time is available.
    pub(super) fn fill(&mut self) -> io::Result<()> {
        if self.next_at(false).is_some() {
            return Ok(());
        }
        while self.line_end().is_none() && !self.is_cut && self.bytes.len() < LOG_LINE_BYTES_MAX {
            let from = self.read_end();
            let wanted = usize::try_from(self.until.saturating_sub(from)).unwrap_or(usize::MAX);
            let mut piece = self.reader.read(from, LOG_CHUNK_BYTES.min(wanted))?;
            let room = self.until.saturating_sub(piece.offset);
            piece
                .data
                .truncate(usize::try_from(room).unwrap_or(usize::MAX));
            if piece.data.is_empty() {
                self.is_at_end = true;
                break;
            }
            if piece.offset == from {
                self.bytes.extend_from_slice(&piece.data);
            } else if self.bytes.is_empty() {
                self.next = piece.offset;
                self.bytes = piece.data;
            } else {
                // A gap: the line before it has no end.
                self.is_cut = true;
            }
        }
        self.learn_arrivals()
    }

    /// Completion time of the next line; none if it is incomplete or its time is not known yet. With `all`,
    /// the rest counts as a line with the last known arrival time.
    pub(super) fn next_at(&mut self, all: bool) -> Option<u64> {
        let end = self.next_end(all)?;
        let known = self.arrivals.iter().find(|arrival| arrival.end >= end);
        match known {
            Some(arrival) => Some(arrival.at_us),
            None if all => Some(self.arrivals.back().map_or(self.last_us, |one| one.at_us)),
            None => None,
        }
    }

    /// Arrival of the first byte that waits for a line end.
    pub(super) fn waits_since(&self) -> Option<u64> {
        let waiting = self.arrivals.iter().find(|arrival| arrival.end > self.next);
        waiting
            .filter(|_| !self.bytes.is_empty())
            .map(|arrival| arrival.at_us)
    }

    /// Returns the next line.
    pub(super) fn take(&mut self, all: bool) -> Option<Line> {
        let at_us = self.next_at(all)?;
        let end = self.next_end(all)?;
        let count = usize::try_from(end - self.next).unwrap_or(self.bytes.len());
        let rest = self.bytes.split_off(count);
        let line = Line {
            stream: self.stream,
            offset: self.next,
            data: std::mem::replace(&mut self.bytes, rest),
            at_us,
        };
        self.next = end;
        self.searched = 0;
        self.is_cut &= !self.bytes.is_empty();
        self.last_us = at_us;
        while self.arrivals.front().is_some_and(|one| one.end <= end) {
            self.arrivals.pop_front();
        }
        Some(line)
    }

    fn next_end(&mut self, all: bool) -> Option<u64> {
        let count = match self.line_end() {
            Some(count) => count,
            None if self.bytes.is_empty() => return None,
            None if self.is_cut || self.bytes.len() >= LOG_LINE_BYTES_MAX => self.bytes.len(),
            None if all && self.is_at_end => self.bytes.len(),
            None => return None,
        };
        Some(self.next + count as u64)
    }

    /// Number of bytes up to the first line end, inclusive.
    fn line_end(&mut self) -> Option<usize> {
        let unsearched = self.bytes.get(self.searched..).unwrap_or_default();
        match unsearched.iter().position(|byte| *byte == b'\n') {
            Some(index) => Some(self.searched + index + 1),
            None => {
                self.searched = self.bytes.len();
                None
            }
        }
    }

    /// Reads the arrival times of the bytes read, as far as they are recorded.
    fn learn_arrivals(&mut self) -> io::Result<()> {
        let end = self.read_end();
        for segment in list(&self.directory, self.stream)? {
            let known = self.known_end();
            if known >= end || segment.start >= end {
                break;
            }
            let found = match arrivals::behind(&segment, known, RECORDS_AT_ONCE) {
                // Rotated away since it was listed.
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                found => found?,
            };
            let is_all = found.len() < RECORDS_AT_ONCE;
            self.arrivals.extend(found);
            if !is_all {
                break;
            }
        }
        Ok(())
    }
}
