//! Replicas that join, are replaced and leave while the cluster works.

use std::collections::BTreeSet;
use std::time::Duration;

use muster_client::{Client, ClientConfig, WatchFilter, WatchUpdate};
use muster_model::ids::{JobId, Revision};
use muster_proto::v1;
use muster_proto::v1::event::Kind;
use muster_tests::{Cluster, Run, Shape, eventually, shell};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

/// Exit code of a replica that the group has removed.
const REMOVED: i32 = 5;

const ONE_WORKER: Shape = Shape {
    replicas: 3,
    workers: 1,
    gpus: 0,
};

/// A client that keeps submitting; all acknowledged jobs must exist at the end.
struct Load {
    stop: watch::Sender<bool>,
    acknowledged: JoinHandle<Vec<JobId>>,
}

impl Load {
    async fn start(cluster: &Cluster) -> Self {
        let (stop, stopped) = watch::channel(false);
        let config = ClientConfig {
            deadline: Duration::from_secs(20),
            ..ClientConfig::new(cluster.addresses.clone())
        };
        let client = Client::connect(config).await.unwrap();
        let submitting = async move {
            let mut acknowledged = Vec::new();
            while !*stopped.borrow() {
                let submitted = client.submit_job(shell("exit 0")).await;
                acknowledged.push(
                    submitted
                        .expect("the client knows the current replicas")
                        .job,
                );
                sleep(Duration::from_millis(5)).await;
            }
            acknowledged
        };
        Self {
            stop,
            acknowledged: tokio::spawn(submitting),
        }
    }

    /// Stops it; every acknowledged job must exist.
    async fn check(self, client: &Client) {
        self.stop.send_replace(true);
        let acknowledged = self.acknowledged.await.unwrap();
        let listed = client
            .list_jobs(v1::ListJobsRequest::default(), usize::MAX)
            .await;
        let known: BTreeSet<JobId> = listed.unwrap().1.iter().map(|job| JobId(job.id)).collect();
        let missing: Vec<_> = acknowledged
            .iter()
            .filter(|job| !known.contains(job))
            .collect();
        assert!(missing.is_empty(), "{missing:?} are missing");
        assert!(
            acknowledged.len() > 20,
            "the cluster was busy: {}",
            acknowledged.len()
        );
    }
}

/// Ids of the voters, by the command line.
async fn voters(cluster: &Cluster) -> Vec<u64> {
    let members = cluster
        .muster(&["cluster", "members", "-o", "json"])
        .await
        .json();
    let rows = members["members"].as_array().unwrap().iter();
    let voters = rows.filter(|member| member["role"] != "learner");
    voters
        .map(|member| member["id"].as_u64().unwrap())
        .collect()
}

fn is_removed(message: &str) -> bool {
    message.contains("this replica was removed from the group")
}

/// Waits until a replica's process has ended because the group removed it.
async fn ends_as_removed(cluster: &mut Cluster, replica: usize) {
    eventually("the removed replica learns of it and ends", async || {
        cluster.replicas[replica].exit_code()
    })
    .await;
    assert_eq!(cluster.replicas[replica].exit_code(), Some(REMOVED));
    let printed = cluster.replicas[replica].printed();
    assert!(is_removed(&printed), "{printed}");
}

/// Runs a job to its end: workers follow the leader.
async fn runs_a_job(client: &Client) {
    let job = client.submit_job(shell("exit 0")).await.unwrap().job;
    let ended = tokio::time::timeout(Duration::from_secs(60), client.wait_job(job)).await;
    assert_eq!(ended.unwrap().unwrap().phase(), v1::JobPhase::Succeeded);
}

/// Changes of replicas, in order, until one was removed.
async fn replicas_changed(client: &Client) -> Vec<(u64, v1::ReplicaMembership)> {
    let filter = WatchFilter {
        jobs: Vec::new(),
        kinds: vec![v1::EventKind::ReplicaChanged],
    };
    let mut watch = client.watch(Some(Revision(1)), filter);
    let mut changes = Vec::new();
    while !matches!(changes.last(), Some((_, v1::ReplicaMembership::Removed))) {
        if let WatchUpdate::Events { events, .. } = watch.next().await.unwrap() {
            changes.extend(events.into_iter().filter_map(|event| match event.kind {
                Some(Kind::ReplicaChanged(event)) => Some((event.replica_id, event.membership())),
                _ => None,
            }));
        }
    }
    changes
}

