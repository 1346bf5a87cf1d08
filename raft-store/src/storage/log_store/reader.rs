//! Reader of the log, from the ring where possible.

use std::fmt::Debug;
use std::io;
use std::ops::{Bound, Range, RangeBounds};
use std::sync::Arc;

use bytes::Bytes;
use futures::Stream;
use openraft::{OptionalSend, RaftLogReader};

use crate::apply::state_machine::StateMachine;
use crate::sim::Runtime;
use crate::storage::codec::record;
use crate::storage::log_store::Shared;
use crate::types::{Entry, Types, Vote};

/// Reads the log concurrently with its writer.
pub(crate) struct LogReader<M: StateMachine> {
    shared: Arc<Shared<M>>,
}

impl<M: StateMachine> LogReader<M> {
    pub(super) fn new(shared: Arc<Shared<M>>) -> Self {
        Self { shared }
    }

    /// Reads a prefix of `range` of about `bytes_max`; at least one entry if the log has one.
    fn read(&self, range: Range<u64>, bytes_max: usize) -> io::Result<Vec<Entry<M>>> {
        if range.is_empty() {
            return Ok(Vec::new());
        }
        let ring_start = {
            let tail = self.shared.tail();
            match tail.ring.start() {
                Some(start) if start <= range.start => return Ok(tail.ring.read(range, bytes_max)),
                start => start,
            }
        };
        let to = ring_start.map_or(range.end, |start| start.min(range.end));
        let records = self.shared.disk.read_entries(range.start, to, bytes_max)?;
        if records.is_empty() && to < range.end {
            // The range begins in the ring.
            return Ok(self.shared.tail().ring.read(to..range.end, bytes_max));
        }
        records
            .into_iter()
            .map(|(index, bytes)| {
                record::decode(Bytes::from(bytes)).map_err(|error| {
                    let detail = format!("log entry {index} is unreadable: {error}");
                    io::Error::new(io::ErrorKind::InvalidData, detail)
                })
            })
            .collect()
    }

    /// Reads all entries of `range` that the log has.
    fn read_all(&self, range: Range<u64>) -> io::Result<Vec<Entry<M>>> {
        let mut entries = Vec::new();
        let mut from = range.start;
        loop {
            let part = self.read(from..range.end, usize::MAX)?;
            let Some(last) = part.last() else {
                return Ok(entries);
            };
            if let Some(before) = entries.last().map(|entry: &Entry<M>| entry.log_id.index)
                && part.first().map(|entry| entry.log_id.index) != Some(before + 1)
            {
                return Ok(entries);
            }
            from = last.log_id.index + 1;
            entries.extend(part);
        }
    }
}

fn to_range(range: &impl RangeBounds<u64>) -> Range<u64> {
    let start = match range.start_bound() {
        Bound::Included(&start) => start,
        Bound::Excluded(&start) => start.saturating_add(1),
        Bound::Unbounded => 0,
    };
    let end = match range.end_bound() {
        Bound::Included(&end) => end.saturating_add(1),
        Bound::Excluded(&end) => end,
        Bound::Unbounded => u64::MAX,
    };
    start..end
}

impl<M: StateMachine, R: Runtime> RaftLogReader<Types<M, R>> for LogReader<M> {
    async fn try_get_log_entries<RB>(&mut self, range: RB) -> Result<Vec<Entry<M>>, io::Error>
    where
        RB: RangeBounds<u64> + Clone + Debug + OptionalSend,
    {
        self.read_all(to_range(&range))
    }

    async fn read_vote(&mut self) -> Result<Option<Vote>, io::Error> {
        Ok(self.shared.tail().vote)
    }

    /// Streams in parts, so that a long replay does not hold the whole log in memory.
    async fn entries_stream<RB>(
        &mut self,
        range: RB,
    ) -> impl Stream<Item = Result<Entry<M>, io::Error>> + OptionalSend
    where
        RB: RangeBounds<u64> + Clone + Debug + OptionalSend,
    {
        let range = to_range(&range);
        let state = Parts {
            reader: Self::new(Arc::clone(&self.shared)),
            next: range.start,
            end: range.end,
            part: Vec::new().into_iter(),
        };
        Box::pin(futures::stream::try_unfold(state, Parts::advance))
    }

    async fn limited_get_log_entries(
        &mut self,
        start: u64,
        end: u64,
    ) -> Result<Vec<Entry<M>>, io::Error> {
        self.read(start..end, self.shared.limits.read_bytes_max)
    }
}

/// Iterator over a range in bounded parts.
struct Parts<M: StateMachine> {
    reader: LogReader<M>,
    next: u64,
    end: u64,
    part: std::vec::IntoIter<Entry<M>>,
}

impl<M: StateMachine> Parts<M> {
    async fn advance(mut self) -> io::Result<Option<(Entry<M>, Self)>> {
        if self.part.as_slice().is_empty() {
            let bytes_max = self.reader.shared.limits.read_bytes_max;
            self.part = self
                .reader
                .read(self.next..self.end, bytes_max)?
                .into_iter();
        }
        let Some(entry) = self.part.next() else {
            return Ok(None);
        };
        self.next = entry.log_id.index + 1;
        Ok(Some((entry, self)))
    }
}
