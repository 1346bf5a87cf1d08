//! Frozen samples of every encoding on disk and on the wire.
//!
//! `tests/data/NAME.hex` was written by the build that introduced it. A change that alters one of these
//! bytes breaks clusters that are being upgraded: add a version or a field number instead. To add samples,
//! run once with `MUSTER_FREEZE=1`, which writes only files that do not exist.

use std::path::PathBuf;

use bytes::Bytes;
use data_encoding::HEXLOWER;
use muster_proto::raft::v1 as proto;
use openraft::Membership as OpenraftMembership;
use openraft::impls::EntryPayload;
use prost::Message;
use proto::peer_request::Body;
use proto::peer_response::Body as Answer;

use crate::apply::batch::Batch;
use crate::apply::shared::Applied;
use crate::apply::state_machine::StateMachine;
use crate::counter::{Add, Counter};
use crate::storage::codec::{convert, frame, record};
use crate::storage::memory::MemorySnapshots;
use crate::storage::snapshot::SnapshotStore;
use crate::types::{Entry, LeaderId, LogId, Membership, Node, StoredMembership, Vote};

fn leader() -> LeaderId {
    LeaderId {
        term: 7,
        node_id: 3,
    }
}

fn log_id() -> LogId {
    LogId::new(leader(), 300)
}

fn vote() -> Vote {
    Vote {
        leader_id: leader(),
        committed: true,
    }
}

fn membership() -> Membership {
    let node = |id: u64| Node {
        address: format!("host-{id}:7000"),
        incarnation: 1000 + id,
    };
    let voters = vec![[1, 2, 3].into(), [1, 2].into()];
    let nodes: std::collections::BTreeMap<u64, Node> = (1..=4).map(|id| (id, node(id))).collect();
    OpenraftMembership::new(voters, nodes).expect("voters are members")
}

fn stored_membership() -> StoredMembership {
    StoredMembership::new(Some(log_id()), membership())
}

fn batch() -> Batch<Counter> {
    let commands = vec![Add::new("a", 1), Add::new("b", 515)];
    let encoded = commands.iter().map(|command| {
        let mut bytes = Vec::new();
        Counter::encode_command(command, &mut bytes);
        Bytes::from(bytes)
    });
    let check = proto::HashCheck {
        index: 299,
        hash: 0x0123_4567_89ab_cdef,
        hash_version: 1,
    };
    let encoded = encoded.collect();
    Batch::pack(1_700_000_000_123, commands, encoded, Some(check))
}

fn entry(payload: EntryPayload<Batch<Counter>, u64, Node>) -> Entry<Counter> {
    Entry {
        log_id: log_id(),
        payload,
    }
}

fn path(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("tests/data")
        .join(format!("{name}.hex"))
}

fn to_hex(bytes: &[u8]) -> String {
    let lines = bytes.chunks(32).map(|line| HEXLOWER.encode(line) + "\n");
    lines.collect()
}

fn from_hex(text: &str) -> Vec<u8> {
    let lines: Result<Vec<_>, _> = text
        .lines()
        .map(|line| HEXLOWER.decode(line.as_bytes()))
        .collect();
    lines
        .expect("a sample is lines of hexadecimal digits")
        .concat()
}

/// The frozen bytes of a sample.
fn frozen(name: &str, written_now: &[u8]) -> Vec<u8> {
    let path = path(name);
    if std::env::var_os("MUSTER_FREEZE").is_some() && !path.exists() {
        std::fs::write(&path, to_hex(written_now)).expect("the sample is written");
    }
    from_hex(&std::fs::read_to_string(&path).expect("the sample exists"))
}

/// Asserts that the sample still encodes to its frozen bytes.
fn assert_frozen(name: &str, written_now: &[u8]) -> Bytes {
    let frozen = frozen(name, written_now);
    assert_eq!(
        to_hex(written_now),
        to_hex(&frozen),
        "the bytes of {name} have changed"
    );
    Bytes::from(frozen)
}

