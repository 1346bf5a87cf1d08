//! Reader of a log by position while it is written.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::ops::Range;
use std::path::PathBuf;

use muster_supervisor::output::segments::{OutputStream, Segment, list};

/// Bytes read backwards at a time when looking for the last lines.
const TAIL_BLOCK_BYTES: u64 = 64 << 10;

/// Attempts to find the last lines while rotation removes them.
const TAIL_TRIES_MAX: u32 = 16;

/// One attempt's output on one stream.
#[derive(Clone, Debug)]
pub(crate) struct LogReader {
    directory: PathBuf,
    stream: OutputStream,
}

/// Bytes of a log with their position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LogPiece {
    /// Position of the first byte in the whole output.
    pub(crate) offset: u64,
    /// The bytes; empty at the current end.
    pub(crate) data: Vec<u8>,
}

impl LogPiece {
    /// Position behind the last byte.
    pub(crate) fn end(&self) -> u64 {
        self.offset + self.data.len() as u64
    }
}

impl LogReader {
    /// A reader of the logs in a directory that may not exist yet.
    pub(crate) const fn new(directory: PathBuf, stream: OutputStream) -> Self {
        Self { directory, stream }
    }

    /// At most `limit` bytes from a position, or from the oldest kept ones behind it.
    ///
    /// # Errors
    /// Of the file system.
    pub(crate) fn read(&self, offset: u64, limit: usize) -> io::Result<LogPiece> {
        let segments = list(&self.directory, self.stream)?;
        let first = segments
            .iter()
            .rposition(|segment| segment.start <= offset)
            .unwrap_or(0);
        for segment in segments.iter().skip(first) {
            let offset = offset.max(segment.start);
            let piece = match read_segment(segment, offset, limit) {
                // Rotated away since it was listed: the next one is the oldest kept.
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                other => other?,
            };
            if !piece.data.is_empty() {
                return Ok(piece);
            }
        }
        Ok(LogPiece {
            offset,
            data: Vec::new(),
        })
    }

    /// The kept bytes of a range, contiguous up to its end.
    ///
    /// # Errors
    /// Of the file system.
    pub(crate) fn read_whole(&self, range: Range<u64>) -> io::Result<LogPiece> {
        let mut whole = LogPiece {
            offset: range.start,
            data: Vec::new(),
        };
        while whole.end() < range.end {
            let wanted = usize::try_from(range.end - whole.end()).unwrap_or(usize::MAX);
            let mut piece = self.read(whole.end(), wanted)?;
            let room = range.end.saturating_sub(piece.offset);
            piece
                .data
                .truncate(usize::try_from(room).unwrap_or(usize::MAX));
            if piece.data.is_empty() {
                break;
            }
            if piece.offset == whole.end() {
                whole.data.extend_from_slice(&piece.data);
            } else {
                whole = piece;
            }
        }
        Ok(whole)
    }

    /// Start of the last `lines` lines, and end of the last one: output written meanwhile is excluded,
    /// otherwise the tail of a task that prints without pause would never be found.
    ///
    /// # Errors
    /// Of the file system.
    pub(crate) fn last_lines(&self, lines: u64) -> io::Result<Range<u64>> {
        let end = self.end()?;
        let mut ends_before = 0u64;
        let mut begin = end;
        if lines == 0 {
            return Ok(begin..end);
        }
        for segment in list(&self.directory, self.stream)?.iter().rev() {
            let mut file = match File::open(&segment.path) {
                // Rotated away since it was listed, with all earlier ones.
                Err(error) if error.kind() == io::ErrorKind::NotFound => break,
                file => file?,
            };
            begin = begin.min(segment.start);
            let mut unread = end
                .saturating_sub(segment.start)
                .min(file.metadata()?.len());
            while unread > 0 {
                let start = unread.saturating_sub(TAIL_BLOCK_BYTES);
                let mut block = vec![0u8; usize::try_from(unread - start).unwrap_or(0)];
                file.seek(SeekFrom::Start(start))?;
                file.read_exact(&mut block)?;
                for (index, byte) in block.iter().enumerate().rev() {
                    let after = segment.start + start + index as u64 + 1;
                    // The line end of the last line does not count as one before it.
                    if *byte == b'\n' && after != end {
                        ends_before += 1;
                        if ends_before == lines {
                            return Ok(after..end);
                        }
                    }
                }
                unread = start;
            }
        }
        Ok(begin..end)
    }

