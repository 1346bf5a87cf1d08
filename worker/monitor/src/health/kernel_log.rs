//! Reader of the kernel's log, on a separate thread.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use muster_health::kernel_log::{Cursor, Record, Scanner};
use rustix::io::Errno;
use tokio::sync::mpsc::Sender;

use crate::health::Observation;
use crate::limits::{
    KERNEL_LOG_LOOK_BACK_US_MAX, KERNEL_LOG_POLL, KERNEL_LOG_RECORD_BYTES_MAX, KERNEL_LOG_RETRY,
};
use crate::metrics;

/// A log that is read record by record.
pub(super) struct KernelLog {
    path: PathBuf,
    boot_id: String,
    scanner: Scanner,
    /// Records before this time are ignored: the log was never read before, and old faults are over.
    since_us: u64,
    forged: u64,
    seen: Sender<Observation>,
}

impl KernelLog {
    /// The log of a boot, read from the scanner's cursor on.
    pub(super) fn new(
        path: &Path,
        boot_id: &str,
        scanner: Scanner,
        seen: Sender<Observation>,
    ) -> Self {
        let is_first = *scanner.cursor() == Cursor::default();
        Self {
            path: path.to_owned(),
            boot_id: boot_id.to_owned(),
            scanner,
            since_us: if is_first { look_back_us() } else { 0 },
            forged: 0,
            seen,
        }
    }

    /// Reads until the receiver is gone.
    pub(super) fn run(mut self) {
        let mut is_logged = false;
        while !self.seen.is_closed() {
            match self.follow() {
                Ok(()) => return,
                Err(error) if is_logged => {
                    tracing::debug!(path = %self.path.display(), %error, "the kernel's log cannot be read");
                }
                Err(error) => {
                    is_logged = true;
                    tracing::warn!(path = %self.path.display(), %error,
                        "the kernel's log cannot be read: faults are detected by other means only \
                         (set `health.kernel_log = \"off\"` if that is intended)");
                }
            }
            std::thread::park_timeout(KERNEL_LOG_RETRY);
        }
    }

    /// Reads until the receiver is gone or the log cannot be read.
    fn follow(&mut self) -> io::Result<()> {
        let flags = i32::try_from(rustix::fs::OFlags::NONBLOCK.bits()).unwrap_or(0);
        let file = OpenOptions::new()
            .read(true)
            .custom_flags(flags)
            .open(&self.path)?;
        let kind = file.metadata()?.file_type();
        if kind.is_char_device() {
            // Only the kernel's own records carry their time.
            self.records(file)
        } else {
            self.since_us = 0;
            self.lines(file)
        }
    }