/// Asserts that a framed message still encodes to its frozen bytes, and that they decode to it.
fn assert_framed<T: Message + Default + PartialEq>(name: &str, message: &T) {
    let bytes = assert_frozen(name, &frame::encode(message));
    let read: T = frame::decode(bytes).expect("the sample is read");
    assert!(read == *message, "{name} reads back differently");
}

fn assert_message<T: Message + Default + PartialEq>(name: &str, message: &T) {
    let bytes = assert_frozen(name, &message.encode_to_vec());
    let read = T::decode(bytes).expect("the sample is read");
    assert!(read == *message, "{name} reads back differently");
}

#[test]
fn small_records_keep_their_bytes() {
    assert_framed("vote", &convert::vote_to_proto(&vote()));
    let id = Some(convert::log_id_to_proto(&log_id()));
    assert_framed("committed", &proto::Committed { id });
    assert_framed("purged", &proto::Purged { id });
    let identity = proto::Identity {
        cluster_id: "production-7".to_owned(),
        replica_id: 3,
        incarnation: 0xfeed_f00d,
        directory_version: 1,
    };
    assert_framed("identity", &identity);
    let stored = convert::stored_membership_to_proto(&stored_membership());
    assert_framed("stored_membership", &stored);
    let read = convert::stored_membership_from_proto(Some(stored));
    assert_eq!(read, Ok(stored_membership()));
}

#[test]
fn log_records_keep_their_bytes() {
    let samples = [
        ("entry_blank", entry(EntryPayload::Blank)),
        ("entry_batch", entry(EntryPayload::Normal(batch()))),
        (
            "entry_membership",
            entry(EntryPayload::Membership(membership())),
        ),
    ];
    for (name, entry) in samples {
        let bytes = assert_frozen(name, &record::encode(&entry));
        let read: Entry<Counter> = record::decode(bytes).expect("the sample is read");
        assert_eq!(read, entry);
        if let (EntryPayload::Normal(read), EntryPayload::Normal(sample)) =
            (&read.payload, &entry.payload)
        {
            assert_eq!(read.commands(), sample.commands());
            assert_eq!(read.time_ms(), sample.time_ms());
            assert_eq!(read.check(), sample.check());
        }
    }
}

#[test]
fn requests_keep_their_bytes() {
    let vote = Some(convert::vote_to_proto(&vote()));
    let last = Some(convert::log_id_to_proto(&log_id()));
    let vote_request = proto::VoteRequest {
        vote,
        last,
        leadership_transfer: true,
    };
    let entries = vec![Bytes::from(record::encode(&entry(EntryPayload::Normal(
        batch(),
    ))))];
    let bodies = [
        ("request_vote", Body::Vote(vote_request)),
        ("request_pre_vote", Body::PreVote(vote_request)),
        (
            "request_append",
            Body::Append(proto::AppendRequest {
                vote,
                previous: last,
                entries,
                commit: last,
            }),
        ),
        (
            "request_snapshot_chunk",
            Body::SnapshotChunk(proto::SnapshotChunk {
                vote,
                last,
                membership: Some(convert::stored_membership_to_proto(&stored_membership())),
                offset: 65_536,
                data: Bytes::from_static(b"piece"),
                checksum: crc32fast::hash(b"piece"),
                done: true,
            }),
        ),
        (
            "request_transfer",
            Body::Transfer(proto::TransferRequest {
                from_leader: vote,
                to: 2,
                last,
            }),
        ),
        (
            "request_read_index",
            Body::ReadIndex(proto::ReadIndexRequest {}),
        ),
        ("request_hello", Body::Hello(proto::HelloRequest {})),
    ];
    for (name, body) in bodies {
        let request = proto::PeerRequest {
            cluster_id: "production-7".to_owned(),
            from: 1,
            to: 3,
            to_incarnation: 0xfeed_f00d,
            body: Some(body),
        };
        assert_message(name, &request);
    }
}

