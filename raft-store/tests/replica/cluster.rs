//! Three replicas in one process, over gRPC on loopback and RocksDB with real syncs.

use std::collections::BTreeSet;

use muster_raft_store::{Config, MembershipError, ProposeError};
use tempfile::TempDir;

use crate::group::Cluster;
use crate::support::counter::Add;
use crate::support::{eventually, newest_snapshot};

#[tokio::test(flavor = "multi_thread")]
async fn acknowledged_commands_survive_the_leader_and_a_restart_of_all() {
    let mut cluster = Cluster::start(|_| {}).await;
    assert_eq!(cluster.add("a", 1).await, 1);
    let leader = cluster.leader().await;
    let several = vec![Add::new("a", 2), Add::new("b", 5), Add::new("a", 4)];
    let outcomes = cluster.nodes[leader]
        .handle()
        .propose(several)
        .await
        .unwrap();
    assert_eq!(outcomes, [3, 5, 7]);

    cluster.nodes[leader].kill();
    assert_eq!(cluster.add("b", 1).await, 6);
    cluster.nodes[leader].start(|_| {}).await;
    let state = cluster.converge().await;
    assert_eq!((state.totals["a"], state.totals["b"]), (7, 6));

    for node in &mut cluster.nodes {
        node.kill();
    }
    for node in &mut cluster.nodes {
        node.start(|_| {}).await;
    }
    assert_eq!(cluster.add("a", 1).await, 8);
    assert_eq!(cluster.converge().await.revision, 6);
}

