//! The last output of a task, kept in memory: writing it to disk may fail.

use std::collections::VecDeque;

use crate::limits::EVIDENCE_BYTES;

/// The last `EVIDENCE_BYTES` of one output.
#[derive(Debug, Default)]
pub(crate) struct Tail(VecDeque<u8>);

impl Tail {
    /// Appends output.
    pub(crate) fn append(&mut self, bytes: &[u8]) {
        let kept = &bytes[bytes.len().saturating_sub(EVIDENCE_BYTES)..];
        let surplus = (self.0.len() + kept.len()).saturating_sub(EVIDENCE_BYTES);
        self.0.drain(..surplus);
        self.0.extend(kept);
    }

    /// Converts it to text; invalid bytes are replaced.
    pub(crate) fn into_text(mut self) -> String {
        String::from_utf8_lossy(self.0.make_contiguous()).into_owned()
    }
}

/// The last output of a task.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct LastOutput {
    /// On standard output.
    pub(crate) stdout: String,
    /// On standard error.
    pub(crate) stderr: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_bytes_stay() {
        let mut tail = Tail::default();
        tail.append(b"first ");
        tail.append(&vec![b'x'; EVIDENCE_BYTES - 3]);
        tail.append(b"end");
        let text = tail.into_text();
        assert_eq!(text.len(), EVIDENCE_BYTES);
        assert!(text.starts_with('x') && text.ends_with("xend"));
        let mut tail = Tail::default();
        tail.append(&vec![b'y'; 3 * EVIDENCE_BYTES]);
        assert_eq!(tail.into_text().len(), EVIDENCE_BYTES);
    }
}
