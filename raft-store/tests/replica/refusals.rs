//! Data on which a replica refuses to start, and the end of a replica whose disk fails.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;

use muster_raft_store::sim::{Environment, ProductionRuntime};
use muster_raft_store::storage::disk::{LogChange, LogDisk, MetaKey, RocksLog};
use muster_raft_store::storage::memory::{MemoryLog, MemoryNetwork, MemorySnapshots};
use muster_raft_store::{Config, Handle, OpenError, Peer, ProposeError, WallClock};
use tempfile::TempDir;

use crate::support::counter::{Add, Counter};
use crate::support::{config, eventually, leads, newest_snapshot, stops};

async fn open(config: Config) -> Result<Handle<Counter>, OpenError> {
    Handle::open(config).await
}

/// Reopens the directory of a replica that was just shut down, once it is free.
async fn reopen(config: Config) -> Result<Handle<Counter>, OpenError> {
    eventually("a free directory", async || {
        match open(config.clone()).await {
            Err(OpenError::InUse { .. }) => None,
            other => Some(other),
        }
    })
    .await
}

async fn close(handle: Handle<Counter>) {
    handle.shutdown().await;
}

async fn lead(handle: &Handle<Counter>, id: u64) {
    handle
        .initialize(vec![Peer::new(id, "127.0.0.1:1")])
        .await
        .unwrap();
    leads(handle).await;
}

