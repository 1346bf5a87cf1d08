//! Reconciliation of keys in etcd: required writes and deletions, in transactions within etcd's limits.

use std::collections::BTreeMap;
use std::sync::Arc;

/// Values by key.
pub type Contents = BTreeMap<String, Arc<str>>;

/// Changes in one transaction: etcd rejects more than 128 by default (`--max-txn-ops`).
pub const BATCH_OPERATIONS_MAX: usize = 100;
/// Bytes of keys and values in one transaction: etcd rejects requests of more than 1.5 MiB by default
/// (`--max-request-bytes`). A single value may be as large as `records::VALUE_BYTES_MAX`.
pub const BATCH_BYTES_MAX: usize = 1 << 20;

/// One change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// Sets a key to this value.
    Put(String, Arc<str>),
    /// Deletes a key.
    Delete(String),
}

impl Change {
    fn bytes(&self) -> usize {
        match self {
            Self::Put(key, value) => key.len() + value.len(),
            Self::Delete(key) => key.len(),
        }
    }
}

/// Returns the changes from `present` to `wanted`. Deletions come first: a full etcd usually accepts them.
#[must_use]
pub fn changes(present: &Contents, wanted: &Contents) -> Vec<Change> {
    let stale = present
        .keys()
        .filter(|key| !wanted.contains_key(*key))
        .map(|key| Change::Delete(key.clone()));
    let missing = wanted
        .iter()
        .filter(|(key, value)| {
            let same = |it: &Arc<str>| Arc::ptr_eq(it, value) || it == *value;
            !present.get(*key).is_some_and(same)
        })
        .map(|(key, value)| Change::Put(key.clone(), Arc::clone(value)));
    stale.chain(missing).collect()
}

/// Splits the changes, in order, into batches within [`BATCH_OPERATIONS_MAX`] and [`BATCH_BYTES_MAX`]. No
/// batch mixes deletions and writes: a full etcd would reject all of it.
#[must_use]
pub fn batches(changes: Vec<Change>) -> Vec<Vec<Change>> {
    let mut batches: Vec<Vec<Change>> = Vec::new();
    let mut bytes = 0;
    for change in changes {
        let fits = batches.last().is_some_and(|batch| {
            let is_put = |change: &Change| matches!(change, Change::Put(..));
            batch.len() < BATCH_OPERATIONS_MAX
                && bytes + change.bytes() <= BATCH_BYTES_MAX
                && batch.first().map(is_put) == Some(is_put(&change))
        });
        if !fits {
            batches.push(Vec::new());
            bytes = 0;
        }
        bytes += change.bytes();
        if let Some(batch) = batches.last_mut() {
            batch.push(change);
        }
    }
    batches
}

/// Records that a batch was accepted.
pub fn apply(present: &mut Contents, batch: Vec<Change>) {
    for change in batch {
        match change {
            Change::Put(key, value) => drop(present.insert(key, value)),
            Change::Delete(key) => drop(present.remove(&key)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn contents(pairs: &[(&str, &str)]) -> Contents {
        let pairs = pairs.iter();
        pairs
            .map(|(key, value)| ((*key).to_owned(), Arc::from(*value)))
            .collect()
    }

    #[test]
    fn stale_keys_are_removed_first_and_missing_or_different_ones_written() {
        let mut present = contents(&[("a", "1"), ("b", "2"), ("z", "9")]);
        let wanted = contents(&[("a", "1"), ("b", "3"), ("c", "4")]);
        let changes = changes(&present, &wanted);
        assert_eq!(
            changes,
            [
                Change::Delete("z".to_owned()),
                Change::Put("b".to_owned(), "3".into()),
                Change::Put("c".to_owned(), "4".into()),
            ]
        );
        let batches = batches(changes);
        assert_eq!(batches.len(), 2, "removing and writing are apart");
        for batch in batches {
            apply(&mut present, batch);
        }
        assert_eq!(present, wanted);
        assert!(super::changes(&present, &wanted).is_empty());
    }

    #[test]
    fn batches_stay_within_the_limits_of_etcd() {
        let large: Arc<str> = "x".repeat(BATCH_BYTES_MAX / 3).into();
        let small: Arc<str> = "y".into();
        let puts = (0..1_000).map(|index| {
            let value = if index < 10 { &large } else { &small };
            Change::Put(format!("key{index}"), Arc::clone(value))
        });
        let whole = Change::Put("whole".to_owned(), "z".repeat(BATCH_BYTES_MAX + 5).into());
        let all: Vec<Change> = puts.chain([whole]).collect();
        let batches = batches(all.clone());
        for batch in &batches {
            assert!(batch.len() <= BATCH_OPERATIONS_MAX);
            let bytes: usize = batch.iter().map(Change::bytes).sum();
            assert!(bytes <= BATCH_BYTES_MAX || batch.len() == 1, "{bytes}");
        }
        assert_eq!(
            batches.concat(),
            all,
            "nothing is lost, and the order stays"
        );
    }
}
