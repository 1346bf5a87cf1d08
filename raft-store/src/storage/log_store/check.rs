//! Startup checks of the stored log.

use bytes::Bytes;

use crate::apply::state_machine::StateMachine;
use crate::error::OpenError;
use crate::storage::codec::record;
use crate::storage::disk::LogDisk;
use crate::storage::log_store::LogStore;
use crate::types::{LogId, Vote};

/// Bytes of log checked at a time.
const PART_BYTES: usize = 8 * 1024 * 1024;

impl<M: StateMachine> LogStore<M> {
    /// Rejects a log that begins after the end of the newest snapshot: entries are missing.
    pub(crate) fn check_start(&self, snapshot: Option<LogId>) -> Result<(), OpenError> {
        let purged = self.shared.tail().purged;
        if purged > snapshot {
            let index = purged.map_or(0, |id| id.index);
            let covered = snapshot.map_or_else(|| "nothing".to_owned(), |id| id.index.to_string());
            return Err(OpenError::Corrupt {
                what: "the snapshot folder".to_owned(),
                detail: format!(
                    "the log was removed up to index {index}, the newest snapshot covers {covered}"
                ),
            });
        }
        Ok(())
    }
}

/// Rejects a vote older than the last entry: a vote is stored before any entry of its term, and a replica
/// that has forgotten its vote could vote twice.
pub(super) fn check_vote(vote: Option<&Vote>, last: LogId) -> Result<(), OpenError> {
    let voted = vote.map_or(0, |vote| vote.leader_id.term);
    let written = last.leader_id.term;
    if voted >= written {
        return Ok(());
    }
    Err(OpenError::Corrupt {
        what: "the log's record \"vote\"".to_owned(),
        detail: format!("it is of term {voted}, the log holds an entry of term {written}"),
    })
}

/// Checks that entries `from..=last` are all present and intact.
pub(super) fn check_entries(disk: &dyn LogDisk, from: u64, last: u64) -> Result<(), OpenError> {
    let mut next = from;
    while next <= last {
        let part = disk
            .read_entries(next, last + 1, PART_BYTES)
            .map_err(|source| OpenError::Disk {
                operation: format!("reading log entry {next}"),
                source,
            })?;
        if part.first().map(|(index, _)| *index) != Some(next) {
            return Err(OpenError::Corrupt {
                what: format!("log entry {next}"),
                detail: "it is missing".to_owned(),
            });
        }
        for (index, bytes) in part {
            check_entry(index, bytes)?;
            next = index + 1;
        }
    }
    Ok(())
}

fn check_entry(index: u64, bytes: Vec<u8>) -> Result<(), OpenError> {
    let what = || format!("log entry {index}");
    let id = record::decode_id(Bytes::from(bytes))
        .map_err(|error| OpenError::from_decode(what(), error))?;
    if id.index != index {
        return Err(OpenError::Corrupt {
            what: what(),
            detail: format!("it holds entry {}", id.index),
        });
    }
    Ok(())
}