#[tokio::test(flavor = "multi_thread")]
async fn three_replicas_become_five_and_the_leader_is_removed_under_load() {
    let mut cluster = Cluster::start(ONE_WORKER).await;
    let client = cluster.client().await;
    let load = Load::start(&cluster).await;

    // The fourth replica asks to be added on its own; it votes once an admin promotes it.
    let fourth = cluster.add_replica(true);
    cluster.replicas[fourth].start();
    eventually("the fourth learns", async || {
        let status = client.status(v1::Consistency::Linearizable).await.ok()?;
        status
            .replicas
            .iter()
            .any(|replica| replica.id == 4)
            .then_some(())
    })
    .await;
    assert_eq!(voters(&cluster).await, [1, 2, 3]);
    let promoted = cluster.muster(&["cluster", "promote", "4"]).await;
    assert!(
        promoted
            .stderr
            .contains("4 voters survive the failure of 1"),
        "{promoted:?}"
    );
    // Under load the leader may change meanwhile: the repeated request then finds its own effect.
    let done = promoted.ok();
    assert!(
        ["replica 4 votes\n", "replica 4 voted already\n"].contains(&done.as_str()),
        "{done}"
    );

    // The fifth waits until it is added.
    let fifth = cluster.add_replica(false);
    cluster.replicas[fifth].start();
    let address = format!("5={}", cluster.addresses[fifth]);
    let added = cluster.muster(&["cluster", "add", &address]).await;
    let done = added.ok();
    assert!(
        ["replica 5 votes\n", "replica 5 voted already\n"].contains(&done.as_str()),
        "{done}"
    );
    let again = cluster.muster(&["cluster", "add", &address]).await;
    assert_eq!(again.ok(), "replica 5 was already a voter\n");
    assert_eq!(voters(&cluster).await, [1, 2, 3, 4, 5]);

    let leader = cluster.leader(&client).await;
    let id = (leader + 1).to_string();
    let removed = cluster.muster(&["cluster", "remove", &id]).await;
    assert_eq!(removed.ok(), format!("replica {id} was removed\n"));
    let again = cluster.muster(&["cluster", "remove", &id]).await;
    assert_eq!(
        again.ok(),
        format!("replica {id} had already been removed\n")
    );
    eventually("the removed leader's process ends", async || {
        (!cluster.replicas[leader].is_running()).then_some(())
    })
    .await;
    let printed = cluster.replicas[leader].printed();
    assert!(is_removed(&printed), "{printed}");
    let left: Vec<u64> = (1..=5).filter(|other| other.to_string() != id).collect();
    assert_eq!(voters(&cluster).await, left);

    // Its id is never reused, and all events are delivered.
    let reused = format!("{id}={}", cluster.addresses[leader]);
    let reused = cluster.muster(&["cluster", "add", &reused]).await;
    assert!(reused.stderr.contains("ids are never reused"), "{reused:?}");
    let expected = [
        (4, v1::ReplicaMembership::Learner),
        (4, v1::ReplicaMembership::Voter),
        (5, v1::ReplicaMembership::Learner),
        (5, v1::ReplicaMembership::Voter),
        (leader as u64 + 1, v1::ReplicaMembership::Removed),
    ];
    assert_eq!(replicas_changed(&client).await, expected);
    runs_a_job(&client).await;
    load.check(&client).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn all_replicas_are_replaced_one_by_one_and_clients_and_workers_follow() {
    let mut cluster = Cluster::start(ONE_WORKER).await;
    let client = cluster.client().await;
    let load = Load::start(&cluster).await;
    runs_a_job(&client).await;
    for old in 0..3 {
        // The first one is dead; the others live, and one of them may lead.
        if old == 0 {
            cluster.replicas[old].kill();
        }
        let new = cluster.add_replica(false);
        cluster.replicas[new].start();
        let named = format!("{}={}", new + 1, cluster.addresses[new]);
        let replaced = cluster
            .muster(&["cluster", "replace", &(old + 1).to_string(), &named])
            .await;
        let expected = format!("replica {} replaces replica {}\n", new + 1, old + 1);
        assert_eq!(replaced.ok(), expected);
        if old == 0 {
            // The dead replica returns and learns its removal from the replicas that it knew.
            cluster.replicas[old].start();
            ends_as_removed(&mut cluster, old).await;
        }
        runs_a_job(&client).await;
    }
    assert_eq!(voters(&cluster).await, [4, 5, 6]);
    eventually("the live ones have ended", async || {
        let old = &cluster.replicas[1..3];
        old.iter()
            .all(|replica| !replica.is_running())
            .then_some(())
    })
    .await;
    // None of the replicas that the worker and the client were started with is left.
    let leader = cluster.leader(&client).await;
    cluster.replicas[leader].kill();
    runs_a_job(&client).await;
    load.check(&client).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_completes_wherever_its_leader_is_killed() {
    let mut cluster = Cluster::start(ONE_WORKER).await;
    let client = cluster.client().await;
    let load = Load::start(&cluster).await;
    // From the start of a promotion to after its end.
    for (trial, delay_ms) in [0, 60, 250].into_iter().enumerate() {
        let new = cluster.add_replica(true);
        cluster.replicas[new].start();
        let id = new as u64 + 1;
        eventually("the new one has caught up", async || {
            let status = client.status(v1::Consistency::Linearizable).await.ok()?;
            let replicas = &status.replicas;
            let replica = replicas.iter().find(|replica| replica.id == id)?;
            replica
                .last_heartbeat_age_ms
                .is_some_and(|ago| ago < 200)
                .then_some(())
        })
        .await;
        let leader = cluster.leader(&client).await;
        let promoting = cluster.command(&["cluster", "promote", &id.to_string()]);
        let promoting = tokio::spawn(Run::of(promoting, ""));
        sleep(Duration::from_millis(delay_ms)).await;
        cluster.replicas[leader].kill();
        let began = Instant::now();
        let promoted = promoting.await.unwrap();
        let took = began.elapsed();
        assert_eq!(
            promoted.code, 0,
            "trial {trial}: {promoted:?} after {took:?}"
        );
        cluster.replicas[leader].start();
        let expected: Vec<u64> = (1..=id).collect();
        eventually("no change is left half done", async || {
            (voters(&cluster).await == expected).then_some(())
        })
        .await;
    }
    runs_a_job(&client).await;
    load.check(&client).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn changes_that_endanger_the_group_are_refused_with_a_remedy() {
    let mut cluster = Cluster::start(Shape {
        workers: 0,
        ..ONE_WORKER
    })
    .await;
    let client = cluster.client().await;
    cluster.leader(&client).await;
    let refusals = [
        (
            vec!["remove", "3"],
            "2 voters would be left, which survive no failure",
        ),
        (vec!["remove", "9"], "replica 9 is not a member"),
        (vec!["promote", "9"], "replica 9 is not a member"),
        (vec!["add", "2=127.0.0.1:1"], "replica 2 at"),
        (vec!["replace", "3", "2"], "replica 2 votes already"),
    ];
    for (args, expected) in refusals {
        let args: Vec<&str> = [&["cluster"], &*args].concat();
        let refused = cluster.muster(&args).await;
        assert_eq!(refused.code, 1, "{refused:?}");
        assert!(refused.stderr.contains(expected), "{args:?}: {refused:?}");
    }
    // A dead replica is removed by force, and the others continue.
    let leader = cluster.leader(&client).await;
    let dead = (leader + 1) % 3;
    cluster.replicas[dead].kill();
    let id = (dead + 1).to_string();
    let removed = cluster.muster(&["cluster", "remove", &id, "--force"]).await;
    assert!(
        removed.stderr.contains("2 voters survive the failure of 0"),
        "{removed:?}"
    );
    assert_eq!(voters(&cluster).await.len(), 2);
    assert!(client.submit_job(shell("exit 0")).await.is_ok());
}

#[tokio::test]
async fn leadership_moves_once_whichever_replica_is_asked() {
    let cluster = Cluster::start(Shape {
        workers: 0,
        ..ONE_WORKER
    })
    .await;
    let client = cluster.client().await;
    let term = async || {
        eventually("a replica leads", async || {
            let status = client.status(v1::Consistency::Linearizable).await.ok()?;
            Some(status.term)
        })
        .await
    };
    for _ in 0..6 {
        let leader = cluster.leader(&client).await;
        let before = term().await;
        let follower = &cluster.addresses[(leader + 1) % 3];
        let args = ["cluster", "transfer-leader", "--address", follower];
        let run = cluster.muster(&args).await;
        assert_eq!(run.code, 0, "{run:?}");
        assert_eq!(term().await, before + 1, "{run:?}");
    }
}
