//! Queue trees and topologies from an admin's view: tried, applied, read back, refused with the position;
//! and their effect on jobs.

use muster_client::Client;
use muster_model::ids::JobId;
use muster_proto::v1;
use muster_tests::{Cluster, Shape, eventually, only_attempt, shell, submit, with_gpus};
use serde_json::{Value, json};

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
async fn a_queue_tree_is_dry_run_applied_and_read_back() {
    let cluster = Cluster::start(TWO_HOSTS).await;
    let client = cluster.client().await;
    hosts_joined(&client).await;
    drop(cluster.write("queues.yaml", TREE));
    let added = [
        ("production", "added"),
        ("research", "added"),
        ("research/vision", "added"),
    ];

    let args = ["queue", "apply", "queues.yaml", "--dry-run", "-o", "json"];
    let tried = cluster.muster(&args).await.json();
    assert_eq!(names(&tried), added);
    let (_, queues) = client
        .list_queues(v1::Consistency::Linearizable)
        .await
        .unwrap();
    assert_eq!(queues.len(), 1, "a dry run changes nothing");

    let args = ["queue", "apply", "queues.yaml", "-o", "json"];
    let applied = cluster.muster(&args).await.json();
    assert_eq!(names(&applied), added);
    let listed = cluster.muster(&["queue", "list"]).await.ok();
    assert!(listed.contains("research/vision"), "{listed}");

    let read = cluster.muster(&["queue", "get"]).await.ok();
    drop(cluster.write("again.yaml", &read));
    let args = ["queue", "apply", "again.yaml", "-o", "json"];
    let again = cluster.muster(&args).await.json();
    assert_eq!(names(&again), [], "{read}");
}

#[tokio::test]
async fn an_invalid_queue_tree_is_refused_with_its_position_and_the_amounts() {
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
async fn a_job_over_its_queues_limit_is_explained_with_the_amounts() {
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
    let explanation = eventually("the second job waits for its queue", async || {
        let args = ["job", "explain", &second.to_string(), "-o", "json"];
        let explanation = cluster.muster(&args).await.json();
        (explanation["blocker"]["kind"] == "limit").then_some(explanation)
    })
    .await;
    let blocker = &explanation["blocker"];
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

    // Jobs are submitted only to leaf queues.
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
    let args = ["topology", "apply", "topology.yaml", "-o", "json"];
    let applied = cluster.muster(&args).await.json();
    assert_eq!(applied["hosts_placed"], 2);
    assert_eq!(applied["hosts_with_cells"], 2);
    let read = cluster.muster(&["topology", "get"]).await.ok();
    drop(cluster.write("again.yaml", &read));
    let args = ["topology", "apply", "again.yaml", "-o", "json"];
    let again = cluster.muster(&args).await.json();
    assert_eq!(again["hosts_changed_total"], 0, "{read}");

    let args = [
        "job", "submit", "--gang", "--tasks", "2", "--gpus", "4", "--within", "rack", "-o", "name",
        "--", "sleep", "1000",
    ];
    let job = cluster.muster(&args).await.ok();
    let attempt = only_attempt(&client, JobId(job.trim().parse().unwrap())).await;
    let hosts: Vec<&str> = attempt.tasks.iter().map(|task| &*task.host).collect();
    assert_eq!(hosts[0], hosts[1]);
}

#[tokio::test]
async fn topology_reported_by_workers_is_used_without_configuration() {
    let shape = Shape {
        workers: 1,
        ..TWO_HOSTS
    };
    let mut cluster = Cluster::start(shape).await;
    let client = cluster.client().await;
    for (name, rack) in [("east1", "r1"), ("east2", "r1"), ("west1", "r2")] {
        let worker = cluster.add_worker(name, |settings| {
            settings["topology"] = json!({
                "above": [{"level": "rack", "name": rack}],
                "inside": [
                    {"level": "socket", "gpus": [[0, 1, 2, 3], [4, 5, 6, 7]]},
                    {"level": "switch", "gpus": [[0, 5], [1, 2], [3], [4, 6], [7]]},
                ],
            });
            if name == "east1" {
                // Here GPUs 0 and 5 share a switch but no socket; elsewhere every switch is in one socket.
                settings["topology"]["inside"][1]["gpus"] = json!([[0, 1], [2, 3], [4, 5], [6, 7]]);
            }
        });
        cluster.workers[worker].start();
    }
    eventually("all hosts are up", async || {
        let status = client.status(v1::Consistency::Linearizable).await.ok()?;
        (status.hosts?.up == 4).then_some(())
    })
    .await;
    let cells = cluster
        .muster(&["host", "cells", "-o", "json"])
        .await
        .json();
    let host = |name: &str| {
        let mut hosts = cells["hosts"].as_array().unwrap().iter();
        hosts.find(|host| host["name"] == name).unwrap().clone()
    };
    assert_eq!(host("east1")["path"], "r1");
    assert_eq!(host("east1")["path_by"], "worker");
    assert_eq!(host("east1")["inside"].as_array().unwrap().len(), 6);
    assert_eq!(host("node01")["path"], "");
    // A switch with GPUs in two sockets: the host's inner cells are ignored, and the reason is reported.
    assert_eq!(host("west1")["inside"], json!([]));
    assert!(
        host("west1")["flaws"][0]
            .as_str()
            .unwrap()
            .contains("switch")
    );

    let submit = async |args: &[&str]| {
        let args = [
            &["job", "submit", "-o", "name"],
            args,
            &["--", "sleep", "1000"],
        ]
        .concat();
        let job = cluster.muster(&args).await.ok();
        JobId(job.trim().parse().unwrap())
    };
    let pair = submit(&["--gpus", "2", "--within", "switch"]).await;
    let attempt = only_attempt(&client, pair).await;
    assert_eq!(attempt.tasks[0].host, "east1");
    let gpus = cluster
        .muster(&["gpu", "list", "east1", "-o", "json"])
        .await
        .json();
    let mut indexes: Vec<u64> = gpus["gpus"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|gpu| gpu["holder"]["job"] == pair.get())
        .map(|gpu| gpu["index"].as_u64().unwrap())
        .collect();
    indexes.sort_unstable();
    assert!(
        indexes.len() == 2 && indexes[0] / 2 == indexes[1] / 2,
        "{indexes:?}"
    );

    let gang = ["--gang", "--tasks", "2", "--gpus", "3", "--within", "rack"];
    let gang = submit(&gang).await;
    let attempt = only_attempt(&client, gang).await;
    let mut hosts: Vec<&str> = attempt.tasks.iter().map(|task| &*task.host).collect();
    hosts.dedup();
    assert!(
        hosts.iter().all(|host| host.starts_with("east")) || hosts == ["west1"],
        "{hosts:?}"
    );
}
