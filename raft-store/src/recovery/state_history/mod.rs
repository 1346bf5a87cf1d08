//! The state at an earlier revision, rebuilt from data of a running replica: a snapshot, and the log after
//! it.
//!
//! The log holds the commands that produced the state, so replaying them on an older state up to a revision
//! yields the state that every replica had then. Nothing is changed, and the replica keeps running
//! meanwhile: applied entries are immutable, and truncation of the log is detected.

use std::io;
use std::sync::{Arc, Weak};

use bytes::Bytes;
use openraft::impls::EntryPayload;

use crate::apply::shared::{Applied, SharedState};
use crate::apply::state_machine::{DecodeError, StateMachine};
use crate::error::OpenError;
use crate::recovery::offline_log::position;
use crate::storage::codec::record;
use crate::storage::disk::{LogDisk, MetaKey};
use crate::storage::snapshot::{SnapshotFile, SnapshotStore};
use crate::types::Entry;

/// Bytes of log read at a time.
const PART_BYTES: usize = 8 * 1024 * 1024;
/// Attempts to find the data: a snapshot taken meanwhile may remove files found by the first attempt.
const ATTEMPTS_MAX: usize = 3;

/// Error of a past state that cannot be rebuilt.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StateHistoryError {
    /// This replica has not reached the revision.
    #[error("revision {asked} is not reached yet, the newest here is {newest}")]
    NotReached {
        /// The requested revision.
        asked: u64,
        /// Newest revision applied by this replica.
        newest: u64,
    },
    /// The log from before that revision has been truncated.
    #[error("revision {asked} is older than what this replica keeps, which begins at {oldest}")]
    TooOld {
        /// The requested revision.
        asked: u64,
        /// Oldest revision since which every state can be rebuilt.
        oldest: u64,
    },
    /// One command produced several revisions, and this is not the last of them: no state ever had it.
    #[error(
        "revision {asked} lies inside one command, which led from {before} to {after} at once: there was no state \
         of its own"
    )]
    WithinCommand {
        /// The requested revision.
        asked: u64,
        /// The revision before the command.
        before: u64,
        /// The revision after it.
        after: u64,
    },
    /// The caller aborted the replay.
    #[error("revision {reached} was reached on the way to {asked} when the time was up")]
    Aborted {
        /// The requested revision.
        asked: u64,
        /// The revision that was reached.
        reached: u64,
    },
    /// The replica has stopped.
    #[error("the replica has stopped")]
    Stopped,
    /// Stored data cannot be read.
    #[error("{what} cannot be read: {detail}")]
    Unreadable {
        /// The unreadable item.
        what: String,
        /// Cause.
        detail: String,
    },
}

/// Data that a running replica keeps for rebuilding past states.
pub(crate) struct StateHistory<M: StateMachine> {
    /// Weak: once the replica has stopped, its directory must be free even if handles remain.
    log: Weak<dyn LogDisk>,
    snapshots: Arc<SnapshotStore>,
    shared: Arc<SharedState<M>>,
}

/// A snapshot from which a replay may begin.
struct Base {
    file: SnapshotFile,
    revision: u64,
    /// Last log index that it covers.
    index: Option<u64>,
}

impl<M: StateMachine> StateHistory<M> {
    pub(crate) fn new(
        log: &Arc<dyn LogDisk>,
        snapshots: &Arc<SnapshotStore>,
        shared: &Arc<SharedState<M>>,
    ) -> Self {
        Self {
            log: Arc::downgrade(log),
            snapshots: Arc::clone(snapshots),
            shared: Arc::clone(shared),
        }
    }

    /// The state right after the command that produced a revision. Reads the disk and takes as long as
    /// applying that part of the log took: not for async threads. It is aborted once `may_continue`, called before
    /// every entry, returns false.
    pub(crate) fn state_at(
        &self,
        revision: u64,
        may_continue: &dyn Fn() -> bool,
    ) -> Result<M, StateHistoryError> {
        let (newest, end) = {
            let applied = self.shared.read();
            if applied.state.revision() == revision {
                return Ok(applied.state.clone());
            }
            let end = applied.last.map_or(0, |last| last.index + 1);
            (applied.state.revision(), end)
        };
        if revision > newest {
            return Err(StateHistoryError::NotReached {
                asked: revision,
                newest,
            });
        }
        let log = self.log.upgrade().ok_or(StateHistoryError::Stopped)?;
        let mut attempts = 1;
        loop {
            let result = self
                .base(&*log, revision)
                .and_then(|base| replay(&*log, base, revision, end, may_continue));
            match result {
                Err(StateHistoryError::Unreadable { .. }) if attempts < ATTEMPTS_MAX => {
                    attempts += 1
                }
                result => return result,
            }
        }
    }

