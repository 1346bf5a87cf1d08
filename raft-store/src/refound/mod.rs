//! Founding a group anew from a state: out of a backup, or out of what a replica that survived the loss of the majority has
//! on its disk.
//!
//! Both work on a directory that no replica runs on, and both end in the same: the data of one replica that is the only
//! member of its group, and goes on from the state. It is fenced against everybody of the old group. The data has a new
//! incarnation, so no message that is meant for an old member is answered; terms and log positions go on above all that any
//! group can have reached by now, so an old replica that asks learns that it is a member no more; and the revisions of the state
//! do as well ([`StateMachine::refound`]), so whoever obeys its leader obeys no older one.
//!
//! A directory that is only half made is refused at a start, and made whole by the same command again. Whoever works on it, what
//! is written is its owner's in the end: as that user its replica runs.

mod founding;
mod owner;
mod staging;
mod survivor;

pub use founding::{Foundation, Founder};
pub use survivor::{Loss, Survivor};

pub(crate) use staging::refuse_half_made;

use std::io;
use std::path::PathBuf;

use crate::error::OpenError;

/// More terms and entries than any group has in a millisecond, on average over all its life. A group goes on at so many for each
/// millisecond since 1970, which is above all that others can have by now, also above those that went on from the same state before
/// it: an old member compares its own with those of the new group.
const TERMS_PER_MS: u64 = 1;
const ENTRIES_PER_MS: u64 = 20;
/// What is skipped where the clock says that what is known is of the future. Terms: at 100 ms for an election 13 years of them.
const TERMS_SKIPPED: u64 = 1 << 32;
const ENTRIES_SKIPPED: u64 = 1 << 40;

/// A number above `known`, and above all that go up by `per_ms` in each millisecond since 1970 at most.
fn above(known: u64, (now_ms, per_ms): (u64, u64), skipped: u64) -> u64 {
    let by_time = now_ms.saturating_mul(per_ms);
    if by_time > known {
        by_time
    } else {
        known.saturating_add(skipped)
    }
}

/// Why a group was not founded anew. The directory is as it was, unless it says otherwise.
#[derive(Debug, thiserror::Error)]
pub enum RefoundError {
    /// The directory cannot be used, or its data.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// There is data already.
    #[error(
        "{directory} holds the data of a replica already: name a directory that is empty or does not exist"
    )]
    NotEmpty {
        /// The directory.
        directory: PathBuf,
    },
    /// An earlier run had been cut off when its data was whole. What was left of it is done now, and nothing else.
    #[error(
        "an earlier restore or recovery of {directory} had been cut off, and is finished now: start the replica"
    )]
    Finished {
        /// The directory.
        directory: PathBuf,
    },
    /// The directory is another user's, to whom only root could give what would be written.
    #[error(
        "{directory} belongs to user {owner}, as whom its replica runs, and what another user writes there it cannot use: \
         do this as root, or as its owner: {as_owner} muster ..."
    )]
    Foreign {
        /// The directory.
        directory: PathBuf,
        /// Its owner's name, or number where this host knows no name.
        owner: String,
        /// The beginning of the command by which root does something as the owner.
        as_owner: String,
    },
    /// There is no data.
    #[error("{directory} holds no data of a replica")]
    Nothing {
        /// The directory.
        directory: PathBuf,
    },
    /// The replica never belonged to a group, or knows of none.
    #[error("this replica never belonged to a group: there is nothing to recover")]
    NoGroup,
    /// What was asked for cannot be.
    #[error("{0}")]
    Refused(String),
}

fn disk(operation: String, source: io::Error) -> OpenError {
    OpenError::Disk { operation, source }
}
