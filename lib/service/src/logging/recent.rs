//! The newest log lines, kept in memory: log files may be anywhere, or nowhere.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::sync::{Mutex, PoisonError};

use tracing_subscriber::fmt::MakeWriter;

/// Bytes of lines kept: some thousand lines at level info.
pub const RECENT_BYTES_MAX: usize = 512 << 10;
/// Longest line in bytes.
const LINE_BYTES_MAX: usize = 8 << 10;

static LINES: Mutex<Ring> = Mutex::new(Ring::new());

/// Returns the newest lines of this process's log, oldest first, one JSON document each, with secrets
/// redacted.
#[must_use]
pub fn recent_lines() -> Vec<String> {
    let ring = LINES.lock().unwrap_or_else(PoisonError::into_inner);
    let lines: Vec<String> = ring.lines.iter().cloned().collect();
    lines
        .iter()
        .map(|line| crate::logging::redact(line))
        .collect()
}

#[derive(Debug)]
struct Ring {
    lines: VecDeque<String>,
    bytes: usize,
}

impl Ring {
    const fn new() -> Self {
        Self {
            lines: VecDeque::new(),
            bytes: 0,
        }
    }

    fn push(&mut self, mut line: String) {
        line.truncate(line.floor_char_boundary(LINE_BYTES_MAX));
        self.bytes += line.len();
        self.lines.push_back(line);
        while self.bytes > RECENT_BYTES_MAX {
            let Some(oldest) = self.lines.pop_front() else {
                break;
            };
            self.bytes -= oldest.len();
        }
    }
}

/// Writer into the memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Recent;

impl MakeWriter<'_> for Recent {
    type Writer = Line;

    fn make_writer(&self) -> Line {
        Line(Vec::new())
    }
}

/// One line, stored when it is complete.
#[derive(Debug)]
pub(crate) struct Line(Vec<u8>);

impl Write for Line {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        let text = String::from_utf8_lossy(&self.0);
        let line = text.trim_end();
        if !line.is_empty() {
            let mut lines = LINES.lock().unwrap_or_else(PoisonError::into_inner);
            lines.push(line.to_owned());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_lines_are_dropped_and_long_ones_truncated() {
        let mut ring = Ring::new();
        ring.push("ä".repeat(LINE_BYTES_MAX));
        assert_eq!(ring.bytes, LINE_BYTES_MAX);
        for number in 0..RECENT_BYTES_MAX / 8 {
            ring.push(format!("{number:08}"));
        }
        assert_eq!(ring.lines.len(), RECENT_BYTES_MAX / 8);
        assert!(ring.bytes <= RECENT_BYTES_MAX);
        let newest = ring.lines.back().map(String::as_str);
        assert_eq!(newest, Some("00065535"));
    }
}
