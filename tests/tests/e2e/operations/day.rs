//! A day of operations while twenty clients submit: replicas join, leave, die and are replaced, all are
//! restarted one by one, and the cluster is backed up, destroyed and restored.

use std::collections::BTreeSet;
use std::fs;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use muster_client::{Client, ClientConfig};
use muster_model::ids::JobId;
use muster_proto::v1;
use muster_tests::{Cluster, Run, Shape, eventually, note, shell};
use serde_json::json;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

const CLIENTS: usize = 20;
/// A client's pause between two submissions: in total they submit what one host with two cores runs in
/// addition to everything else.
const PAUSE: Duration = Duration::from_secs(1);
/// Maximum wait for a short job.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Acknowledged jobs with the time of the acknowledgement.
type Acknowledged = Arc<Mutex<Vec<(JobId, Instant)>>>;

/// Running clients.
struct Clients {
    stop: watch::Sender<bool>,
    at_work: Vec<JoinHandle<()>>,
    acknowledged: Acknowledged,
}

impl Clients {
    async fn start(addresses: &[String]) -> Self {
        let (stop, stopped) = watch::channel(false);
        let acknowledged = Acknowledged::default();
        let mut at_work = Vec::new();
        for _ in 0..CLIENTS {
            let config = ClientConfig::new(addresses.to_vec());
            let client = Client::connect(config).await.unwrap();
            let submits = submit_until(client, stopped.clone(), Arc::clone(&acknowledged));
            at_work.push(tokio::spawn(submits));
        }
        Self {
            stop,
            at_work,
            acknowledged,
        }
    }

    /// Jobs acknowledged so far.
    fn so_far(&self) -> BTreeSet<JobId> {
        let acknowledged = self.acknowledged.lock().unwrap();
        acknowledged.iter().map(|(job, _)| *job).collect()
    }

    /// Stops the clients. None of their calls may have failed; returns the acknowledged jobs, and the
    /// longest time without an acknowledgement.
    async fn end(self) -> (BTreeSet<JobId>, Duration) {
        self.stop.send_replace(true);
        for client in self.at_work {
            client.await.unwrap();
        }
        let mut acknowledged = self.acknowledged.lock().unwrap().clone();
        acknowledged.sort_by_key(|(_, at)| *at);
        let pairs = acknowledged.windows(2);
        let stall = pairs.map(|pair| pair[1].1 - pair[0].1).max();
        let jobs: BTreeSet<JobId> = acknowledged.iter().map(|(job, _)| *job).collect();
        assert_eq!(jobs.len(), acknowledged.len(), "every job once");
        (jobs, stall.unwrap_or_default())
    }
}

async fn submit_until(client: Client, stopped: watch::Receiver<bool>, acknowledged: Acknowledged) {
    while !*stopped.borrow() {
        let submitted = client.submit_job(shell("exit 0")).await;
        let submitted = submitted.expect("no call fails during operations");
        let submission = (submitted.job, Instant::now());
        acknowledged.lock().unwrap().push(submission);
        sleep(PAUSE).await;
    }
}

async fn known(client: &Client) -> BTreeSet<JobId> {
    let all = v1::ListJobsRequest::default();
    let listed = client.list_jobs(all, usize::MAX).await.unwrap();
    listed.1.iter().map(|job| JobId(job.id)).collect()
}

/// Asserts that all acknowledged jobs exist.
async fn keeps(client: &Client, acknowledged: &BTreeSet<JobId>) {
    let known = known(client).await;
    let lost: Vec<&JobId> = acknowledged.difference(&known).collect();
    assert!(lost.is_empty(), "{lost:?} were acknowledged and are lost");
}

async fn runs_a_job(client: &Client) {
    let job = client.submit_job(shell("exit 0")).await.unwrap().job;
    let Ok(ended) = timeout(TIMEOUT, client.wait_job(job)).await else {
        let status = client.status(v1::Consistency::Linearizable).await;
        panic!("job {job} does not end: {status:?}");
    };
    assert_eq!(ended.unwrap().phase(), v1::JobPhase::Succeeded);
}

/// Starts one more replica and makes it a member with this command; returns its index.
async fn admit(cluster: &mut Cluster, args: &[&str]) -> usize {
    let new = cluster.add_replica(false);
    cluster.replicas[new].start();
    let named = format!("{}={}", new + 1, cluster.addresses.last().unwrap());
    let args = [&["cluster"], args, &[&named]].concat();
    let admitted = cluster.muster(&args).await;
    assert_eq!(admitted.code, 0, "{admitted:?}");
    new
}

async fn remove(cluster: &mut Cluster, replica: usize) {
    let id = (replica + 1).to_string();
    let removed = cluster.muster(&["cluster", "remove", &id]).await;
    assert_eq!(removed.code, 0, "{removed:?}");
    eventually("the removed replica ends", async || {
        (!cluster.replicas[replica].is_running()).then_some(())
    })
    .await;
}

