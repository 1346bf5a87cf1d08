//! Snapshots: their file format, their place on disk, and how one is built and loaded.

mod format;
mod store;
mod trust;

pub(crate) use store::{SnapshotFile, SnapshotStore, reread};