#[tokio::test(flavor = "multi_thread")]
async fn followers_refuse_proposals_and_serve_linearizable_reads() {
    let cluster = Cluster::start(|_| {}).await;
    let leader = cluster.leader().await;
    let follower = (leader + 1) % 3;
    for amount in 1..=20 {
        cluster.add("a", amount).await;
        let total: u64 = (1..=amount).sum();
        let node = &cluster.nodes[follower];
        node.handle().read_linearizable().await.unwrap();
        assert_eq!(node.handle().with_state(|state| state.totals["a"]), total);
    }
    let refused = cluster.nodes[follower]
        .handle()
        .propose(vec![Add::new("a", 1)])
        .await;
    let expected = cluster.nodes[leader].peer();
    assert_eq!(
        refused,
        Err(ProposeError::NotLeader {
            leader: Some(expected)
        })
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn leadership_is_transferred_on_request() {
    let cluster = Cluster::start(|_| {}).await;
    cluster.add("a", 1).await;
    let leader = cluster.leader().await;
    let next = &cluster.nodes[(leader + 1) % 3];
    cluster.nodes[leader]
        .handle()
        .transfer_leader(next.id)
        .await
        .unwrap();
    eventually("the new leader", async || {
        next.handle().leadership().borrow().is_self.then_some(())
    })
    .await;
    assert_eq!(cluster.add("a", 1).await, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lagging_follower_catches_up_by_a_snapshot() {
    let small = |config: &mut Config| {
        config.snapshots.snapshot_every_entries = 20;
        config.snapshots.keep_entries = 2;
        config.snapshots.chunk_bytes = 512;
        config.hash_every_entries = 10;
    };
    let mut cluster = Cluster::start(small).await;
    let leader = cluster.leader().await;
    let lagging = (leader + 1) % 3;
    cluster.nodes[lagging].kill();
    for number in 0..200 {
        cluster.add(&format!("name-{number}"), number).await;
    }
    eventually("a purged log", async || {
        let status = cluster.nodes[leader].handle().status();
        status.purged_index.filter(|index| *index > 100)
    })
    .await;
    cluster.nodes[lagging].start(small).await;
    let state = cluster.converge().await;
    assert_eq!(state.totals.len(), 200);
    eventually("a snapshot of its own", async || {
        cluster.nodes[lagging].handle().status().snapshot_index
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_whose_snapshot_has_decayed_sends_a_new_one() {
    let small = |config: &mut Config| {
        config.snapshots.snapshot_every_entries = 20;
        config.snapshots.keep_entries = 2;
    };
    let mut cluster = Cluster::start(small).await;
    let leader = cluster.leader().await;
    let lagging = (leader + 1) % 3;
    cluster.nodes[lagging].kill();
    for number in 0..50 {
        cluster.add(&format!("name-{number}"), number).await;
    }
    eventually("a purged log", async || {
        let status = cluster.nodes[leader].handle().status();
        status.purged_index.filter(|index| *index > 20)
    })
    .await;
    let decayed = newest_snapshot(cluster.nodes[leader].directory.path());
    let mut bytes = std::fs::read(&decayed).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&decayed, bytes).unwrap();

    cluster.nodes[lagging].start(small).await;
    assert_eq!(cluster.converge().await.totals.len(), 50);
    assert_eq!(cluster.leader().await, leader, "the leader did not change");
    assert!(!decayed.exists(), "no replica gets that one again");
    eventually("a snapshot of each", async || {
        let mut nodes = cluster.nodes.iter();
        nodes
            .all(|node| node.handle().status().snapshot_index.is_some())
            .then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_without_its_data_rejoins_only_as_a_new_member() {
    let mut cluster = Cluster::start(|_| {}).await;
    cluster.add("a", 1).await;
    let leader = cluster.leader().await;
    let emptied = (leader + 1) % 3;
    let id = cluster.nodes[emptied].id;
    cluster.nodes[emptied].kill();
    cluster.nodes[emptied].directory = TempDir::new().unwrap();
    cluster.nodes[emptied].start(|_| {}).await;
    for amount in 2..=5 {
        cluster.add("a", amount).await;
    }
    // It takes part in nothing under its old name: no vote, no entry.
    assert_eq!(
        cluster.nodes[emptied].handle().status().last_log_index,
        None
    );
    // It detects the cause.
    eventually("the emptied replica knows", async || {
        let status = cluster.nodes[emptied].handle().status();
        status.is_disowned.then_some(())
    })
    .await;
    for node in cluster.nodes.iter().filter(|node| node.id != id) {
        assert!(!node.handle().status().is_disowned, "replica {}", node.id);
    }

    let peer = cluster.nodes[emptied].peer();
    let handle = cluster.nodes[cluster.leader().await].handle();
    assert!(handle.add_learner(peer.clone()).await.is_err());
    handle.remove_member(id).await.unwrap();
    handle.add_learner(peer).await.unwrap();
    handle
        .change_members(BTreeSet::from([1, 2, 3]))
        .await
        .unwrap();
    let state = cluster.converge().await;
    assert_eq!(state.totals["a"], 15);
    assert_eq!(handle.status().voters.len(), 3);
    assert!(!cluster.nodes[emptied].handle().status().is_disowned);
}

#[tokio::test(flavor = "multi_thread")]
async fn only_members_are_removed() {
    let cluster = Cluster::start(|_| {}).await;
    cluster.add("a", 1).await;
    let leader = cluster.leader().await;
    let handle = cluster.nodes[leader].handle();
    let removed = handle.remove_member(9).await;
    assert_eq!(removed, Err(MembershipError::UnknownMember { id: 9 }));

    let leaving = cluster.nodes[(leader + 1) % 3].id;
    handle.remove_member(leaving).await.unwrap();
    let again = handle.remove_member(leaving).await;
    assert_eq!(again, Err(MembershipError::UnknownMember { id: leaving }));
    // Only the leader knows the membership for certain.
    let follower = cluster.nodes[(leader + 2) % 3].handle();
    let asked = follower.remove_member(9).await;
    assert!(
        matches!(asked, Err(MembershipError::NotLeader { .. })),
        "{asked:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn replicas_without_their_data_do_not_bootstrap_a_second_group() {
    let impatient = |config: &mut Config| config.peer_timeout_ms = 500;
    let mut cluster = Cluster::start(impatient).await;
    cluster.add("a", 1).await;
    cluster.converge().await;
    for node in &mut cluster.nodes {
        node.kill();
    }
    for emptied in 0..2 {
        cluster.nodes[emptied].directory = TempDir::new().unwrap();
        cluster.nodes[emptied].start(impatient).await;
    }
    let members: Vec<_> = cluster.nodes.iter().map(|node| node.peer()).collect();
    let survivor = members[2].clone();

    // While the surviving replica is unreachable, the error names it.
    let refused = cluster.nodes[0].handle().initialize(members.clone()).await;
    assert!(
        matches!(&refused, Err(MembershipError::Unreachable { peer, .. }) if *peer == survivor),
        "{refused:?}"
    );
    cluster.nodes[2].start(impatient).await;
    let refused = cluster.nodes[0].handle().initialize(members).await;
    assert_eq!(
        refused,
        Err(MembershipError::PeerHasGroup {
            peer: survivor.clone()
        })
    );
    let message = refused.unwrap_err().to_string();
    assert!(message.starts_with(&survivor.to_string()), "{message}");
    for emptied in 0..2 {
        let status = cluster.nodes[emptied].handle().status();
        assert_eq!((status.last_log_index, status.leader), (None, None));
    }
    assert!(cluster.nodes[2].handle().status().last_log_index.is_some());
}
