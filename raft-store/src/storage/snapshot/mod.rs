//! Snapshots: file format, storage, creation and loading.

mod format;
mod store;
mod verified;

pub(crate) use store::{SnapshotFile, SnapshotStore, reread};
