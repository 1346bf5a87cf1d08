//! The cluster at an earlier revision, after all of it has changed.

use muster_client::{Client, ClientConfig, ClientError};
use muster_model::ids::{JobId, Revision};
use muster_proto::v1;
use muster_tests::{Cluster, Shape, eventually, only_attempt, shell, submit, with_gpus};
use serde_json::Value;

const ONE_WORKER: Shape = Shape {
    replicas: 3,
    workers: 1,
    gpus: 1,
};

/// Phase of a job in a list of them.
fn phase(list: &Value, job: JobId) -> &str {
    let jobs = list["jobs"].as_array().unwrap();
    let found = jobs.iter().find(|it| it["id"] == job.get());
    found.map_or("unknown", |it| it["phase"].as_str().unwrap())
}

#[tokio::test]
async fn jobs_and_hosts_are_shown_as_of_a_revision_before_everything_was_cancelled() {
    let mut cluster = Cluster::start(ONE_WORKER).await;
    let client = cluster.client().await;
    let running = submit(&client, with_gpus(shell("sleep 600"), 1)).await;
    only_attempt(&client, running).await;
    let waiting = submit(&client, with_gpus(shell("true"), 1)).await;
    let read = client.get_job(waiting, 1, v1::Consistency::Linearizable);
    let then = read.await.unwrap().revision;
    for job in [waiting, running] {
        client.cancel_job(job, "ada", "not needed").await.unwrap();
    }
    client.wait_job(running).await.unwrap();

    // The queried replica reads earlier states from its disk alone.
    let asked = (cluster.leader(&client).await + 1) % 3;
    cluster.replicas[asked].kill();
    cluster.replicas[asked].start();
    let config = ClientConfig {
        discover: false,
        ..ClientConfig::new([cluster.addresses[asked].clone()])
    };
    let one = Client::connect(config).await.unwrap();
    eventually("the replica answers", async || {
        one.status(v1::Consistency::Linearizable).await.ok()
    })
    .await;
    let (at, address) = (then.to_string(), cluster.addresses[asked].clone());
    let show = async |args: &[&str]| {
        let args = [args, &["--address", &address]].concat();
        cluster.muster(&args).await
    };
    let past = show(&["job", "list", "--at", &at, "-o", "json"])
        .await
        .json();
    assert_eq!(past["revision"], then.get());
    assert_eq!(phase(&past, running), "running");
    assert_eq!(phase(&past, waiting), "queued");
    let present = show(&["job", "list", "-o", "json"]).await.json();
    assert_eq!(phase(&present, running), "cancelled");
    assert_eq!(phase(&present, waiting), "cancelled");

    let (id, args) = (waiting.to_string(), ["-o", "json", "--at", &at]);
    let why = show(&[&["job", "explain", &id], &args[..]].concat()).await;
    assert_eq!(why.json()["jobs_ahead"], 0);
    let held = async |args: &[&str]| {
        let gpus = show(&[&["gpu", "list", "-o", "json"], args].concat()).await;
        gpus.json()["gpus"][0]["holder"]["job"] == running.get()
    };
    assert!(held(&["--at", &at]).await);
    assert!(!held(&[]).await);
    let watched = show(&["job", "list", "--at", &at, "--watch"]).await;
    assert_eq!(watched.code, 64, "{watched:?}");

    let newer = show(&["queue", "list", "--at", "900000000"]).await;
    assert_eq!(newer.code, 1, "{newer:?}");
    assert!(newer.stderr.contains("is not reached"), "{newer:?}");
    let refused = one.at(Revision(900_000_000));
    let refused = refused.list_queues(v1::Consistency::Stale).await;
    assert_eq!(refused.unwrap_err().reason(), Some("REVISION_AHEAD"));
    let unknown = one.at(Revision(1));
    let unknown = unknown.get_job(running, 1, v1::Consistency::Stale).await;
    let reason = |error: &ClientError| error.reason().map(str::to_owned);
    assert_eq!(
        reason(&unknown.unwrap_err()).as_deref(),
        Some("UNKNOWN_JOB")
    );
}
