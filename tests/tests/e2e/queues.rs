//! Trees of queues and topologies as admins meet them: tried, applied, read back, refused at their place; and what
//! they mean for jobs.

use muster_client::Client;
use muster_core::ids::JobId;
use muster_proto::v1;
use muster_tests::{Cluster, Shape, eventually, only_attempt, shell, with_gpus};
use serde_json::Value;

const TWO_HOSTS: Shape = Shape {
    replicas: 1,
    workers: 2,
    gpus: 8,
};

const TREE: &str = "\
queues:
  default: {}
  production:
    guarantee: {amounts: {gpus: 8}}
  research:
    weight: 2
    limit: {gpus: 4}
  research/vision:
    order: fair
";

const TOPOLOGY: &str = "\
above: [rack]
inside: [socket]
places:
- {cell: [rack-1], hosts: [node01]}
- {cell: [rack-2], hosts: [node02]}
shapes:
- gpus: 8
  groups:
  - {level: socket, gpus: [0, 1, 2, 3]}
  - {level: socket, gpus: [4, 5, 6, 7]}
";

fn in_queue(mut spec: v1::JobSpec, queue: &str) -> v1::JobSpec {
    spec.queue = Some(queue.to_owned());
    spec
}

async fn submit(client: &Client, spec: v1::JobSpec) -> JobId {
    client.submit_job(spec).await.unwrap().job
}

async fn hosts_joined(client: &Client) {
    eventually("both hosts are up", async || {
        let status = client.status(v1::Consistency::Linearizable).await.ok()?;
        (status.hosts?.up == 2).then_some(())
    })
    .await;
}

fn names(changes: &Value) -> Vec<(&str, &str)> {
    let changes = changes["changes"].as_array().unwrap().iter();
    changes
        .map(|change| {
            let name = change["name"].as_str().unwrap();
            (name, change["change"].as_str().unwrap())
        })
        .collect()
}

#[tokio::test]
async fn a_tree_is_tried_applied_and_read_back_as_it_was_written() {
    let cluster = Cluster::start(TWO_HOSTS).await;
    let client = cluster.client().await;
    hosts_joined(&client).await;
    drop(cluster.write("queues.yaml", TREE));
    let added = [
        ("production", "added"),
        ("research", "added"),
        ("research/vision", "added"),
    ];

    let words = ["queue", "apply", "queues.yaml", "--dry-run", "-o", "json"];
    let tried = cluster.muster(&words).await.json();
    assert_eq!(names(&tried), added);
    let (_, queues) = client
        .list_queues(v1::Consistency::Linearizable)
        .await
        .unwrap();
    assert_eq!(queues.len(), 1, "a dry run changes nothing");

    let words = ["queue", "apply", "queues.yaml", "-o", "json"];
    let applied = cluster.muster(&words).await.json();
    assert_eq!(names(&applied), added);
    let listed = cluster.muster(&["queue", "list"]).await.ok();
    assert!(listed.contains("research/vision"), "{listed}");

    let read = cluster.muster(&["queue", "get"]).await.ok();
    drop(cluster.write("again.yaml", &read));
    let words = ["queue", "apply", "again.yaml", "-o", "json"];
    let again = cluster.muster(&words).await.json();
    assert_eq!(names(&again), [], "{read}");
}