#[test]
fn responses_keep_their_bytes() {
    use proto::append_response::Result as Appended;
    let vote = Some(convert::vote_to_proto(&vote()));
    let last = convert::log_id_to_proto(&log_id());
    let appended = |result| {
        Answer::Append(proto::AppendResponse {
            result: Some(result),
        })
    };
    let leader = proto::Member {
        id: 2,
        address: "host-2:7000".to_owned(),
        incarnation: 1002,
    };
    let answers = [
        (
            "response_vote",
            Answer::Vote(proto::VoteResponse {
                vote,
                granted: true,
                last: Some(last),
            }),
        ),
        (
            "response_append_matched",
            appended(Appended::Matched(proto::Matched { id: Some(last) })),
        ),
        (
            "response_append_conflict",
            appended(Appended::Conflict(last)),
        ),
        (
            "response_append_higher_vote",
            appended(Appended::HigherVote(convert::vote_to_proto(&self::vote()))),
        ),
        (
            "response_snapshot",
            Answer::Snapshot(proto::SnapshotResponse { vote }),
        ),
        (
            "response_transfer",
            Answer::Transfer(proto::TransferResponse {
                refused: "vote changed".to_owned(),
                vote,
                flushed: Some(last),
            }),
        ),
        (
            "response_read_index",
            Answer::ReadIndex(proto::ReadIndexResponse { read: Some(last) }),
        ),
        (
            "response_hello",
            Answer::Hello(proto::HelloResponse {
                incarnation: 0xfeed_f00d,
                belongs_to_group: None,
                membership_index: None,
                members: Vec::new(),
            }),
        ),
        (
            "response_hello_of_member",
            Answer::Hello(proto::HelloResponse {
                incarnation: 0xfeed_f00d,
                belongs_to_group: Some(true),
                membership_index: None,
                members: Vec::new(),
            }),
        ),
        (
            "response_hello_with_members",
            Answer::Hello(proto::HelloResponse {
                incarnation: 0xfeed_f00d,
                belongs_to_group: Some(true),
                membership_index: Some(300),
                members: vec![proto::Member {
                    id: 4,
                    address: "host-4:7000".to_owned(),
                    incarnation: 1_004,
                }],
            }),
        ),
        (
            "response_refusal",
            Answer::Refusal(proto::Refusal {
                reason: proto::refusal::Reason::NotLeader.into(),
                detail: "not the leader".to_owned(),
                leader: Some(leader),
            }),
        ),
    ];
    for (name, body) in answers {
        assert_message(name, &proto::PeerResponse { body: Some(body) });
    }
}

/// Only decoding is frozen: another release of the compressor may write other bytes.
#[test]
fn a_snapshot_file_is_read() {
    let mut state = Counter::default();
    for number in 0..500 {
        state.apply(
            1_700_000_000_000,
            &Add::new(&format!("name-{number}"), number),
        );
    }
    let disk = MemorySnapshots::new();
    let store = SnapshotStore::new(std::sync::Arc::new(disk.clone()), "production-7".to_owned());
    let applied = Applied {
        state,
        last: Some(log_id()),
        membership: stored_membership(),
    };
    let (_, file) = store.write(&applied).expect("a snapshot is written");
    let written = disk.bytes(&file.name).expect("the file exists");

    let name = "old.snapshot".to_owned();
    disk.insert(&name, frozen("snapshot", &written));
    let read = store
        .load::<Counter>(&store.file_named(name))
        .expect("the sample is read");
    assert_eq!(read.state, applied.state);
    assert_eq!(read.last, applied.last);
    assert_eq!(read.membership, applied.membership);
}

#[test]
fn a_newer_or_damaged_frame_is_refused() {
    use crate::apply::state_machine::DecodeError;
    let good = frame::encode(&convert::vote_to_proto(&vote()));
    let mut newer = good.clone();
    newer[0] += 1;
    let read = frame::decode::<proto::Vote>(Bytes::from(newer));
    assert!(matches!(
        read,
        Err(DecodeError::NewerVersion {
            found: 2,
            supported: 1
        })
    ));
    for position in 1..good.len() {
        let mut damaged = good.clone();
        damaged[position] ^= 0x10;
        let read = frame::decode::<proto::Vote>(Bytes::from(damaged));
        assert!(
            matches!(read, Err(DecodeError::Malformed(_))),
            "at {position}"
        );
        let cut = frame::decode::<proto::Vote>(Bytes::copy_from_slice(&good[..position]));
        assert!(cut.is_err(), "cut at {position}");
    }
}