/// A data directory with some history and one snapshot.
async fn used_directory(folder: &Path) -> Config {
    let config = config(1, folder);
    let handle = open(config.clone()).await.unwrap();
    lead(&handle, 1).await;
    for amount in 0..10 {
        handle.propose(vec![Add::new("a", amount)]).await.unwrap();
    }
    handle.trigger_snapshot().await.unwrap();
    eventually("a snapshot", async || handle.status().snapshot_index).await;
    for amount in 0..10 {
        handle.propose(vec![Add::new("b", amount)]).await.unwrap();
    }
    close(handle).await;
    config
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_process_is_refused() {
    let folder = TempDir::new().unwrap();
    let config = config(1, folder.path());
    let first = open(config.clone()).await.unwrap();
    let second = open(config).await;
    assert!(matches!(second, Err(OpenError::InUse { .. })));
    close(first).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn foreign_data_is_refused_and_left_alone() {
    let folder = TempDir::new().unwrap();
    let config = used_directory(folder.path()).await;

    let mut foreign = config.clone();
    foreign.cluster_id = "another".to_owned();
    let error = reopen(foreign).await.unwrap_err();
    assert!(
        matches!(error, OpenError::ForeignCluster { .. }),
        "{error:?}"
    );

    let mut other = config.clone();
    other.replica_id = 2;
    let error = reopen(other).await.unwrap_err();
    assert!(
        matches!(
            error,
            OpenError::WrongReplica {
                found: 1,
                expected: 2
            }
        ),
        "{error:?}"
    );

    let handle = reopen(config).await.unwrap();
    eventually("the old state", async || {
        (handle.with_state(|state| state.revision) == 20).then_some(())
    })
    .await;
    close(handle).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_snapshot_is_refused_by_name() {
    let folder = TempDir::new().unwrap();
    let config = used_directory(folder.path()).await;
    let path = newest_snapshot(folder.path());
    let good = fs::read(&path).unwrap();
    let name = path.file_name().unwrap().to_str().unwrap();
    let middle = good.len() / 2;

    let mut flipped = good.clone();
    flipped[middle] ^= 1;
    let cut = good[..good.len() - 3].to_vec();
    for damaged in [flipped, cut] {
        fs::write(&path, damaged).unwrap();
        match reopen(config.clone()).await.unwrap_err() {
            OpenError::Corrupt { what, .. } => assert!(what.contains(name), "{what}"),
            other => panic!("{other:?}"),
        }
    }

    let mut newer = good.clone();
    newer[8] += 1;
    fs::write(&path, newer).unwrap();
    let error = reopen(config.clone()).await.unwrap_err();
    assert!(
        matches!(
            error,
            OpenError::NewerFormat {
                found: 2,
                supported: 1,
                ..
            }
        ),
        "{error:?}"
    );

    fs::write(&path, good).unwrap();
    close(reopen(config).await.unwrap()).await;
}

/// Changes the stored log of a closed replica.
async fn tamper(config: &Config, change: impl Fn(&RocksLog) -> LogChange) {
    let path = config.data_dir.join("log");
    // The database of a replica that was just shut down may still be closing.
    let log = eventually("a free database", async || RocksLog::open(&path).ok()).await;
    log.write(vec![change(&log)]).unwrap();
    let (sender, synced) = tokio::sync::oneshot::channel();
    log.sync(Box::new(move |result| sender.send(result).unwrap()));
    synced.await.unwrap().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_log_is_refused_by_position() {
    let folder = TempDir::new().unwrap();
    let config = used_directory(folder.path()).await;
    tamper(&config, |log| {
        let (index, mut record) = log.read_entries(15, 16, 1).unwrap().remove(0);
        let last = record.len() - 1;
        record[last] ^= 0x40;
        LogChange::PutEntry { index, record }
    })
    .await;
    match reopen(config.clone()).await.unwrap_err() {
        OpenError::Corrupt { what, .. } => assert_eq!(what, "log entry 15"),
        other => panic!("{other:?}"),
    }
    tamper(&config, |_| LogChange::RemoveEntries { from: 15, to: 17 }).await;
    match reopen(config).await.unwrap_err() {
        OpenError::Corrupt { what, detail } => {
            assert_eq!(
                (what.as_str(), detail.as_str()),
                ("log entry 15", "it is missing")
            );
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn newer_records_are_refused() {
    let folder = TempDir::new().unwrap();
    let config = used_directory(folder.path()).await;
    for key in [MetaKey::Vote, MetaKey::Identity] {
        let stored = std::sync::Mutex::new(Vec::new());
        tamper(&config, |log| {
            let mut record = log.read_meta(key).unwrap().unwrap();
            stored.lock().unwrap().clone_from(&record);
            record[0] += 1;
            LogChange::PutMeta { key, record }
        })
        .await;
        let error = reopen(config.clone()).await.unwrap_err();
        assert!(matches!(error, OpenError::NewerFormat { .. }), "{error:?}");
        let record = stored.into_inner().unwrap();
        tamper(&config, |_| LogChange::PutMeta {
            key,
            record: record.clone(),
        })
        .await;
    }
    close(reopen(config).await.unwrap()).await;
}

fn environment(log: &MemoryLog) -> Environment {
    Environment {
        log: Arc::new(log.clone()),
        snapshots: Arc::new(MemorySnapshots::new()),
        transport: Arc::new(MemoryNetwork::new()),
        clock: Arc::new(WallClock),
        fresh_incarnation: 7,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_stops_the_replica_and_loses_nothing_acknowledged() {
    let log = MemoryLog::new();
    let config = config(1, Path::new("unused"));
    let handle = Handle::<Counter>::open_on::<ProductionRuntime>(config.clone(), environment(&log))
        .await
        .unwrap();
    lead(&handle, 1).await;
    for amount in 1..=5 {
        handle.propose(vec![Add::new("a", amount)]).await.unwrap();
    }
    log.fail(ErrorKind::StorageFull);
    let outcome = handle.propose(vec![Add::new("a", 100)]).await;
    assert!(
        matches!(outcome, Err(ProposeError::Unknown | ProposeError::Stopped)),
        "{outcome:?}"
    );
    stops(&handle).await;
    let after = handle.propose(vec![Add::new("a", 100)]).await;
    assert_eq!(after, Err(ProposeError::Stopped));

    let disk = log.restart(Arc::new(|job| job()));
    let handle = Handle::<Counter>::open_on::<ProductionRuntime>(config, environment(&disk))
        .await
        .unwrap();
    leads(&handle).await;
    handle.read_linearizable().await.unwrap();
    assert_eq!(handle.with_state(|state| state.totals["a"]), 15);
}

#[tokio::test(flavor = "multi_thread")]
async fn limits_are_named() {
    let mut config = config(1, Path::new("unused"));
    config.batch.command_bytes_max = 100;
    config.batch.proposal_bytes_max = 150;
    config.batch.entry_commands_max = 3;
    let handle =
        Handle::<Counter>::open_on::<ProductionRuntime>(config, environment(&MemoryLog::new()))
            .await
            .unwrap();
    lead(&handle, 1).await;
    let long = Add::new(&"x".repeat(200), 1);
    let error = handle.propose(vec![long]).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "208 bytes exceed the limit of 100 (command_bytes_max)"
    );
    let some = vec![Add::new(&"x".repeat(80), 1); 2];
    let error = handle.propose(some).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "176 bytes exceed the limit of 150 (proposal_bytes_max)"
    );
    let many = vec![Add::new("a", 1); 4];
    let error = handle.propose(many).await.unwrap_err();
    assert_eq!(
        error,
        ProposeError::TooMany {
            commands: 4,
            limit: 3
        }
    );
    assert_eq!(handle.propose(Vec::new()).await, Ok(Vec::new()));
    assert_eq!(
        handle.propose(vec![Add::new("a", 1); 3]).await,
        Ok(vec![1, 2, 3])
    );
}
