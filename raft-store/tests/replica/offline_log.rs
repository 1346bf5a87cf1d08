//! The data of stopped replicas shows the true history.

use muster_raft_store::{Config, OfflineLog, OpenError, StateMachine as _};

use crate::group::{Cluster, Node};
use crate::support::config;
use crate::support::counter::Counter;
use crate::support::eventually;

/// Reads a replica's directory, once it is free.
async fn offline_log(node: &Node) -> OfflineLog<Counter> {
    let cluster_id = config(node.id, node.directory.path()).cluster_id;
    eventually("a free directory", async || {
        match OfflineLog::read(node.directory.path(), &cluster_id) {
            Ok(log) => Some(log),
            Err(OpenError::InUse { .. }) => None,
            Err(error) => panic!("replica {} cannot be read: {error:?}", node.id),
        }
    })
    .await
}

/// The state after all entries.
fn replayed(log: &OfflineLog<Counter>) -> Counter {
    let mut state = log.base.clone();
    for entry in &log.entries {
        for command in &entry.commands {
            state.apply(entry.time_ms, command);
        }
    }
    state
}

#[tokio::test(flavor = "multi_thread")]
async fn the_log_of_a_stopped_replica_replays_to_the_state_that_it_had() {
    let mut cluster = Cluster::start(|_| {}).await;
    for amount in 1..=20 {
        cluster.add("a", amount).await;
    }
    let state = cluster.converge().await;
    let directory = cluster.nodes[0].directory.path();
    let cluster_id = config(1, directory).cluster_id;
    let refused = OfflineLog::<Counter>::read(directory, &cluster_id);
    assert!(matches!(refused, Err(OpenError::InUse { .. })));
    for node in &mut cluster.nodes {
        node.kill();
    }
    let mut all = Vec::new();
    for node in &cluster.nodes {
        all.push(offline_log(node).await);
    }
    let common = all.iter().map(|it| it.entries.len()).min().unwrap();
    assert!(common >= 20, "{common}");
    for one in &all {
        assert_eq!(replayed(one).totals, state.totals);
        assert!(one.committed >= Some(20), "{:?}", one.committed);
        let digests = |it: &OfflineLog<Counter>| -> Vec<u64> {
            it.entries[..common].iter().map(|it| it.digest).collect()
        };
        assert_eq!(digests(one), digests(&all[0]));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_truncated_log_is_replayed_from_its_snapshot() {
    let snapshots = |config: &mut Config| {
        config.snapshots.snapshot_every_entries = 10;
        config.snapshots.keep_entries = 2;
    };
    let mut cluster = Cluster::start(snapshots).await;
    for amount in 1..=60 {
        cluster.add("a", amount).await;
    }
    let state = cluster.converge().await;
    for node in &mut cluster.nodes {
        node.kill();
    }
    let log = offline_log(&cluster.nodes[0]).await;
    assert!(log.base.revision() > 0, "nothing was removed");
    // A snapshot of the complete state may just have been taken.
    assert!(log.range().is_none_or(|range| *range.start() > 1));
    assert_eq!(replayed(&log).totals, state.totals);
}