    /// Newest kept state that is not newer than the revision.
    fn base(&self, log: &dyn LogDisk, revision: u64) -> Result<Applied<M>, StateHistoryError> {
        // Read before the folder: if a snapshot is taken between the two, entries are missing, and the
        // search is repeated.
        let purged = position(log, MetaKey::Purged).map_err(from_open)?;
        let bases = self.bases()?;
        let goes_on = |base: &&Base| base.index >= purged;
        let old_enough = bases.iter().rev().find(|base| base.revision <= revision);
        match old_enough.filter(|base| base.revision == revision || goes_on(base)) {
            Some(base) => self
                .snapshots
                .load::<M>(&base.file)
                .map_err(|error| unreadable_snapshot(&base.file, &error)),
            None if purged.is_none() => Ok(Applied::default()),
            None => Err(StateHistoryError::TooOld {
                asked: revision,
                oldest: match bases.iter().find(goes_on) {
                    Some(base) => base.revision,
                    // The current state is always available.
                    None => self.shared.read().state.revision(),
                },
            }),
        }
    }

    /// Snapshots kept, oldest first.
    fn bases(&self) -> Result<Vec<Base>, StateHistoryError> {
        let files = self
            .snapshots
            .all()
            .map_err(|error| unreadable("the snapshot folder".to_owned(), &error))?;
        let base = |file: SnapshotFile| {
            let (revision, last) = self
                .snapshots
                .read_position(&file)
                .map_err(|error| unreadable_snapshot(&file, &error))?;
            Ok(Base {
                revision,
                index: last.map(|last| last.index),
                file,
            })
        };
        files.into_iter().map(base).collect()
    }
}

/// Applies the log after `base`, below index `end`, until the state has the revision.
fn replay<M: StateMachine>(
    log: &dyn LogDisk,
    base: Applied<M>,
    revision: u64,
    end: u64,
    may_continue: &dyn Fn() -> bool,
) -> Result<M, StateHistoryError> {
    let mut next = base.last.map_or(0, |last| last.index + 1);
    let mut state = base.state;
    while state.revision() < revision {
        let part = log
            .read_entries(next, end, PART_BYTES)
            .map_err(|error| unreadable(format!("log entry {next}"), &error))?;
        if part.first().map(|(index, _)| *index) != Some(next) {
            return Err(StateHistoryError::Unreadable {
                what: format!("log entry {next}"),
                detail: "it is missing".to_owned(),
            });
        }
        for (index, bytes) in part {
            if !may_continue() {
                return Err(StateHistoryError::Aborted {
                    asked: revision,
                    reached: state.revision(),
                });
            }
            let entry = record::decode::<M>(Bytes::from(bytes))
                .map_err(|error| unreadable(format!("log entry {index}"), &error))?;
            apply_until(&mut state, &entry, revision)?;
            if state.revision() == revision {
                return Ok(state);
            }
            next = index + 1;
        }
    }
    Ok(state)
}

/// Applies the commands of an entry up to the one that produces the revision, which may be anywhere in it.
fn apply_until<M: StateMachine>(
    state: &mut M,
    entry: &Entry<M>,
    revision: u64,
) -> Result<(), StateHistoryError> {
    let EntryPayload::Normal(batch) = &entry.payload else {
        return Ok(());
    };
    for command in batch.commands() {
        let before = state.revision();
        state.apply(batch.time_ms(), command);
        let after = state.revision();
        if after > revision {
            return Err(StateHistoryError::WithinCommand {
                asked: revision,
                before,
                after,
            });
        }
        if after == revision {
            break;
        }
    }
    Ok(())
}

fn unreadable(what: String, error: &dyn std::error::Error) -> StateHistoryError {
    StateHistoryError::Unreadable {
        what,
        detail: error.to_string(),
    }
}

fn unreadable_snapshot(file: &SnapshotFile, error: &DecodeError) -> StateHistoryError {
    unreadable(format!("snapshot {}", file.name), error)
}

fn from_open(error: OpenError) -> StateHistoryError {
    let detail = error.to_string();
    let error = io::Error::other(detail);
    unreadable("the log's record \"purged\"".to_owned(), &error)
}

#[cfg(test)]
mod tests;
