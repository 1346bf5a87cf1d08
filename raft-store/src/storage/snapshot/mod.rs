//! Snapshots: file format, storage, creation and loading.

mod format;
mod store;
mod trust;

pub(crate) use store::{SnapshotFile, SnapshotStore, reread};
