//! Offline operations on a cluster's data: reading backups, rebuilding a group from them, and disaster
//! recovery from a single replica after the loss of the majority.

use muster_engine::state::State;
use muster_raft_store as store;

pub use store::recovery::backup::{BackupError, Key, KeyError, reseal};
pub use store::{Peer, PossibleLoss, RebuildTarget, RecoveryError};

/// A backup of a cluster, read and verified.
pub type Backup = store::recovery::backup::Backup<State>;
/// Data of the source replica on disk.
pub type SourceReplica = store::SourceReplica<State>;
