//! Saved files, and disaster recovery.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::instant::Instant;

/// A saved file and its contents.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Backup {
    pub file: String,
    pub cluster_id: String,
    pub revision: u64,
    pub taken_at: Instant,
    /// The replica that saved it.
    pub replica_id: u64,
    pub version: String,
    pub term: u64,
    pub index: u64,
    pub members: Vec<SavedMember>,
    pub jobs: SavedJobs,
    pub hosts: usize,
    pub gpus: usize,
    pub queues: usize,
    pub size_bytes: u64,
    pub sha256: String,
    pub encrypted: bool,
    /// False if the other build computes state hashes differently.
    pub state_hash_is_known: bool,
}

/// A member of a saved group.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SavedMember {
    pub id: u64,
    pub address: String,
    pub votes: bool,
}

/// Number of saved jobs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SavedJobs {
    pub live: usize,
    pub ended: usize,
}

/// The first replica of a new cluster, made from a saved file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RestoredReplica {
    pub cluster_id: String,
    pub replica_id: u64,
    pub address: String,
    pub data_dir: String,
    pub snapshot: Backup,
}

/// The data of the replica that a group is rebuilt from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RecoveredReplica {
    pub cluster_id: String,
    pub replica_id: u64,
    pub revision: u64,
    pub term: u64,
    pub index: u64,
    pub voted_term: u64,
    pub unconfirmed_entries: u64,
    pub written_at: Instant,
    pub members: Vec<SavedMember>,
    /// Where its old data is kept; null in a dry run.
    pub kept_in: Option<String>,
}
