//! Cache of the most recent entries, decoded.

use std::collections::VecDeque;
use std::ops::Range;

use crate::apply::state_machine::StateMachine;
use crate::types::Entry;

/// Consecutive entries up to the end of the log, bounded by count and bytes.
pub(super) struct Ring<M: StateMachine> {
    entries: VecDeque<(Entry<M>, usize)>,
    bytes: usize,
    entries_max: usize,
    bytes_max: usize,
}

impl<M: StateMachine> Ring<M> {
    pub(super) fn new(entries_max: usize, bytes_max: usize) -> Self {
        Self {
            entries: VecDeque::new(),
            bytes: 0,
            entries_max,
            bytes_max,
        }
    }

    /// Adds the entry after the last one; an entry at any other position resets the ring.
    pub(super) fn push(&mut self, entry: Entry<M>, bytes: usize) {
        if self.end().is_some_and(|end| end != entry.log_id.index) {
            self.entries.clear();
            self.bytes = 0;
        }
        self.entries.push_back((entry, bytes));
        self.bytes += bytes;
        while self.entries.len() > self.entries_max || self.bytes > self.bytes_max {
            if !self.pop_front() {
                break;
            }
        }
    }

    /// Removes entries from index `from` on.
    pub(super) fn truncate(&mut self, from: u64) {
        while self
            .entries
            .back()
            .is_some_and(|(entry, _)| entry.log_id.index >= from)
        {
            if let Some((_, bytes)) = self.entries.pop_back() {
                self.bytes -= bytes;
            }
        }
    }

    /// Removes entries up to index `upto`.
    pub(super) fn purge(&mut self, upto: u64) {
        while self.start().is_some_and(|start| start <= upto) {
            self.pop_front();
        }
    }

    /// Index of the first entry kept.
    pub(super) fn start(&self) -> Option<u64> {
        self.entries.front().map(|(entry, _)| entry.log_id.index)
    }

    /// Entries of `range`, which must not begin before the ring, until `bytes_max` is reached; at least one
    /// if there is one.
    pub(super) fn read(&self, range: Range<u64>, bytes_max: usize) -> Vec<Entry<M>> {
        let Some(start) = self.start() else {
            return Vec::new();
        };
        let skip = usize::try_from(range.start.saturating_sub(start)).unwrap_or(usize::MAX);
        let mut read = Vec::new();
        let mut bytes = 0;
        for (entry, size) in self.entries.iter().skip(skip) {
            bytes += size;
            if entry.log_id.index >= range.end || (!read.is_empty() && bytes > bytes_max) {
                break;
            }
            read.push(entry.clone());
        }
        read
    }

    fn end(&self) -> Option<u64> {
        self.entries.back().map(|(entry, _)| entry.log_id.index + 1)
    }

    fn pop_front(&mut self) -> bool {
        match self.entries.pop_front() {
            Some((_, bytes)) => {
                self.bytes -= bytes;
                true
            }
            None => false,
        }
    }
}
