//! Look-ups derived from the rest of the state, kept up to date by `apply`, so that no decision scans
//! all hosts or all jobs.

use std::cmp::Reverse;
use std::sync::Arc;

use imbl::{OrdMap, OrdSet};

use crate::ids::{AttemptEpoch, HostId, JobId, UnitIndex};
use crate::time::TimeMs;

/// Hosts of one kind: those that carry the same GPU model (empty for hosts without GPUs).
pub type HostClass = Arc<str>;

/// Order in which jobs are considered: highest priority first, then the oldest.
pub type WaitingKey = (Reverse<i32>, JobId);

/// Derived look-ups; rebuilt from the rest when a snapshot is read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Index {
    /// Jobs with waiting units, by queue, in order.
    pub waiting: OrdMap<Arc<str>, OrdSet<WaitingKey>>,
    /// Units that wait for the end of a back-off, by that end (they are in `waiting` too).
    pub delayed: OrdSet<(TimeMs, JobId, UnitIndex)>,
    /// Hosts that accept work, by class and number of free GPUs.
    pub free: OrdMap<HostClass, OrdSet<(u32, HostId)>>,
    /// Units that hold resources on a host.
    pub on_host: OrdMap<(HostId, JobId, UnitIndex), AttemptEpoch>,
    /// Finished jobs, oldest first.
    pub finished: OrdSet<(TimeMs, JobId)>,
    /// Blocks that end by themselves: expiry, host, and position of the GPU in it (none = the host).
    pub expiring: OrdSet<(TimeMs, HostId, Option<u32>)>,
}
