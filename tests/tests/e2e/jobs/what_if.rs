//! Queries of a what-if on a running cluster: the answer matches what then happens, and the query changes
//! nothing.

use muster_client::Client;
use muster_model::ids::JobId;
use muster_proto::v1;
use muster_tests::{Cluster, Shape, eventually, muster, only_attempt, shell, with_gpus};
use serde_json::Value;

const ONE_HOST: Shape = Shape {
    replicas: 1,
    workers: 1,
    gpus: 8,
};
const TWO_HOSTS: Shape = Shape {
    replicas: 1,
    workers: 2,
    gpus: 8,
};

const PREEMPTING: &str = "queues:\n  default: {preempt_by_priority: true}\n";
const URGENT: &str = "name: urgent\npriority: 5\nresources: {gpus: 8}\nstop_grace: 1s\n\
                      scheduling: {run_time_max: 1h}\ncommand: [sleep, '1000']\n";

async fn hosts_joined(client: &Client, hosts: u32) {
    eventually("all hosts are up", async || {
        let status = client.status(v1::Consistency::Linearizable).await.ok()?;
        (status.hosts?.up == hosts).then_some(())
    })
    .await;
}

async fn revision(client: &Client) -> u64 {
    let status = client.status(v1::Consistency::Linearizable).await.unwrap();
    status.revision
}

/// Runs a query, and checks that the cluster did not change meanwhile.
async fn ask(cluster: &Cluster, client: &Client, args: &[&str]) -> Value {
    let before = revision(client).await;
    let args = [
        &["simulate", "--from-cluster", "--audit", "-o", "json"],
        args,
    ]
    .concat();
    let answer = cluster.muster(&args).await.json();
    assert_eq!(revision(client).await, before, "the cluster was changed");
    assert_eq!(answer["revision"], before);
    answer
}

/// A job that occupies whole hosts until it is stopped.
fn filling(name: &str, gpus: u32) -> v1::JobSpec {
    let mut spec = with_gpus(shell("exec sleep 1000"), gpus);
    spec.name = name.to_owned();
    spec
}

async fn running(client: &Client, spec: v1::JobSpec) -> JobId {
    let job = client.submit_job(spec).await.unwrap().job;
    only_attempt(client, job).await;
    job
}

/// Host and GPUs of a job's only task.
fn place(attempt: &v1::Attempt) -> (String, Vec<String>) {
    let task = &attempt.tasks[0];
    (task.host.clone(), task.gpus.clone())
}

/// Host and GPUs that were predicted for a job of one task.
fn predicted(job: &Value) -> (String, Vec<String>) {
    let place = &job["then"]["places"][0];
    let gpus = place["gpus"].as_array().unwrap().iter();
    (
        place["host"].as_str().unwrap().to_owned(),
        gpus.map(|gpu| gpu.as_str().unwrap().to_owned()).collect(),
    )
}

#[tokio::test]
async fn a_job_that_would_preempt_names_its_victim_and_then_does() {
    let cluster = Cluster::start(ONE_HOST).await;
    let client = cluster.client().await;
    hosts_joined(&client, 1).await;
    drop(cluster.write("queues.yaml", PREEMPTING));
    let applied = cluster.muster(&["queue", "apply", "queues.yaml"]).await;
    assert_eq!(applied.code, 0, "{applied:?}");
    let victim = running(&client, filling("low", 8)).await;
    drop(cluster.write("urgent.yaml", URGENT));

    let answer = ask(&cluster, &client, &["--submit", "urgent.yaml"]).await;
    let urgent = &answer["submitted"][0];
    assert_eq!(urgent["then"]["start_ms"], 0, "{answer}");
    let stop = &answer["stops"][0];
    assert_eq!(stop["job"], victim.get(), "{answer}");
    assert_eq!(stop["by"], urgent["id"]);
    // Its own limit of an hour is used, and the victim restarts after it.
    assert_eq!(stop["back_ms"], 3_600_000);
    assert_eq!(answer["affected"][0]["effect"], "stopped");
    assert_eq!(answer["assumptions"]["time_limit"], 1);

    let args = ["simulate", "--from-cluster", "--submit", "urgent.yaml"];
    let text = cluster.muster(&args).await.ok();
    assert!(text.contains("urgent starts at once on node01"), "{text}");
    assert!(
        text.contains("a higher priority needs the resources"),
        "{text}"
    );

    let args = ["job", "submit", "-f", "urgent.yaml", "-o", "name"];
    let job = cluster.muster(&args).await.ok();
    let attempt = only_attempt(&client, JobId(job.trim().parse().unwrap())).await;
    assert_eq!(place(&attempt), predicted(urgent));
}

