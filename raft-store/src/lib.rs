//! Replication of one state machine over openraft and RocksDB.
//!
//! The rest of the workspace uses [`StateMachine`] (what is replicated) and [`Handle`] (one replica of it);
//! no openraft type leaves this crate except through [`sim`], the interface of the deterministic
//! simulation.
//!
//! Path of a command: [`Handle::propose`] encodes it and queues it; the batcher packs queued commands into
//! one log entry; openraft replicates the entry, each replica appends it with one write and one shared
//! sync; the applier feeds its commands to the state machine; the outcomes return to the proposer.
//! Everything on disk and on the wire is protobuf inside versioned, checksummed frames ([`codec`]).
//!
//! Deliberately absent: retries of failed syncs (a replica whose disk fails stops), reads that bypass the
//! group's agreement, and any decision about the application.

#[cfg(test)]
extern crate self as muster_raft_store;

mod apply;
mod error;
pub mod fuzz_decoders;
mod member;
pub mod network;
pub mod recovery;
mod replica;
pub mod sim;
pub mod storage;
mod types;

#[cfg(test)]
#[path = "../tests/replica/support/counter.rs"]
mod counter;
#[cfg(test)]
mod frozen;
#[cfg(test)]
mod suite;

pub use apply::state_machine::{DecodeError, StateMachine};
pub use error::{MembershipError, OpenError, ProposeError, ReadError};
pub use member::leadership::Leadership;
pub use member::member_change::{
    ChangePlan, Force, MEMBERS_MAX, MemberChange, PROMOTION_LAG_ENTRIES_MAX, VOTERS_MAX,
};
pub use member::peer::Peer;
pub use member::transfer::{SUCCESSOR_HEARTBEATS_MAX, SUCCESSOR_LAG_ENTRIES_MAX};
pub use network::{Removal, raft_service};
pub use recovery::disaster_recovery::{PossibleLoss, RebuildTarget, RecoveryError, SourceReplica};
pub use recovery::offline_log::{OfflineLog, StoredEntry};
pub use recovery::state_history::StateHistoryError;
pub use replica::config::{BatchLimits, Config, ConfigError, SnapshotPolicy, Timings};
pub use replica::environment::{Clock, WallClock};
pub use replica::handle::Handle;
pub use replica::status::{FollowerStatus, Status};
pub use replica::telemetry::describe_metrics;
