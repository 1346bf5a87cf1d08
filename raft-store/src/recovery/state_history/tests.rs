//! Tests of past states, over every combination of kept snapshots and log.
#![expect(clippy::unwrap_used, reason = "tests")]

use std::io::{Read, Write};
use std::sync::atomic::{AtomicUsize, Ordering};

use muster_proto::raft::v1 as proto;

use super::*;
use crate::apply::batch::Batch;
use crate::member::peer::Peer;
use crate::storage::codec::{convert, frame};
use crate::storage::disk::LogChange;
use crate::storage::memory::{MemoryLog, MemorySnapshots};
use crate::types::{LeaderId, LogId};

/// State machine whose commands produce as many revisions as they specify, and whose state is the list of
/// commands.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Leaps {
    revision: u64,
    commands: Vec<u8>,
}

impl StateMachine for Leaps {
    type Command = u8;
    type Outcome = ();

    fn encode_command(command: &u8, out: &mut Vec<u8>) {
        out.push(*command);
    }

    fn decode_command(bytes: &[u8]) -> Result<u8, DecodeError> {
        let first = bytes.first().copied();
        first.ok_or_else(|| DecodeError::malformed("a command is empty"))
    }

    fn apply(&mut self, _time_ms: u64, command: &u8) {
        self.revision += u64::from(*command);
        self.commands.push(*command);
    }

    fn revision(&self) -> u64 {
        self.revision
    }

    fn time_ms(&self) -> u64 {
        0
    }

    fn carry_over(&mut self, _former: &[(Peer, bool)], _now_ms: u64) {}

    fn write_snapshot(&self, sink: &mut dyn Write) -> io::Result<()> {
        sink.write_all(&self.commands)
    }

    fn read_snapshot(source: &mut dyn Read) -> Result<Self, DecodeError> {
        let mut commands = Vec::new();
        source.read_to_end(&mut commands)?;
        let revision = commands.iter().map(|command| u64::from(*command)).sum();
        Ok(Self { revision, commands })
    }

    fn state_hash(&self) -> u64 {
        self.revision
    }
}

/// Disk of a replica that has applied everything.
struct Replica {
    log: Arc<dyn LogDisk>,
    snapshots: Arc<SnapshotStore>,
    applied: Applied<Leaps>,
}

fn id(index: u64) -> LogId {
    let leader_id = LeaderId {
        term: 1,
        node_id: 1,
    };
    LogId::new(leader_id, index)
}

impl Replica {
    /// Returns a replica with these entries in its log.
    fn with(entries: &[&[u8]]) -> Self {
        let log: Arc<dyn LogDisk> = Arc::new(MemoryLog::new());
        let folder = Arc::new(MemorySnapshots::new());
        let mut replica = Self {
            log,
            snapshots: Arc::new(SnapshotStore::new(folder, "east".to_owned())),
            applied: Applied::default(),
        };
        for commands in entries {
            replica.append(commands);
        }
        replica
    }

    fn append(&mut self, commands: &[u8]) {
        let index = self.applied.last.map_or(0, |last| last.index + 1);
        let encoded = commands.iter().map(|command| Bytes::from(vec![*command]));
        let batch = Batch::<Leaps>::pack(7, commands.to_vec(), encoded.collect(), None);
        let entry = Entry::<Leaps> {
            log_id: id(index),
            payload: EntryPayload::Normal(batch),
        };
        let record = record::encode(&entry);
        self.log
            .write(vec![LogChange::PutEntry { index, record }])
            .unwrap();
        for command in commands {
            self.applied.state.apply(7, command);
        }
        self.applied.last = Some(id(index));
    }

    fn snapshot(&self) {
        self.snapshots.write(&self.applied).unwrap();
    }

    fn purge(&self, upto: u64) {
        let record = frame::encode(&proto::Purged {
            id: Some(convert::log_id_to_proto(&id(upto))),
        });
        let changes = vec![
            LogChange::PutMeta {
                key: MetaKey::Purged,
                record,
            },
            LogChange::RemoveEntries {
                from: 0,
                to: upto + 1,
            },
        ];
        self.log.write(changes).unwrap();
    }

