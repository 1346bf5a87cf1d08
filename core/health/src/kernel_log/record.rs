//! Records of `/dev/kmsg`: `priority,sequence,microseconds,flags;text`.

use serde::{Deserialize, Serialize};

/// The facility of the kernel itself. What user space writes to `/dev/kmsg` never has it.
const KERNEL_FACILITY: u32 = 0;

/// A record as the kernel hands it out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Who wrote it: 0 is the kernel.
    pub facility: u32,
    /// How urgent it is: 0 the most, 7 the least.
    pub level: u32,
    /// Counted up by one for every record since boot.
    pub sequence: u64,
    /// Microseconds since boot.
    pub at_us: u64,
    /// What it says; several lines if it says several.
    pub text: String,
}

/// A text that is no record.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is no record of the kernel's log (expected `priority,sequence,microseconds,flags;text`)"
)]
pub struct RecordError(pub String);

impl Record {
    /// Reads what one `read` of `/dev/kmsg` gave.
    ///
    /// # Errors
    /// It is no record.
    pub fn parse(raw: &str) -> Result<Self, RecordError> {
        Self::read(raw).ok_or_else(|| RecordError(raw.chars().take(80).collect()))
    }

    fn read(raw: &str) -> Option<Self> {
        let (head, rest) = raw.split_once(';')?;
        let mut numbers = head.split(',');
        let priority: u32 = numbers.next()?.parse().ok()?;
        let sequence = numbers.next()?.parse().ok()?;
        let at_us = numbers.next()?.parse().ok()?;
        // What follows the first line are properties of the device that it is about.
        let line = rest.lines().next().unwrap_or_default();
        Some(Self {
            facility: priority >> 3,
            level: priority & 7,
            sequence,
            at_us,
            text: unescape(line),
        })
    }

    /// Whether the kernel itself wrote it.
    #[must_use]
    pub const fn is_kernels(&self) -> bool {
        self.facility == KERNEL_FACILITY
    }
}

/// Bytes that cannot be printed stand as `\x0a`.
fn unescape(line: &str) -> String {
    let mut bytes = Vec::with_capacity(line.len());
    let mut rest = line;
    while let Some(at) = rest.find("\\x") {
        bytes.extend_from_slice(&rest.as_bytes()[..at]);
        let digits = rest.get(at + 2..at + 4);
        match digits.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = &rest[at + 4..];
            }
            None => {
                bytes.extend_from_slice(b"\\x");
                rest = &rest[at + 2..];
            }
        }
    }
    bytes.extend_from_slice(rest.as_bytes());
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Up to where a log was read. Kept across restarts of the agent, so that nothing is read twice and what is missing is known.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cursor {
    /// The boot that `next` belongs to; empty before the first record.
    boot_id: String,
    /// Sequence of the next record.
    next: u64,
}

/// What a record is to a cursor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heard {
    /// The next one.
    New,
    /// One that was read before.
    Known,
    /// A later one: so many between were overwritten before they were read.
    AfterGap(u64),
}

impl Cursor {
    /// Goes on to a record.
    pub fn accept(&mut self, boot_id: &str, sequence: u64) -> Heard {
        let is_first = self.boot_id.is_empty();
        if self.boot_id != boot_id {
            boot_id.clone_into(&mut self.boot_id);
            // Of an earlier boot nothing can be read any more, and this one is read from where it can be.
            self.next = if is_first { sequence } else { 0 };
        }
        let expected = self.next;
        if sequence < expected {
            return Heard::Known;
        }
        self.next = sequence.saturating_add(1);
        match sequence - expected {
            0 => Heard::New,
            lost => Heard::AfterGap(lost),
        }
    }
}