#[tokio::test]
async fn a_bad_tree_is_refused_at_its_place_with_its_arithmetic() {
    let cluster = Cluster::start(TWO_HOSTS).await;
    let client = cluster.client().await;
    hosts_joined(&client).await;

    let tree = "queues:\n  research: {guarantee: {amounts: {gpus: 4}}}\n  \
                research/a: {guarantee: {amounts: {gpus: 6}}}\n";
    let run = cluster.muster_reading(&["queue", "apply", "-"], tree).await;
    assert_eq!(run.code, 1, "{run:?}");
    let place = "<stdin>:2:25: queues.research.guarantee: its children's guarantees add up to 6 gpus, and its own is 4";
    assert!(run.stderr.contains(place), "{run:?}");

    let tree = "queues:\n  production: {guarantee: {amounts: {gpus: 1000}}}\n";
    let run = cluster.muster_reading(&["queue", "apply", "-"], tree).await;
    assert_eq!(run.code, 1, "{run:?}");
    assert!(
        run.stderr.contains("1000") && run.stderr.contains("16"),
        "{run:?}"
    );

    let run = cluster
        .muster_reading(&["queue", "apply", "-"], "queues:\n  a: {wieght: 2}\n")
        .await;
    assert_eq!(run.code, 64, "{run:?}");
    assert!(
        run.stderr.contains("<stdin>:2:7: queues.a.wieght"),
        "{run:?}"
    );
}

#[tokio::test]
async fn a_job_over_its_queues_limit_is_told_the_arithmetic() {
    let cluster = Cluster::start(TWO_HOSTS).await;
    let client = cluster.client().await;
    hosts_joined(&client).await;
    drop(cluster.write("queues.yaml", TREE));
    let applied = cluster.muster(&["queue", "apply", "queues.yaml"]).await;
    assert_eq!(applied.code, 0, "{applied:?}");

    let spec = with_gpus(shell("exec sleep 1000"), 3);
    let first = submit(&client, in_queue(spec.clone(), "research/vision")).await;
    only_attempt(&client, first).await;
    let second = submit(&client, in_queue(spec, "research/vision")).await;
    let told = eventually("the second job waits for its queue", async || {
        let words = ["job", "explain", &second.to_string(), "-o", "json"];
        let told = cluster.muster(&words).await.json();
        (told["blocker"]["kind"] == "limit").then_some(told)
    })
    .await;
    let blocker = &told["blocker"];
    assert_eq!(blocker["queue"], "research");
    assert_eq!(blocker["resource"], "gpus");
    assert_eq!(
        (&blocker["would_be"], &blocker["limit"]),
        (&6.into(), &4.into())
    );

    let queue = ["queue", "get", "research", "-o", "json"];
    let queue = cluster.muster(&queue).await.json();
    assert_eq!(queue["held"]["gpus"], 3);
    assert_eq!(queue["users"][0]["user"], "ada");

    client.cancel_job(first, "ada", "make room").await.unwrap();
    only_attempt(&client, second).await;

    // Jobs are submitted to queues without children.
    let around = in_queue(shell("true"), "research");
    let refused = client.submit_job(around).await.unwrap_err();
    let refusal = refused.refusal().unwrap();
    assert_eq!(refusal.reason, "QUEUE_HAS_CHILDREN");
}

#[tokio::test]
async fn a_topology_is_applied_and_keeps_a_gang_in_one_rack() {
    let cluster = Cluster::start(TWO_HOSTS).await;
    let client = cluster.client().await;
    hosts_joined(&client).await;
    drop(cluster.write("topology.yaml", TOPOLOGY));
    let words = ["topology", "apply", "topology.yaml", "-o", "json"];
    let applied = cluster.muster(&words).await.json();
    assert_eq!(applied["hosts_placed"], 2);
    assert_eq!(applied["hosts_shaped"], 2);
    let read = cluster.muster(&["topology", "get"]).await.ok();
    drop(cluster.write("again.yaml", &read));
    let words = ["topology", "apply", "again.yaml", "-o", "json"];
    let again = cluster.muster(&words).await.json();
    assert_eq!(again["hosts_changed_total"], 0, "{read}");

    let words = [
        "job", "submit", "--gang", "--tasks", "2", "--gpus", "4", "--within", "rack", "-o", "name",
        "--", "sleep", "1000",
    ];
    let job = cluster.muster(&words).await.ok();
    let attempt = only_attempt(&client, JobId(job.trim().parse().unwrap())).await;
    let hosts: Vec<&str> = attempt.tasks.iter().map(|task| &*task.host).collect();
    assert_eq!(hosts[0], hosts[1]);
}