    fn at(&self, revision: u64) -> Result<Vec<u8>, StateHistoryError> {
        self.at_while(revision, &|| true)
    }

    fn at_while(
        &self,
        revision: u64,
        may_continue: &dyn Fn() -> bool,
    ) -> Result<Vec<u8>, StateHistoryError> {
        let shared = Arc::new(SharedState::new(self.applied.clone()));
        let history = StateHistory::new(&self.log, &self.snapshots, &shared);
        history
            .state_at(revision, may_continue)
            .map(|state| state.commands)
    }
}

#[test]
fn a_revision_inside_an_entry_is_shown_without_the_rest_of_the_entry() {
    let replica = Replica::with(&[&[1, 1], &[], &[1, 1, 1], &[1]]);
    for revision in 0..=6 {
        let commands = replica.at(revision).unwrap();
        assert_eq!(commands.len() as u64, revision);
    }
}

#[test]
fn a_revision_inside_a_command_is_refused_with_the_revisions_around_it() {
    let replica = Replica::with(&[&[1], &[1, 3, 1]]);
    assert_eq!(replica.at(2).unwrap(), [1, 1]);
    for asked in [3, 4] {
        let refused = StateHistoryError::WithinCommand {
            asked,
            before: 2,
            after: 5,
        };
        assert_eq!(replica.at(asked), Err(refused));
    }
    assert_eq!(replica.at(5).unwrap(), [1, 1, 3]);
}

#[test]
fn history_begins_at_the_oldest_snapshot_with_a_complete_log_after_it() {
    let mut replica = Replica::with(&[&[1], &[1], &[1]]);
    replica.snapshot();
    replica.append(&[1, 1]);
    replica.append(&[1]);
    replica.snapshot();
    replica.append(&[1, 1]);
    replica.purge(1);
    for revision in 3..=8 {
        assert_eq!(replica.at(revision).unwrap().len() as u64, revision);
    }
    let too_old = |asked, oldest| Err(StateHistoryError::TooOld { asked, oldest });
    assert_eq!(replica.at(2), too_old(2, 3));
    let ahead = StateHistoryError::NotReached {
        asked: 9,
        newest: 8,
    };
    assert_eq!(replica.at(9), Err(ahead));

    // Of the older snapshot only the file itself remains; the log after it is gone.
    replica.purge(3);
    assert_eq!(replica.at(3).unwrap(), [1, 1, 1]);
    assert_eq!(replica.at(4), too_old(4, 6));
    assert_eq!(replica.at(6).unwrap().len(), 6);
    assert_eq!(replica.at(7).unwrap().len(), 7);
}

#[test]
fn missing_log_entries_are_an_error() {
    let replica = Replica::with(&[&[1], &[1], &[1]]);
    let hole = LogChange::RemoveEntries { from: 1, to: 2 };
    replica.log.write(vec![hole]).unwrap();
    let refused = replica.at(2);
    assert!(
        matches!(&refused, Err(StateHistoryError::Unreadable { what, .. }) if what == "log entry 1"),
        "{refused:?}"
    );
}

#[test]
fn a_replay_is_aborted_when_its_caller_gives_up() {
    let replica = Replica::with(&[&[1], &[1], &[1], &[1]]);
    let asked = AtomicUsize::new(0);
    let twice = || asked.fetch_add(1, Ordering::Relaxed) < 2;
    let ended = StateHistoryError::Aborted {
        asked: 3,
        reached: 2,
    };
    assert_eq!(replica.at_while(3, &twice), Err(ended));
}

#[test]
fn a_stopped_replica_rebuilds_no_state() {
    let replica = Replica::with(&[&[1], &[1]]);
    let shared = Arc::new(SharedState::new(replica.applied.clone()));
    let history = StateHistory::new(&replica.log, &replica.snapshots, &shared);
    drop(replica);
    assert_eq!(
        history.state_at(1, &|| true),
        Err(StateHistoryError::Stopped)
    );
}