#[tokio::test]
async fn a_quiet_cluster_places_jobs_as_predicted() {
    let cluster = Cluster::start(TWO_HOSTS).await;
    let client = cluster.client().await;
    hosts_joined(&client, 2).await;
    running(&client, filling("first", 3)).await;
    for gpus in [2, 4, 1] {
        let text = format!("name: next\nresources: {{gpus: {gpus}}}\ncommand: [sleep, '1000']\n");
        drop(cluster.write("next.yaml", &text));
        let answer = ask(&cluster, &client, &["--submit", "next.yaml"]).await;
        let forecast = &answer["submitted"][0];
        assert_eq!(forecast["then"]["start_ms"], 0, "{answer}");
        assert_eq!(answer["affected"].as_array().unwrap().len(), 0);
        let args = ["job", "submit", "-f", "next.yaml", "-o", "name"];
        let job = cluster.muster(&args).await.ok();
        let attempt = only_attempt(&client, JobId(job.trim().parse().unwrap())).await;
        assert_eq!(place(&attempt), predicted(forecast));
    }
}

#[tokio::test]
async fn a_drain_lists_jobs_that_move_and_a_block_lists_those_that_stay() {
    let cluster = Cluster::start(TWO_HOSTS).await;
    let client = cluster.client().await;
    hosts_joined(&client, 2).await;
    let first = running(&client, filling("first", 8)).await;
    let (host, gpus) = place(&only_attempt(&client, first).await);
    let other = if host == "node01" { "node02" } else { "node01" };

    let answer = ask(&cluster, &client, &["--drain", &host]).await;
    let stop = &answer["stops"][0];
    assert_eq!(stop["job"], first.get(), "{answer}");
    assert_eq!(stop["back_on"][0], other);
    assert_eq!(stop["back_ms"], 0);

    let by_place = format!("{host}:0");
    for args in [
        ["--block", &host],
        ["--block-gpu", &gpus[0]],
        ["--block-gpu", &by_place],
    ] {
        let answer = ask(&cluster, &client, &args).await;
        assert_eq!(answer["stops"].as_array().unwrap().len(), 0, "{answer}");
    }

    // With the other host full, it has to wait: for as long as the other job is assumed to run.
    running(&client, filling("second", 8)).await;
    let args = [
        "--drain",
        &host,
        "--assume-run-time",
        "2h",
        "--horizon",
        "1h",
    ];
    let answer = ask(&cluster, &client, &args).await;
    assert_eq!(answer["stops"][0]["back_ms"], Value::Null, "{answer}");
    assert_eq!(answer["affected"][0]["effect"], "stopped_for_long");
    assert_eq!(answer["assumptions"]["assumed"], 2);
}

