//! openraft's own storage test suite, on both disks.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use openraft::StorageError;
use openraft::testing::log::{StoreBuilder, Suite};
use tempfile::TempDir;

use crate::apply::applier::{Applier, ApplierParts};
use crate::apply::hash_ledger::HashLedger;
use crate::apply::shared::{Applied, SharedState};
use crate::counter::Counter;
use crate::sim::ProductionRuntime;
use crate::storage::disk::{LogDisk, RocksLog, SnapshotDirectory, SnapshotDisk};
use crate::storage::log_store::{LogLimits, LogStore};
use crate::storage::memory::{MemoryLog, MemorySnapshots};
use crate::storage::snapshot::SnapshotStore;
use crate::types::Types;

type TestTypes = Types<Counter, ProductionRuntime>;
type TestLog = LogStore<Counter>;
type TestApplier = Applier<Counter, ProductionRuntime>;
type Built<G> = Result<(G, TestLog, TestApplier), StorageError<TestTypes>>;

fn build(
    disk: Arc<dyn LogDisk>,
    snapshots: Arc<dyn SnapshotDisk>,
) -> Result<(TestLog, TestApplier), Box<dyn std::error::Error>> {
    // Small enough that reads span disk and ring.
    let limits = LogLimits {
        cached_entries_max: 3,
        cached_bytes_max: 1024,
        read_bytes_max: 256,
    };
    let parts = ApplierParts {
        shared: Arc::new(SharedState::new(Applied::default())),
        snapshots: Arc::new(SnapshotStore::new(snapshots, "suite".to_owned())),
        ledger: Arc::new(HashLedger::new()),
        bytes_since_snapshot: Arc::new(AtomicU64::new(0)),
        observer: None,
    };
    Ok((LogStore::open(disk, limits)?, Applier::new(parts, 0)))
}

struct InMemory;

impl StoreBuilder<TestTypes, TestLog, TestApplier> for InMemory {
    async fn build(&self) -> Built<()> {
        let built = build(Arc::new(MemoryLog::new()), Arc::new(MemorySnapshots::new()));
        let (log, applier) = built.expect("an empty memory disk opens");
        Ok(((), log, applier))
    }
}

struct OnDisk;

impl StoreBuilder<TestTypes, TestLog, TestApplier, TempDir> for OnDisk {
    async fn build(&self) -> Built<TempDir> {
        let folder = TempDir::new().expect("a temporary folder");
        let log = RocksLog::open(folder.path().join("log")).expect("an empty database opens");
        let snapshots = SnapshotDirectory::open(folder.path().join("snapshots"))
            .expect("an empty folder opens");
        let (log, applier) = build(Arc::new(log), Arc::new(snapshots)).expect("empty disks open");
        Ok((folder, log, applier))
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn memory_passes_the_storage_suite() -> Result<(), StorageError<TestTypes>> {
    Suite::<TestTypes, TestLog, TestApplier, InMemory, ()>::test_all(InMemory).await
}

#[tokio::test(flavor = "multi_thread")]
async fn rocksdb_passes_the_storage_suite() -> Result<(), StorageError<TestTypes>> {
    Suite::<TestTypes, TestLog, TestApplier, OnDisk, TempDir>::test_all(OnDisk).await
}
