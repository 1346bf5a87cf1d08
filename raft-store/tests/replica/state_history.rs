//! Past states of a running replica, across its snapshots and the truncation of its log.

use std::collections::BTreeMap;

use muster_raft_store::{Config, Handle, StateHistoryError};

use crate::group::Cluster;
use crate::support::counter::{Add, Counter};
use crate::support::eventually;

/// Number of snapshots that the replicas keep, with the log between them.
const HISTORY: usize = 3;

fn history(config: &mut Config) {
    config.snapshots.snapshot_every_entries = 10;
    config.snapshots.keep_entries = 2;
    config.snapshots.history_snapshots = HISTORY;
}

/// Adds twice in one entry, and remembers the resulting state.
async fn add_two(cluster: &Cluster, amount: u64, seen: &mut BTreeMap<u64, Counter>) {
    cluster
        .retry(|handle| async move {
            let two = vec![Add::new("a", amount), Add::new("b", amount)];
            handle.propose(two).await
        })
        .await;
    let state = cluster.converge().await;
    seen.insert(state.revision, state);
}

/// Oldest revision whose state a replica can rebuild.
fn oldest(handle: &Handle<Counter>) -> u64 {
    match handle.state_at(1, &|| true) {
        Err(StateHistoryError::TooOld { asked: 1, oldest }) => oldest,
        other => panic!("the log was not truncated: {other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_state_since_the_oldest_snapshot_can_be_rebuilt() {
    let mut cluster = Cluster::start(history).await;
    let mut seen = BTreeMap::new();
    for amount in 1..=60 {
        add_two(&cluster, amount, &mut seen).await;
    }
    // The data of a replica outlives it.
    cluster.nodes[0].kill();
    cluster.nodes[0].start(history).await;
    let newest = cluster.converge().await.revision;
    for node in &cluster.nodes {
        let handle = node.handle();
        eventually("a truncated log", async || handle.status().purged_index).await;
        let oldest = oldest(handle);
        let shown = seen.range(oldest..);
        // At least two whole intervals of ten entries with two commands each.
        assert!(
            shown.clone().count() >= 10 * (HISTORY - 1),
            "only {oldest} to {newest}"
        );
        for (revision, state) in shown {
            assert_eq!(handle.state_at(*revision, &|| true).as_ref(), Ok(state));
        }
        // The first of the two commands of an entry.
        for (revision, state) in seen.range(oldest + 2..) {
            let half = handle.state_at(revision - 1, &|| true).unwrap();
            assert_eq!(half.totals["a"], state.totals["a"]);
            assert!(half.totals["b"] < state.totals["b"]);
        }
        let ahead = StateHistoryError::NotReached {
            asked: newest + 1,
            newest,
        };
        assert_eq!(handle.state_at(newest + 1, &|| true), Err(ahead));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_complete_history_is_kept_until_enough_snapshots_exist() {
    let cluster = Cluster::start(history).await;
    let mut seen = BTreeMap::new();
    for amount in 1..=15 {
        add_two(&cluster, amount, &mut seen).await;
    }
    let handle = cluster.nodes[0].handle();
    eventually("a snapshot", async || handle.status().snapshot_index).await;
    for (revision, state) in &seen {
        assert_eq!(handle.state_at(*revision, &|| true).as_ref(), Ok(state));
    }
    assert_eq!(handle.state_at(0, &|| true), Ok(Counter::default()));
}
