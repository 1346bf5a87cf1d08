//! The leader's memory of one worker.

use crate::ids::Revision;
use crate::time::MonotonicMs;

/// What the leader remembers of one worker's beats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Contact {
    /// When the last beat arrived here, or at an earlier leader that told us.
    pub heard_at: MonotonicMs,
    /// No beat can have been acknowledged by any leader after this instant; leases run from here.
    pub leased_at: MonotonicMs,
    /// Revision of the desired state that the worker said it works on.
    pub desired_revision: Revision,
}
