//! Conditions and operations of transactions, as they are needed here.

use etcd_client::{Compare, CompareOp, PutOptions, TxnOp};

/// A condition: this key has this value.
pub(crate) fn has_value(key: &str, value: &str) -> Compare {
    Compare::value(key, CompareOp::Equal, value)
}

/// A condition: there is no such key.
pub(crate) fn is_absent(key: &str) -> Compare {
    Compare::create_revision(key, CompareOp::Equal, 0)
}

/// A condition: nobody has written this key since.
pub(crate) fn is_unchanged(key: &str, mod_revision: i64) -> Compare {
    Compare::mod_revision(key, CompareOp::Equal, mod_revision)
}

/// Writes a key, to stay.
pub(crate) fn put(key: &str, value: &str) -> TxnOp {
    TxnOp::put(key, value, None)
}

/// Writes a key that goes with a lease.
pub(crate) fn put_under(lease: i64, key: &str, value: &str) -> TxnOp {
    TxnOp::put(key, value, Some(PutOptions::new().with_lease(lease)))
}

/// Removes a key.
pub(crate) fn delete(key: &str) -> TxnOp {
    TxnOp::delete(key, None)
}
