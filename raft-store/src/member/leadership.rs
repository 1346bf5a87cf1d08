//! Leadership as this replica observes it.

use crate::member::peer::Peer;

/// Leadership as this replica observes it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Leadership {
    /// The leader, if known: none after a silence of
    /// [`leader_silence_max`](crate::Timings::leader_silence_max).
    pub leader: Option<Peer>,
    /// The Raft term. Not a fencing number: leadership may be lost and regained within a term.
    pub term: u64,
    /// Whether this replica leads and a majority has answered within its lease.
    pub is_self: bool,
    /// Whether no leader has been known for [`replaced_within`](crate::Timings::replaced_within): the
    /// replica is partitioned, or there is no majority.
    pub is_lost: bool,
    /// Whether the replica has stopped permanently.
    pub stopped: bool,
}
