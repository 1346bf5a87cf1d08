//! The state as it was at a revision, from what a running replica keeps: a snapshot, and the log after it.
//!
//! The log holds the commands of which the state was made, so whoever applies them again to an older state, and stops in
//! time, has what every replica had then. Nothing is changed, and the replica goes on meanwhile: entries that are applied
//! are written once, and what cuts the log off is noticed.

use std::io;
use std::sync::{Arc, Weak};

use bytes::Bytes;
use openraft::impls::EntryPayload;

use crate::codec::record;
use crate::disk::{LogDisk, MetaKey};
use crate::error::OpenError;
use crate::remains::position;
use crate::shared::{Applied, SharedState};
use crate::snapshot::{SnapshotFile, SnapshotStore};
use crate::state_machine::{DecodeError, StateMachine};
use crate::types::Entry;

/// Bytes of log read at a time.
const PART_BYTES: usize = 8 * 1024 * 1024;
/// Looks at what is kept: a snapshot that is taken meanwhile may remove what the first one found.
const LOOKS_MAX: usize = 3;

/// Why a replica cannot tell what the state was at a revision.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PastError {
    /// The revision is not reached here.
    #[error("revision {asked} is not reached, the newest here is {newest}")]
    Ahead {
        /// The revision that was asked for.
        asked: u64,
        /// The newest that this replica has applied.
        newest: u64,
    },
    /// The log that leads there is gone.
    #[error("revision {asked} is older than what this replica keeps, which begins at {oldest}")]
    TooOld {
        /// The revision that was asked for.
        asked: u64,
        /// The oldest from which on every one can be told.
        oldest: u64,
    },
    /// One command made several revisions, and this is not the last of them: no state ever had it.
    #[error(
        "revision {asked} lies inside of one command, which led from {before} to {after} at once: there was no state \
         of its own"
    )]
    Inside {
        /// The revision that was asked for.
        asked: u64,
        /// The revision before the command.
        before: u64,
        /// The revision after it.
        after: u64,
    },
    /// The caller would not wait for it any longer.
    #[error("revision {reached} was reached on the way to {asked} when the time was over")]
    Ended {
        /// The revision that was asked for.
        asked: u64,
        /// The revision that was reached.
        reached: u64,
    },
    /// The replica has stopped.
    #[error("the replica has stopped")]
    Stopped,
    /// What is kept cannot be read.
    #[error("{what} cannot be read: {detail}")]
    Unreadable {
        /// What.
        what: String,
        /// Why.
        detail: String,
    },
}

/// What a running replica keeps of the past.
pub(crate) struct Past<M: StateMachine> {
    /// Not held: once the replica has stopped, its directory is free, whoever still has a handle.
    log: Weak<dyn LogDisk>,
    snapshots: Arc<SnapshotStore>,
    shared: Arc<SharedState<M>>,
}

/// A snapshot from which one may begin.
struct Base {
    file: SnapshotFile,
    revision: u64,
    /// The last log index that it covers.
    index: Option<u64>,
}

impl<M: StateMachine> Past<M> {
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

    /// The state right after the command that made a revision. Reads the disk and takes as long as applying that part of the
    /// log took: not for async threads. It ends early once `lasts` says so, which is asked before every entry.
    pub(crate) fn state_at(&self, revision: u64, lasts: &dyn Fn() -> bool) -> Result<M, PastError> {
        let (newest, end) = {
            let applied = self.shared.read();
            if applied.state.revision() == revision {
                return Ok(applied.state.clone());
            }
            let end = applied.last.map_or(0, |last| last.index + 1);
            (applied.state.revision(), end)
        };
        if revision > newest {
            return Err(PastError::Ahead {
                asked: revision,
                newest,
            });
        }
        let log = self.log.upgrade().ok_or(PastError::Stopped)?;
        let mut looks = 1;
        loop {
            let told = self
                .base(&*log, revision)
                .and_then(|base| replay(&*log, base, (revision, end), lasts));
            match told {
                Err(PastError::Unreadable { .. }) if looks < LOOKS_MAX => looks += 1,
                told => return told,
            }
        }
    }

    /// The newest state that is kept and not newer than the revision.
    fn base(&self, log: &dyn LogDisk, revision: u64) -> Result<Applied<M>, PastError> {
        // Read before the folder: if a snapshot is taken between the two, entries are missed, and looked for again.
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
            None => Err(PastError::TooOld {
                asked: revision,
                oldest: match bases.iter().find(goes_on) {
                    Some(base) => base.revision,
                    // The present is always there.
                    None => self.shared.read().state.revision(),
                },
            }),
        }
    }

    /// The snapshots that are kept, the oldest first.
    fn bases(&self) -> Result<Vec<Base>, PastError> {
        let files = self.snapshots.all();
        let files = files.map_err(|error| unreadable("the snapshot folder".to_owned(), &error))?;
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
    (revision, end): (u64, u64),
    lasts: &dyn Fn() -> bool,
) -> Result<M, PastError> {
    let mut next = base.last.map_or(0, |last| last.index + 1);
    let mut state = base.state;
    while state.revision() < revision {
        let part = log
            .read_entries(next, end, PART_BYTES)
            .map_err(|error| unreadable(format!("log entry {next}"), &error))?;
        if part.first().map(|(index, _)| *index) != Some(next) {
            return Err(PastError::Unreadable {
                what: format!("log entry {next}"),
                detail: "it is missing".to_owned(),
            });
        }
        for (index, bytes) in part {
            if !lasts() {
                return Err(PastError::Ended {
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

/// Applies the commands of an entry up to the one that makes the revision, which may lie anywhere in it.
fn apply_until<M: StateMachine>(
    state: &mut M,
    entry: &Entry<M>,
    revision: u64,
) -> Result<(), PastError> {
    let EntryPayload::Normal(batch) = &entry.payload else {
        return Ok(());
    };
    for command in batch.commands() {
        let before = state.revision();
        state.apply(batch.time_ms(), command);
        let after = state.revision();
        if after > revision {
            return Err(PastError::Inside {
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

fn unreadable(what: String, error: &dyn std::error::Error) -> PastError {
    PastError::Unreadable {
        what,
        detail: error.to_string(),
    }
}

fn unreadable_snapshot(file: &SnapshotFile, error: &DecodeError) -> PastError {
    unreadable(format!("snapshot {}", file.name), error)
}

fn from_open(error: OpenError) -> PastError {
    let detail = error.to_string();
    let error = io::Error::other(detail);
    unreadable("the log's record \"purged\"".to_owned(), &error)
}

#[cfg(test)]
mod tests;
