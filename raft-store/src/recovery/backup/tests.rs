//! Tests of backups: they read back unchanged, and any tampering is detected.
#![expect(clippy::unwrap_used, reason = "tests")]

use proptest::prelude::*;

use super::*;
use crate::counter::{Add, Counter};
use crate::types::{LeaderId, Membership, Node, StoredMembership};

fn about() -> BackupMetadata {
    BackupMetadata {
        cluster_id: "east".to_owned(),
        replica_id: 2,
        time_ms: 1_700_000_000_000,
        version: "0.1.0".to_owned(),
    }
}

fn key(digit: char) -> Key {
    Key::parse(&digit.to_string().repeat(64)).unwrap()
}

/// State with incompressible names, so that a few hundred of them fill several chunks.
fn captured(names: u64) -> CapturedState<Counter> {
    let mut state = Counter::default();
    for number in 0..names {
        let name: String = (0..64u64)
            .map(|at| {
                format!(
                    "{:016x}",
                    (number * 64 + at + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15)
                )
            })
            .collect();
        state.apply(number, &Add::new(&name, number));
    }
    let leader_id = LeaderId {
        term: 3,
        node_id: 2,
    };
    let node = |address: &str| Node {
        address: address.to_owned(),
        incarnation: 7,
    };
    let nodes = [(1, node("a:1")), (2, node("b:1"))];
    let membership = Membership::new(
        vec![[1].into_iter().collect()],
        nodes
            .into_iter()
            .collect::<std::collections::BTreeMap<u64, Node>>(),
    );
    CapturedState(Applied {
        state,
        last: Some(LogId::new(leader_id, 41)),
        membership: StoredMembership::new(Some(LogId::new(leader_id, 4)), membership.unwrap()),
    })
}

fn saved(names: u64, key: Option<&Key>) -> (Vec<u8>, String) {
    let mut bytes = Vec::new();
    let digest = captured(names).write_backup(&mut bytes, &about(), key);
    (bytes, digest.unwrap())
}

fn read(bytes: &[u8], key: Option<&Key>) -> Result<Backup<Counter>, BackupError> {
    let mut input = bytes;
    Backup::read(&mut input, key)
}

#[test]
fn a_backup_reads_back_as_it_was_saved() {
    for key in [None, Some(key('a'))] {
        let (bytes, digest) = saved(900, key.as_ref());
        assert!(
            bytes.len() > 3 * 256 * 1024,
            "{}: several chunks",
            bytes.len()
        );
        let backup = read(&bytes, key.as_ref()).unwrap();
        assert_eq!(backup.state, *captured(900).state());
        assert_eq!(backup.about, about());
        assert_eq!((backup.term, backup.index), (3, 41));
        let members = [(Peer::new(1, "a:1"), true), (Peer::new(2, "b:1"), false)];
        assert_eq!(backup.members, members);
        assert_eq!((backup.digest, backup.is_sealed), (digest, key.is_some()));
        assert!(backup.has_known_hash);
    }
}

#[test]
fn a_wrong_key_is_distinguished_from_damage() {
    let (bytes, _) = saved(3, Some(&key('a')));
    assert!(matches!(
        read(&bytes, Some(&key('b'))),
        Err(BackupError::WrongKey)
    ));
    assert!(matches!(read(&bytes, None), Err(BackupError::KeyMissing)));
    let mut damaged = bytes.clone();
    *damaged.last_mut().unwrap() ^= 1;
    let refused = read(&damaged, Some(&key('b')));
    assert!(matches!(refused, Err(BackupError::Damaged { .. })));
    // An unnecessary key is ignored.
    assert!(read(&saved(3, None).0, Some(&key('a'))).is_ok());
}

#[test]
fn other_files_and_newer_backup_formats_are_refused() {
    assert!(matches!(read(b"", None), Err(BackupError::NotABackup)));
    assert!(matches!(
        read(b"MUSTSNAP and more", None),
        Err(BackupError::NotABackup)
    ));
    let (mut bytes, _) = saved(1, None);
    bytes[8] = 2;
    let refused = read(&bytes, None);
    assert!(matches!(
        refused,
        Err(BackupError::NewerFormat {
            found: 2,
            supported: 1
        })
    ));
}

#[test]
fn an_encrypted_backup_reads_back_as_it_was_saved() {
    let (plain, digest) = saved(900, None);
    let (mut sealed, mut opened) = (Vec::new(), Vec::new());
    let key = key('c');
    reseal(&mut plain.as_slice(), &mut sealed, None, Some(&key)).unwrap();
    let known = captured(900).state().totals.keys().next().unwrap().clone();
    let has = |bytes: &[u8]| bytes.windows(known.len()).any(|it| it == known.as_bytes());
    assert!(has(&plain) && !has(&sealed));
    let again = reseal(&mut sealed.as_slice(), &mut opened, Some(&key), None).unwrap();
    assert_eq!((again, opened), (digest, plain));
}

#[test]
fn keys_are_read_strictly_and_never_shown() {
    let digits = "0123456789abcdefABCDEF0123456789abcdefABCDEF01234567890123456789";
    assert!(Key::parse(&format!("{digits}\n")).is_ok());
    for text in [
        "",
        &digits[1..],
        &digits.replace('0', "g"),
        &format!("{digits}0"),
    ] {
        assert_eq!(Key::parse(text), Err(KeyError));
    }
    assert_eq!(format!("{:?}", key('a')), "Key(..)");
}

/// Truncates at and flips every byte of a small file; large files are covered by random samples below.
#[test]
fn every_truncation_and_every_flipped_bit_of_a_small_backup_is_refused() {
    for key in [None, Some(key('a'))] {
        let (bytes, _) = saved(2, key.as_ref());
        for length in 0..bytes.len() {
            assert!(
                read(&bytes[..length], key.as_ref()).is_err(),
                "cut at {length}"
            );
        }
        for bit in 0..8 * bytes.len() {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(read(&flipped, key.as_ref()).is_err(), "bit {bit}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn damage_of_a_large_backup_is_refused_with_its_place(
        at in 32usize..700_000,
        bit in 0u8..8,
        sealed in any::<bool>(),
    ) {
        let key = sealed.then(|| key('d'));
        let (mut bytes, _) = saved(900, key.as_ref());
        let at = at % bytes.len();
        prop_assume!(at >= 32);
        let cut = read(&bytes[..at], key.as_ref());
        let is_reported = matches!(cut, Err(BackupError::Cut { .. }));
        prop_assert!(is_reported);
        bytes[at] ^= 1 << bit;
        let refused = read(&bytes, key.as_ref());
        let chunk = (at - 32) / (256 * 1024 + 5 + 32 + if sealed { 16 } else { 0 });
        let place = format!("chunk {chunk},");
        let message = refused.err().map(|error| error.to_string()).unwrap_or_default();
        prop_assert!(message.contains(&place), "{message}");
    }

    #[test]
    fn trailing_bytes_after_a_backup_are_refused(tail in proptest::collection::vec(any::<u8>(), 1..100)) {
        let (mut bytes, _) = saved(1, None);
        bytes.extend(tail);
        let is_reported = matches!(read(&bytes, None), Err(BackupError::Damaged { .. }));
        prop_assert!(is_reported);
    }
}
