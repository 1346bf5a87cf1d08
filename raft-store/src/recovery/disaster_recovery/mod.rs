//! Disaster recovery: rebuilds a group from a backup, or from the disk of one replica after the majority is
//! lost.
//!
//! Both work on a directory without a running replica and produce the data of one replica that is the only
//! member of its group and continues from the state. The new group is fenced against all members of the old
//! one: the data has a new incarnation, so messages addressed to an old member are not answered; terms and
//! log positions continue above anything that a group can have reached by now, so an old replica that asks
//! learns that it is no longer a member; and so do the revisions of the state ([`StateMachine::carry_over`]),
//! so anything that obeys the new leader obeys no older one.
//!
//! A half-made directory is rejected at startup, and completed by running the same command again. Whichever
//! user runs it, the written data ends up owned by the directory's owner: the replica runs as that user.

mod owner;
mod rebuild;
mod source_replica;
mod staging;

pub use rebuild::{FirstMember, RebuildTarget};
pub use source_replica::{PossibleLoss, SourceReplica};

pub(crate) use staging::check_not_interrupted;

use std::io;
use std::path::PathBuf;

use crate::error::OpenError;

/// Upper bound of the terms and entries of any group per millisecond, averaged over its lifetime. A rebuilt
/// group continues at that rate times the milliseconds since 1970, which is above anything that other
/// groups can have by now, including groups rebuilt earlier from the same state: an old member compares its
/// own numbers with those of the new group.
const TERMS_PER_MS: u64 = 1;
const ENTRIES_PER_MS: u64 = 20;
/// Number of terms skipped if the known term is ahead of the clock: 13 years of elections at 100 ms each.
const TERMS_SKIPPED: u64 = 1 << 32;
const ENTRIES_SKIPPED: u64 = 1 << 40;

/// Returns a number above `known`, and above any counter that grows by at most `per_ms` per millisecond
/// since 1970.
fn above(known: u64, now_ms: u64, per_ms: u64, skipped: u64) -> u64 {
    let by_time = now_ms.saturating_mul(per_ms);
    if by_time > known {
        by_time
    } else {
        known.saturating_add(skipped)
    }
}

/// Error of a failed rebuild. The directory is unchanged unless the variant says otherwise.
#[derive(Debug, thiserror::Error)]
pub enum RecoveryError {
    /// The directory or its data cannot be used.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The directory already contains data.
    #[error(
        "{directory} already holds the data of a replica: name a directory that is empty or does not exist"
    )]
    NotEmpty {
        /// The directory.
        directory: PathBuf,
    },
    /// An earlier run was interrupted after its data was complete. Only its remaining steps were done now.
    #[error(
        "an earlier restore or recovery of {directory} was interrupted and is finished now: start the replica"
    )]
    Finished {
        /// The directory.
        directory: PathBuf,
    },
    /// The directory belongs to another user, and only root could hand written data over to that user.
    #[error(
        "{directory} belongs to user {owner}, who runs its replica and could not use files written by another user: \
         run this as root, or as the owner: {as_owner} muster ..."
    )]
    Foreign {
        /// The directory.
        directory: PathBuf,
        /// Name of the owner, or the number if this host has no name for it.
        owner: String,
        /// Command prefix with which root runs a command as the owner.
        as_owner: String,
    },
    /// The directory contains no data.
    #[error("{directory} does not hold the data of a replica")]
    Nothing {
        /// The directory.
        directory: PathBuf,
    },
    /// The replica never belonged to a group, or has no record of one.
    #[error("this replica never belonged to a group: there is nothing to recover")]
    NoGroup,
    /// The request is invalid.
    #[error("{0}")]
    Refused(String),
}

fn disk(operation: String, source: io::Error) -> OpenError {
    OpenError::Disk { operation, source }
}
