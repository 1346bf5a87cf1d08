//! Records of `/dev/kmsg`: `priority,sequence,microseconds,flags;text`.

use serde::{Deserialize, Serialize};

/// The facility of the kernel itself. Records written to `/dev/kmsg` by user space never have it.
const KERNEL_FACILITY: u32 = 0;

/// A record as read from the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Facility of the writer: 0 is the kernel.
    pub facility: u32,
    /// Severity level: 0 the most urgent, 7 the least.
    pub level: u32,
    /// Number of the record since boot.
    pub sequence: u64,
    /// Microseconds since boot.
    pub at_us: u64,
    /// Text of the record; may have several lines.
    pub text: String,
}

/// A text that is not a record.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a kernel log record (expected `priority,sequence,microseconds,flags;text`)")]
pub struct RecordError(pub String);

impl Record {
    /// Parses the result of one `read` of `/dev/kmsg`.
    ///
    /// # Errors
    /// It is not a record.
    pub fn parse(raw: &str) -> Result<Self, RecordError> {
        Self::read(raw).ok_or_else(|| RecordError(raw.chars().take(80).collect()))
    }

    fn read(raw: &str) -> Option<Self> {
        let (head, rest) = raw.split_once(';')?;
        let mut numbers = head.split(',');
        let priority: u32 = numbers.next()?.parse().ok()?;
        let sequence = numbers.next()?.parse().ok()?;
        let at_us = numbers.next()?.parse().ok()?;
        // Later lines are properties of the device.
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

/// Unescapes unprintable bytes, written as `\x0a`.
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

/// Read position in the log. Kept across restarts of the agent, so that nothing is read twice and gaps are
/// detected.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cursor {
    /// The boot that `next` belongs to; empty before the first record.
    boot_id: String,
    /// Sequence of the next record.
    next: u64,
}

/// Relation of a record to the cursor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SequenceCheck {
    /// The next record.
    New,
    /// A record that was read before.
    Known,
    /// A later record: this number of records in between was overwritten before they were read.
    AfterGap(u64),
}

impl Cursor {
    /// Advances to a record.
    pub fn accept(&mut self, boot_id: &str, sequence: u64) -> SequenceCheck {
        let is_first = self.boot_id.is_empty();
        if self.boot_id != boot_id {
            boot_id.clone_into(&mut self.boot_id);
            // Records of an earlier boot are lost, and this boot is read from the first available record.
            self.next = if is_first { sequence } else { 0 };
        }
        let expected = self.next;
        if sequence < expected {
            return SequenceCheck::Known;
        }
        self.next = sequence.saturating_add(1);
        match sequence - expected {
            0 => SequenceCheck::New,
            lost => SequenceCheck::AfterGap(lost),
        }
    }
}
