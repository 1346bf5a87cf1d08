//! What is done to a cluster's data without a running replica: backups are read, new groups are founded from them, and a
//! replica that survived the loss of its majority goes on alone.

use muster_engine::state::State;
use muster_raft_store as store;

pub use store::backup::{BackupError, Key, KeyError, reseal};
pub use store::{Foundation, Loss, Peer, RefoundError};

/// A backup of a cluster, read and checked.
pub type Backup = store::backup::Backup<State>;
/// What a replica that survived has on its disk.
pub type Survivor = store::Survivor<State>;
