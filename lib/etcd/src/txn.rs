//! Conditions and operations of etcd transactions.

use etcd_client::{Compare, CompareOp, PutOptions, TxnOp};

/// Condition: the key has this value.
pub(crate) fn has_value(key: &str, value: &str) -> Compare {
    Compare::value(key, CompareOp::Equal, value)
}

/// Condition: the key does not exist.
pub(crate) fn is_absent(key: &str) -> Compare {
    Compare::create_revision(key, CompareOp::Equal, 0)
}

/// Condition: the key is unmodified since this revision.
pub(crate) fn is_unchanged(key: &str, mod_revision: i64) -> Compare {
    Compare::mod_revision(key, CompareOp::Equal, mod_revision)
}

/// Writes a permanent key.
pub(crate) fn put(key: &str, value: &str) -> TxnOp {
    TxnOp::put(key, value, None)
}

/// Writes a key under a lease.
pub(crate) fn put_under(lease: i64, key: &str, value: &str) -> TxnOp {
    TxnOp::put(key, value, Some(PutOptions::new().with_lease(lease)))
}

/// Deletes a key.
pub(crate) fn delete(key: &str) -> TxnOp {
    TxnOp::delete(key, None)
}
