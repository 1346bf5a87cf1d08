//! Heartbeats in flight and acknowledged: the basis of a worker's leases.

use std::collections::BTreeMap;

use muster_model::time::MonotonicMs;

/// Maximum number of heartbeats in flight that a worker remembers; an acknowledgement of an older one is
/// ignored.
pub const HEARTBEATS_REMEMBERED_MAX: usize = 256;

/// Heartbeats sent and acknowledged.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Heartbeats {
    /// Send times of unacknowledged heartbeats of this stream, by sequence.
    in_flight: BTreeMap<u64, MonotonicMs>,
    /// Newest acknowledged sequence of this stream.
    acknowledged: u64,
    /// Send time of the newest acknowledged heartbeat of this stream.
    contact: Option<MonotonicMs>,
}

impl Heartbeats {
    /// Starts a new stream: heartbeats sent before will not be acknowledged.
    pub(super) fn restart(&mut self) {
        self.in_flight.clear();
        self.acknowledged = 0;
        self.contact = None;
    }

    /// Records the send time before a heartbeat is sent.
    pub(super) fn sent(&mut self, sequence: u64, now: MonotonicMs) {
        self.in_flight.insert(sequence, now);
        if self.in_flight.len() > HEARTBEATS_REMEMBERED_MAX {
            self.in_flight.pop_first();
        }
    }

    /// Applies an acknowledgement; returns the send time of the heartbeat if it is remembered.
    pub(super) fn acknowledge(&mut self, sequence: u64) -> Option<MonotonicMs> {
        let sent_at = self.in_flight.get(&sequence).copied()?;
        self.in_flight = self.in_flight.split_off(&(sequence + 1));
        self.acknowledged = sequence;
        self.contact = self.contact.max(Some(sent_at));
        Some(sent_at)
    }

    pub(super) const fn acknowledged(&self) -> u64 {
        self.acknowledged
    }

    /// Send time of the newest acknowledged heartbeat of this stream. Older streams do not count: they say
    /// nothing about the length of a lease that starts now.
    pub(super) const fn contact(&self) -> Option<MonotonicMs> {
        self.contact
    }
}