#[tokio::test]
async fn a_change_of_queues_lists_jobs_that_start_later_and_queues_over_their_limit() {
    let cluster = Cluster::start(ONE_HOST).await;
    let client = cluster.client().await;
    hosts_joined(&client, 1).await;
    let first = running(&client, filling("first", 6)).await;
    let tree = "queues:\n  default: {limit: {gpus: 4}}\n";
    drop(cluster.write("queues.yaml", tree));

    let args = ["--queues", "queues.yaml", "--report", "report"];
    let answer = ask(&cluster, &client, &args).await;
    let queue = &answer["queues"][0];
    assert_eq!(queue["over_limit"]["gpus"], 2, "{answer}");
    assert_eq!(queue["jobs_over_limit"]["first"][0], first.get());
    assert_eq!(answer["stops"].as_array().unwrap().len(), 0);
    assert_eq!(answer["unaffected"], 1);
    let report = cluster.write("nothing", "").with_file_name("report");
    let written = std::fs::read(report.join("what-if.json")).unwrap();
    let written: Value = serde_json::from_slice(&written).unwrap();
    assert_eq!(written["queues"], answer["queues"]);
    let page = std::fs::read_to_string(report.join("report.html")).unwrap();
    assert!(page.contains("<td>default</td><td>changed</td>"), "{page}");

    // The dry run of the change itself gives the same result, and changes nothing.
    let before = revision(&client).await;
    let args = ["queue", "apply", "queues.yaml", "--dry-run"];
    let tried = cluster.muster(&args).await.ok();
    assert!(tried.contains("holds 2 GPUs over its limit"), "{tried}");
    assert!(tried.contains(&format!("the newest: {first}")), "{tried}");
    assert_eq!(revision(&client).await, before);
    only_attempt(&client, first).await;
}

#[tokio::test]
async fn invalid_what_if_queries_are_refused_with_the_reason() {
    let cluster = Cluster::start(ONE_HOST).await;
    let client = cluster.client().await;
    hosts_joined(&client, 1).await;
    let bad = "queues:\n  production: {guarantee: {amounts: {gpus: 1000}}}\n";
    drop(cluster.write("bad.yaml", bad));
    let cases: [(&[&str], i32, &str); 8] = [
        (&[], 64, "--from-cluster needs a change to predict"),
        (
            &["--submit", "nowhere.yaml"],
            64,
            "cannot read nowhere.yaml",
        ),
        (
            &["--drain", "node99"],
            1,
            "the drain of host `node99` would be refused",
        ),
        (
            &["--block-gpu", "GPU-00000000-0000-0000-0000-000000000000"],
            1,
            "would be refused",
        ),
        (
            &["--block-gpu", "node01:99"],
            1,
            "host `node01` has no GPU with index 99",
        ),
        (&["--queues", "bad.yaml"], 1, "bad.yaml:2:"),
        (
            &["--drain", "node01", "--horizon", "90d"],
            64,
            "HORIZON_MS_MAX",
        ),
        (
            &["--drain", "node01", "--jobs", "x.csv"],
            64,
            "cannot be used with",
        ),
    ];
    for (args, code, message) in cases {
        let args = [&["simulate", "--from-cluster"], args].concat();
        let run = cluster.muster(&args).await;
        assert_eq!(run.code, code, "{args:?}: {run:?}");
        assert!(run.stderr.contains(message), "{args:?}: {run:?}");
        assert_eq!(run.stdout, "");
    }

    // No reachable replica, and no leader.
    let args = [
        "simulate",
        "--from-cluster",
        "--drain",
        "a",
        "--address",
        "127.0.0.1:1",
    ];
    let run = muster_tests::Run::of(muster(&args), "").await;
    assert_eq!(run.code, 1, "{run:?}");
    assert!(
        run.stderr.contains("no scheduler replica is reachable"),
        "{run:?}"
    );
}

#[tokio::test]
async fn a_cluster_without_a_leader_reports_that() {
    let mut cluster = Cluster::start(Shape {
        replicas: 3,
        workers: 0,
        gpus: 0,
    })
    .await;
    let client = cluster.client().await;
    let leader = cluster.leader(&client).await;
    for index in (0..3).filter(|index| *index != leader) {
        cluster.replicas[index].kill();
    }
    drop(cluster.write("urgent.yaml", URGENT));
    let args = [
        "simulate",
        "--from-cluster",
        "--submit",
        "urgent.yaml",
        "--deadline",
        "2s",
    ];
    let run = cluster.muster(&args).await;
    assert_eq!(run.code, 1, "{run:?}");
    assert!(run.stderr.contains("has lost its majority"), "{run:?}");
}