/// Ends every remaining replica and then the agent, one by one, and restarts each once the others are
/// healthy: like an upgrade, though to the same build (`muster chaos run --profile upgrade` upgrades from
/// an older one).
async fn restart_all(cluster: &mut Cluster, client: &Client, replicas: &[usize]) {
    for replica in replicas {
        cluster.replicas[*replica].end();
        cluster.replicas[*replica].start();
        let config = ClientConfig {
            discover: false,
            ..ClientConfig::new([cluster.addresses[*replica].clone()])
        };
        let restarted = Client::connect(config).await.unwrap();
        eventually("it serves again", async || {
            let consistency = v1::Consistency::Linearizable;
            restarted.status(consistency).await.ok().map(drop)
        })
        .await;
    }
    cluster.workers[0].end();
    cluster.workers[0].start();
    runs_a_job(client).await;
    eventually(
        "all replicas are known to read what this build writes",
        async || {
            let status = client.status(v1::Consistency::Linearizable).await.unwrap();
            (status.command_format > 0 && status.command_level == status.command_format)
                .then_some(())
        },
    )
    .await;
}

/// Kills every replica, removes all data, and creates a cluster from a backup, on the first one's machine.
async fn destroy_and_restore(cluster: &mut Cluster, file: &str) {
    for replica in &mut cluster.replicas {
        replica.kill();
    }
    for replica in &cluster.replicas {
        fs::remove_dir_all(replica.data_dir()).unwrap();
    }
    let address = cluster.addresses[0].clone();
    let folder = cluster.replicas[0].data_dir();
    let folder = folder.to_str().unwrap();
    let args = ["snapshot", "restore", file, "--data-dir", folder];
    let rest = ["--cluster-id", "second", "--advertise", &address];
    let restored = cluster.muster(&[&args[..], &rest[..]].concat()).await;
    assert_eq!(restored.code, 0, "{restored:?}");
    let mut settings = cluster.replicas[0].settings();
    settings["cluster_id"] = "second".into();
    settings["peers"] = json!({"1": address});
    fs::write(&cluster.replicas[0].config, settings.to_string()).unwrap();
    cluster.replicas[0].start();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_day_of_operations_loses_nothing_and_fails_no_call() {
    let mut cluster = Cluster::start(Shape {
        replicas: 3,
        workers: 1,
        gpus: 0,
    })
    .await;
    let client = cluster.client().await;
    let clients = Clients::start(&cluster.addresses).await;

    // Three become five, and three again: the leader is among those that leave.
    for _ in 0..2 {
        admit(&mut cluster, &["add"]).await;
    }
    let mut members: Vec<usize> = (0..5).collect();
    let leader = cluster.leader(&client).await;
    let other = members.iter().find(|it| **it != leader).copied().unwrap();
    for leaving in [leader, other] {
        remove(&mut cluster, leaving).await;
        members.retain(|it| *it != leaving);
    }
    // One dies, and a new one takes its place.
    let dead = members.remove(0);
    cluster.replicas[dead].kill();
    let id = (dead + 1).to_string();
    members.push(admit(&mut cluster, &["replace", &id]).await);
    restart_all(&mut cluster, &client, &members).await;

    // The backup is taken under load: it contains everything acknowledged before it.
    let saved = clients.so_far();
    let file = cluster.write("saved.backup", "");
    fs::remove_file(&file).unwrap();
    let file = file.to_str().unwrap();
    let mut save = cluster.command(&["snapshot", "save", file]);
    save.env("MUSTER_USER", "root");
    let run = Run::of(save, "").await;
    assert_eq!(run.code, 0, "{run:?}");
    let (before, stall) = clients.end().await;
    keeps(&client, &before).await;
    // Anything acknowledged after the backup is lost with the cluster, so no client submits until it is
    // back.
    destroy_and_restore(&mut cluster, file).await;
    cluster.addresses.truncate(1);
    let client = cluster.client().await;
    keeps(&client, &saved).await;
    runs_a_job(&client).await;
    let clients = Clients::start(&cluster.addresses).await;
    for _ in 0..2 {
        admit(&mut cluster, &["add"]).await;
    }
    runs_a_job(&client).await;
    let (after, later_stall) = clients.end().await;
    let all: BTreeSet<JobId> = before.union(&after).copied().collect();
    assert_eq!(all.len(), before.len() + after.len(), "no id twice");
    keeps(&client, &saved.union(&after).copied().collect()).await;
    let (count, stall) = (all.len(), stall.max(later_stall));
    note(&format!(
        "a day of operations: {count} jobs by {CLIENTS} clients, longest time without a write {stall:?}"
    ));
}
