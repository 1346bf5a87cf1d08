//! Environment of a replica: disks, network and clock.

use std::fmt;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::network::Transport;
use crate::storage::disk::{LogDisk, SnapshotDisk};

/// Wall clock for the time stamps of entries.
pub trait Clock: Send + Sync + 'static {
    /// Milliseconds since 1970.
    fn now_ms(&self) -> u64;
}

/// The operating system's wall clock.
#[derive(Debug, Clone, Copy, Default)]
pub struct WallClock;

impl Clock for WallClock {
    #[expect(
        clippy::disallowed_methods,
        reason = "the one place where a replica reads the wall clock"
    )]
    fn now_ms(&self) -> u64 {
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH);
        since_epoch.map_or(0, |elapsed| {
            u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX)
        })
    }
}

/// Environment of a replica.
#[derive(Clone)]
pub struct Environment {
    /// Storage of the log, the vote and the identity.
    pub log: Arc<dyn LogDisk>,
    /// Storage of the snapshots.
    pub snapshots: Arc<dyn SnapshotDisk>,
    /// Transport to the other members.
    pub transport: Arc<dyn Transport>,
    /// Clock for the time stamps of entries.
    pub clock: Arc<dyn Clock>,
    /// Incarnation for new data: any number but 0 that no earlier data of this replica had.
    pub fresh_incarnation: u64,
}

impl fmt::Debug for Environment {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Seams").finish_non_exhaustive()
    }
}
