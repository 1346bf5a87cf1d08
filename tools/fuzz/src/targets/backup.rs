//! Backup files: raw, with valid digests around a header and packed data, and around a header and a state. A
//! readable backup can be sealed, and is unchanged when it is opened; without the key, or with another one,
//! it is unreadable.

use muster_engine::state::State;
use muster_raft_store::recovery::backup::{Backup, BackupError, Key, reseal};

use crate::{WITH_LZ4, assert_same, backup, bounded, choice, lz4, or_panic};

fn key(digit: &str) -> Key {
    or_panic(Key::parse(&digit.repeat(64)), "a key of 64 digits")
}

fn content(header: &[u8], packed: &[u8]) -> Vec<u8> {
    let length = u32::try_from(header.len()).unwrap_or(u32::MAX);
    [&length.to_le_bytes(), header, packed].concat()
}

fn read(mut file: &[u8], key: Option<&Key>) -> Result<Backup<State>, BackupError> {
    Backup::read(&mut file, key)
}

fn check(file: &[u8]) {
    let Ok(plain) = read(file, None) else {
        // Any file: with a key, reading must not panic.
        drop(read(file, Some(&key("a"))));
        return;
    };
    let mut sealed = Vec::new();
    let digest = reseal(&mut &*file, &mut sealed, None, Some(&key("a")));
    let digest = or_panic(digest, "what was read cannot be sealed");
    let opened = or_panic(read(&sealed, Some(&key("a"))), "its own key is refused");
    assert_same(&opened.digest, &digest);
    assert_same(&opened.about, &plain.about);
    assert_same(&opened.members, &plain.members);
    assert_same(&opened.state.state_hash(), &plain.state.state_hash());
    assert!(opened.is_sealed && !plain.is_sealed);
    assert!(matches!(read(&sealed, None), Err(BackupError::KeyMissing)));
    let other = read(&sealed, Some(&key("b")));
    assert!(matches!(other, Err(BackupError::WrongKey)));
}

/// Checks one input.
pub(crate) fn run(data: &[u8]) {
    let Some((kind, bytes)) = choice(data) else {
        return;
    };
    bounded(data, WITH_LZ4, || {
        let split = choice(bytes).and_then(|(header, rest)| rest.split_at_checked(header));
        match (kind, split) {
            (0, Some((header, packed))) => check(&backup(&content(header, packed))),
            (1, Some((header, state))) => check(&backup(&content(header, &lz4(state)))),
            (2, _) => check(&backup(bytes)),
            (3, _) => drop(Key::parse(&String::from_utf8_lossy(bytes))),
            _ => check(bytes),
        }
    });
}
