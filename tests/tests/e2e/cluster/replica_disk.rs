//! Replica with a full disk: it stops with a clear error, the others continue, nothing acknowledged is
//! lost, and with free space it catches up.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use muster_client::{Client, ClientConfig};
use muster_model::ids::JobId;
use muster_proto::v1;
use muster_tests::{Cluster, Shape, eventually, is_root, shell, skip};

/// Disk space for a replica's log in these tests, including what fills it.
const DISK_MIB: u64 = 48;
/// Jobs submitted after the disk is full.
const JOBS: usize = 20;

/// Moves a replica's data to a small file system of its own; the replica is started on it.
async fn move_to_small_disk(cluster: &mut Cluster, client: &Client, replica: usize) {
    cluster.replicas[replica].kill();
    let data = cluster.replicas[replica].data_dir();
    let aside = data.with_file_name("aside");
    fs::rename(&data, &aside).unwrap();
    cluster.mount(&data, DISK_MIB);
    copy(&aside, &data);
    cluster.replicas[replica].start();
    caught_up(cluster, client, replica).await;
}

fn copy(from: &Path, to: &Path) {
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            fs::create_dir_all(&target).unwrap();
            copy(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}

/// Waits until a replica has caught up with the leader.
async fn caught_up(cluster: &Cluster, client: &Client, replica: usize) {
    let one = one(cluster, replica).await;
    eventually("the replica has caught up", async || {
        let newest = client.status(v1::Consistency::Linearizable).await.ok()?;
        let own = one.status(v1::Consistency::Stale).await.ok()?;
        (own.revision >= newest.revision).then_some(())
    })
    .await;
}

/// A client that knows only one replica.
async fn one(cluster: &Cluster, replica: usize) -> Client {
    let config = ClientConfig {
        discover: false,
        ..ClientConfig::new([cluster.addresses[replica].clone()])
    };
    Client::connect(config).await.unwrap()
}

/// Fills a replica's disk; returns the file that does it.
fn fill(cluster: &Cluster, replica: usize) -> PathBuf {
    let data = cluster.replicas[replica].data_dir();
    cluster.mounted(&data).fill("ballast")
}

async fn submit(client: &Client, count: usize) -> BTreeSet<JobId> {
    let mut jobs = BTreeSet::new();
    for _ in 0..count {
        // Too large for the space that the log has reserved.
        let mut spec = shell("exit 0");
        let padding = "x".repeat(100_000);
        spec.groups[0]
            .environment
            .insert("PADDING".to_owned(), padding);
        jobs.insert(client.submit_job(spec).await.unwrap().job);
    }
    jobs
}

async fn listed(client: &Client, consistency: v1::Consistency) -> BTreeSet<JobId> {
    let request = v1::ListJobsRequest {
        consistency: consistency.into(),
        ..v1::ListJobsRequest::default()
    };
    let (_, jobs) = client.list_jobs(request, usize::MAX).await.unwrap();
    jobs.iter().map(|job| JobId(job.id)).collect()
}

/// One replica's disk fills up under load.
async fn survives_a_full_disk(cluster: &mut Cluster, client: &Client, replica: usize) {
    let mut jobs = submit(client, 2).await;
    let ballast = fill(cluster, replica);
    jobs.extend(submit(client, JOBS).await);
    let ended = eventually("the replica stops", async || {
        cluster.replicas[replica].exit_code()
    })
    .await;
    let printed = cluster.replicas[replica].printed();
    let last = printed.lines().last().unwrap();
    assert_eq!(ended, 1, "{last}");
    assert!(last.starts_with("error: replication stopped: "), "{last}");
    assert!(printed.contains("No space left on device"), "{printed}");

    let leader = cluster.leader(client).await;
    assert_ne!(leader, replica);
    assert_eq!(listed(client, v1::Consistency::Linearizable).await, jobs);
    jobs.extend(submit(client, 2).await);

    fs::remove_file(ballast).unwrap();
    cluster.replicas[replica].start();
    caught_up(cluster, client, replica).await;
    let one = one(cluster, replica).await;
    assert_eq!(listed(&one, v1::Consistency::Stale).await, jobs);
}

#[tokio::test]
async fn a_follower_with_a_full_disk_steps_aside_and_catches_up() {
    if !is_root() {
        return skip("mounting a small file system needs root");
    }
    let mut cluster = Cluster::start(Shape::default()).await;
    let client = cluster.client().await;
    let leader = cluster.leader(&client).await;
    let follower = (leader + 1) % 3;
    move_to_small_disk(&mut cluster, &client, follower).await;
    assert_ne!(cluster.leader(&client).await, follower);
    survives_a_full_disk(&mut cluster, &client, follower).await;
}

#[tokio::test]
async fn a_leader_with_a_full_disk_is_replaced_and_catches_up() {
    if !is_root() {
        return skip("mounting a small file system needs root");
    }
    let mut cluster = Cluster::start(Shape::default()).await;
    let client = cluster.client().await;
    let leader = cluster.leader(&client).await;
    let chosen = (leader + 1) % 3;
    move_to_small_disk(&mut cluster, &client, chosen).await;
    let id = muster_model::ids::ReplicaId(chosen as u64 + 1);
    eventually("the chosen replica leads", async || {
        // Refused while it is not up to date.
        drop(client.transfer_leader(Some(id)).await);
        (cluster.leader(&client).await == chosen).then_some(())
    })
    .await;
    survives_a_full_disk(&mut cluster, &client, chosen).await;
}