    /// Reads the kernel's device, one record per read.
    fn records(&mut self, mut file: impl Read) -> io::Result<()> {
        let mut buffer = vec![0; KERNEL_LOG_RECORD_BYTES_MAX];
        while !self.seen.is_closed() {
            match file.read(&mut buffer) {
                Ok(0) => std::thread::park_timeout(KERNEL_LOG_POLL),
                Ok(bytes) => self.take(&String::from_utf8_lossy(&buffer[..bytes])),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    std::thread::park_timeout(KERNEL_LOG_POLL);
                }
                // Unread records were overwritten: the gap in the sequence numbers shows how many.
                Err(error) if Errno::from_io_error(&error) == Some(Errno::PIPE) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Reads a file or pipe, one record per line.
    fn lines(&mut self, mut file: File) -> io::Result<()> {
        let mut buffer = vec![0; KERNEL_LOG_RECORD_BYTES_MAX];
        let mut rest = Vec::new();
        while !self.seen.is_closed() {
            match file.read(&mut buffer) {
                Ok(0) => std::thread::park_timeout(KERNEL_LOG_POLL),
                Ok(bytes) => {
                    rest.extend_from_slice(&buffer[..bytes]);
                    while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
                        let line: Vec<u8> = rest.drain(..=end).collect();
                        self.take(String::from_utf8_lossy(&line).trim_end());
                    }
                    rest.truncate(KERNEL_LOG_RECORD_BYTES_MAX);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    std::thread::park_timeout(KERNEL_LOG_POLL);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn take(&mut self, raw: &str) {
        let scanned = match self.scanner.read(&self.boot_id, raw) {
            Ok(scanned) => scanned,
            Err(error) => {
                tracing::debug!(%error, "unknown format of a kernel log record");
                return;
            }
        };
        let forged = self.scanner.forged();
        metrics::kernel_log_forged(forged - self.forged);
        self.forged = forged;
        if scanned.lost > 0 {
            metrics::kernel_log_gap(scanned.lost);
            self.send(Observation::Lost(scanned.lost));
        }
        let Some(event) = scanned.event else { return };
        if Record::parse(raw).is_ok_and(|record| record.at_us < self.since_us) {
            return;
        }
        let cursor = Some(self.scanner.cursor().clone());
        let text = scanned.text;
        self.send(Observation::Line {
            event,
            text,
            cursor,
        });
    }

    fn send(&self, seen: Observation) {
        // Closed: the agent is ending, and so does this thread.
        drop(self.seen.blocking_send(seen));
    }
}

/// Time from which the log of a host counts if it was never read, in microseconds since boot.
fn look_back_us() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    (seconds * 1_000_000).saturating_sub(KERNEL_LOG_LOOK_BACK_US_MAX)
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a failed test should panic")]
mod tests {
    use std::io::Write;

    use muster_health::kernel_log::{BusMap, Event, TrustedWriters};

    use super::*;

    fn codes(path: &Path, cursor: Cursor, count: usize) -> (Vec<u32>, u64, Cursor) {
        let (sender, mut seen) = tokio::sync::mpsc::channel(64);
        let scanner = Scanner::new(TrustedWriters::Tests, cursor, BusMap::default());
        let log = KernelLog::new(path, "boot", scanner, sender);
        let thread = std::thread::spawn(move || log.run());
        let (mut found, mut gap, mut last) = (Vec::new(), 0, Cursor::default());
        while found.len() < count {
            match seen.blocking_recv().unwrap() {
                Observation::Line { event, cursor, .. } => {
                    let Event::Xid { xid, .. } = event else {
                        unreachable!("{event:?}")
                    };
                    found.push(xid.code);
                    last = cursor.unwrap();
                }
                Observation::Lost(lost) => gap += lost,
                other => unreachable!("{other:?}"),
            }
        }
        drop(seen);
        thread.join().unwrap();
        (found, gap, last)
    }

    /// Simulates the kernel's device: a record or an error at each read, then end of data.
    struct Device(std::collections::VecDeque<Result<String, Errno>>);

    impl Read for Device {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let next = self.0.pop_front().unwrap_or(Err(Errno::AGAIN));
            let record = next.map_err(io::Error::from)?;
            buffer[..record.len()].copy_from_slice(record.as_bytes());
            Ok(record.len())
        }
    }

    /// Records overwritten before they were read appear to the reader as one broken pipe and a gap in the
    /// numbers.
    #[test]
    fn a_log_that_overran_is_read_on_and_its_gap_is_reported() {
        // The kernel's current time: old records are ignored.
        let record = |sequence: u64, code: u32| {
            let at_us = u64::MAX / 2;
            Ok(format!(
                "12,{sequence},{at_us},-;NVRM: Xid (PCI:0000:0f:00): {code}, x\n"
            ))
        };
        let reads = [
            record(1, 79),
            Err(Errno::INTR),
            Err(Errno::PIPE),
            record(9, 48),
            record(10, 31),
        ];
        let (sender, mut seen) = tokio::sync::mpsc::channel(64);
        let scanner = Scanner::new(TrustedWriters::Tests, Cursor::default(), BusMap::default());
        let mut log = KernelLog::new(Path::new("/dev/kmsg"), "boot", scanner, sender);
        let thread = std::thread::spawn(move || log.records(Device(reads.into())));
        let mut events = Vec::new();
        while events.len() < 4 {
            events.push(match seen.blocking_recv().unwrap() {
                Observation::Line {
                    event: Event::Xid { xid, .. },
                    ..
                } => format!("xid {}", xid.code),
                Observation::Lost(lost) => format!("{lost} lost"),
                other => unreachable!("{other:?}"),
            });
        }
        assert_eq!(events, ["xid 79", "7 lost", "xid 48", "xid 31"]);
        drop(seen);
        thread.join().unwrap().unwrap();
    }

    #[test]
    fn a_file_is_followed_from_the_cursor_on_and_gaps_are_reported() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("kmsg");
        let mut file = File::create(&path).unwrap();
        let line = |sequence: u64, code: u32| {
            format!("12,{sequence},1,-;NVRM: Xid (PCI:0000:0f:00): {code}, x\n")
        };
        write!(file, "{} KEY=value\nnonsense\n{}", line(1, 79), line(2, 48)).unwrap();
        let (found, gap, cursor) = codes(&path, Cursor::default(), 2);
        assert_eq!((found, gap), (vec![79, 48], 0));
        // A record is written in two pieces.
        let next = line(9, 31);
        let (first, second) = next.split_at(20);
        file.write_all(first.as_bytes()).unwrap();
        file.write_all(second.as_bytes()).unwrap();
        let (found, gap, _) = codes(&path, cursor, 1);
        assert_eq!((found, gap), (vec![31], 6));
    }
}
