//! Who leads, as this replica sees it.

use crate::peer::Peer;

/// Who leads, as this replica sees it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Leadership {
    /// The leader, where one is known: none once it has been out of touch for [`leader_silence_max`](crate::Timings::leader_silence_max).
    pub leader: Option<Peer>,
    /// The Raft term. It is no fencing number: leadership may be lost and found within a term.
    pub term: u64,
    /// Whether this replica leads and has heard from a majority within its lease.
    pub is_self: bool,
    /// Whether no leader has been known for [`replaced_within`](crate::Timings::replaced_within): the replica is cut off, or there is no
    /// majority.
    pub is_lost: bool,
    /// Whether the replica has stopped for good.
    pub stopped: bool,
}