    /// The range of the last `lines` lines, and its first bytes, at most `limit`: rotation of a task that
    /// prints without pause may remove them before a later call could read them.
    ///
    /// # Errors
    /// Of the file system.
    pub(crate) fn tail(&self, lines: u64, limit: usize) -> io::Result<(Range<u64>, LogPiece)> {
        let mut tries = TAIL_TRIES_MAX;
        loop {
            let range = self.last_lines(lines)?;
            let wanted = usize::try_from(range.end - range.start).unwrap_or(usize::MAX);
            let piece = self.read(range.start, limit.min(wanted))?;
            tries -= 1;
            if piece.offset == range.start || tries == 0 {
                return Ok((range, piece));
            }
        }
    }

    /// Position behind the last byte at this time.
    ///
    /// # Errors
    /// Of the file system.
    pub(crate) fn end(&self) -> io::Result<u64> {
        match list(&self.directory, self.stream)?.last() {
            Some(segment) => Ok(segment.start + segment.path.metadata()?.len()),
            None => Ok(0),
        }
    }
}

fn read_segment(segment: &Segment, offset: u64, limit: usize) -> io::Result<LogPiece> {
    let mut file = File::open(&segment.path)?;
    file.seek(SeekFrom::Start(offset - segment.start))?;
    let mut data = Vec::new();
    file.take(limit as u64).read_to_end(&mut data)?;
    Ok(LogPiece { offset, data })
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a failed test should panic")]
mod tests {
    use muster_supervisor::LogLimits;
    use muster_supervisor::output::segments::SegmentWriter;

    use super::*;

    const LIMITS: LogLimits = LogLimits {
        segment_bytes: 10,
        segments_max: 3,
        unshipped_segments_max: None,
    };

    fn written(bytes: &[u8]) -> (tempfile::TempDir, LogReader) {
        let directory = tempfile::tempdir().unwrap();
        let logs = directory.path().join("logs");
        let mut writer = SegmentWriter::new(logs.clone(), OutputStream::Stdout, LIMITS);
        for piece in bytes.chunks(7) {
            writer.append(piece, 1);
        }
        (directory, LogReader::new(logs, OutputStream::Stdout))
    }

    #[test]
    fn an_endless_log_keeps_its_newest_bytes_at_their_positions() {
        let bytes: Vec<u8> = (0..=255).collect();
        let (_directory, reader) = written(&bytes);
        let piece = reader.read(0, 100).unwrap();
        assert_eq!(piece.offset, 230);
        assert_eq!(piece.data, &bytes[230..240]);
        assert_eq!(reader.read(245, 3).unwrap().data, &bytes[245..248]);
        assert_eq!(reader.read(250, 100).unwrap().end(), 256);
        assert_eq!(reader.read(256, 100).unwrap().data, b"");
    }

    #[test]
    fn the_last_lines_are_found_across_segments() {
        let (_directory, reader) = written(b"one\ntwo\nthree\nfour\n");
        for (lines, offset) in [(0, 19), (1, 14), (2, 8), (3, 4), (4, 0), (9, 0)] {
            assert_eq!(reader.last_lines(lines).unwrap(), offset..19, "{lines}");
        }
    }

    #[test]
    fn a_missing_log_is_empty() {
        let reader = LogReader::new("/nonexistent/logs".into(), OutputStream::Stderr);
        assert_eq!(reader.read(5, 10).unwrap().data, b"");
        assert_eq!(reader.last_lines(3).unwrap(), 0..0);
    }
}
