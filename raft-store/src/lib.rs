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

mod applier;
pub mod backup;
mod batch;
mod batcher;
pub mod codec;
mod config;
pub mod disk;
mod engine;
mod error;
mod followers;
mod handle;
mod hash_ledger;
mod identity;
mod inquiry;
mod leadership;
mod log_clock;
mod log_store;
mod machine;
mod member_change;
mod membership;
pub mod memory;
pub mod network;
mod open;
mod past;
mod peer;
mod refound;
mod remains;
pub mod reread;
mod seams;
mod shared;
pub mod sim;
mod snapshot;
mod state_machine;
mod status;
mod telemetry;
mod transfer;
mod types;
mod watcher;

#[cfg(test)]
#[path = "../tests/replica/support/counter.rs"]
mod counter;
#[cfg(test)]
mod frozen;
#[cfg(test)]
mod suite;

pub use config::{BatchLimits, Config, ConfigError, SnapshotPolicy, Timings};
pub use error::{MembershipError, OpenError, ProposeError, ReadError};
pub use handle::Handle;
pub use leadership::Leadership;
pub use member_change::{
    ChangePlan, Force, MEMBERS_MAX, MemberChange, PROMOTION_LAG_ENTRIES_MAX, VOTERS_MAX,
};
pub use network::{Removal, raft_service};
pub use past::PastError;
pub use peer::Peer;
pub use refound::{Foundation, Loss, RefoundError, Survivor};
pub use remains::{Remains, StoredEntry};
pub use seams::{Clock, WallClock};
pub use state_machine::{DecodeError, StateMachine};
pub use status::{FollowerStatus, Status};
pub use telemetry::describe_metrics;
pub use transfer::{SUCCESSOR_HEARTBEATS_MAX, SUCCESSOR_LAG_ENTRIES_MAX};
