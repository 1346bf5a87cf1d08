//! Pipelines from a user's view: one file, one object, a tree.

use muster_client::Client;
use muster_model::ids::PipelineId;
use muster_proto::v1;
use muster_tests::{Cluster, Shape, eventually};
use serde_json::Value;

const ONE_WORKER: Shape = Shape {
    replicas: 1,
    workers: 1,
    gpus: 2,
};

const NIGHTLY: &str = "\
name: nightly
jobs:
- {name: report, after_any: [train], command: [sh, -c, exit 0]}
- {name: train, after_ok: [prepare], resources: {gpus: 1}, command: [sh, -c, exit 3]}
- {name: prepare, command: [sh, -c, exit 0]}
- {name: alarm, after_failed: [train], command: [sh, -c, exit 0]}
- {name: publish, after_ok: [train], command: [sh, -c, exit 0]}
";

/// Submits a pipeline with a request id; returns the command's answer.
async fn submit(cluster: &Cluster, text: &str, request: &str) -> Value {
    let args = [
        "pipeline",
        "submit",
        "-",
        "--request-id",
        request,
        "-o",
        "json",
    ];
    let answer = cluster.muster_reading(&args, text).await.ok();
    serde_json::from_str(&answer).unwrap()
}

async fn json(cluster: &Cluster, args: &[&str]) -> Value {
    let answer = cluster.muster(&[args, &["-o", "json"]].concat()).await.ok();
    serde_json::from_str(&answer).unwrap()
}

#[tokio::test]
async fn a_pipeline_is_one_object_that_ends_as_its_jobs_do() {
    let cluster = Cluster::start(Shape {
        replicas: 3,
        ..ONE_WORKER
    })
    .await;
    let client = cluster.client().await;
    let accepted = submit(&cluster, NIGHTLY, "night-1").await;
    let again = submit(&cluster, NIGHTLY, "night-1").await;
    assert_eq!(
        (&again["pipeline"], &again["jobs"]),
        (&accepted["pipeline"], &accepted["jobs"])
    );
    assert_eq!(
        (&accepted["repeated"], &again["repeated"]),
        (&false.into(), &true.into())
    );
    let id = accepted["pipeline"].as_u64().unwrap();
    let jobs: Vec<u64> = (id + 1..=id + 5).collect();
    assert_eq!(accepted["jobs"], Value::from(jobs));

    let waited = cluster.muster(&["pipeline", "wait", &id.to_string()]).await;
    assert_eq!(waited.code, 3, "{waited:?}");
    let skipped = format!("job {} was skipped", id + 5);
    assert!(waited.stderr.contains(&skipped), "{waited:?}");
    let got = json(&cluster, &["pipeline", "get", &id.to_string()]).await;
    assert_eq!(got["phase"], "failed");
    let phases: Vec<(&str, &str)> = got["job_list"]
        .as_array()
        .unwrap()
        .iter()
        .map(|job| {
            (
                job["name"].as_str().unwrap(),
                job["phase"].as_str().unwrap(),
            )
        })
        .collect();
    assert_eq!(
        phases,
        [
            ("prepare", "succeeded"),
            ("train", "failed"),
            ("report", "succeeded"),
            ("alarm", "succeeded"),
            ("publish", "skipped"),
        ]
    );
    let tree = cluster
        .muster(&["pipeline", "get", &id.to_string()])
        .await
        .ok();
    assert!(
        tree.contains("└─ train") && tree.contains("   └─ publish"),
        "{tree}"
    );
    let listed = json(&cluster, &["pipeline", "list"]).await;
    assert_eq!(listed["pipelines"][0]["jobs"]["skipped"], 1, "{listed}");
    let of_it = json(&cluster, &["job", "list", "--pipeline", &id.to_string()]).await;
    assert_eq!(of_it["jobs"].as_array().unwrap().len(), 5, "{of_it}");
    assert_eq!(of_it["jobs"][0]["pipeline"]["name"], "nightly");
    survives_a_leader(&cluster, &client, PipelineId(id)).await;
}

/// Asserts that another leader knows it as well.
async fn survives_a_leader(cluster: &Cluster, client: &Client, id: PipelineId) {
    let before = cluster.leader(client).await;
    eventually("another replica leads", async || {
        drop(client.transfer_leader(None).await);
        (cluster.leader(client).await != before).then_some(())
    })
    .await;
    let detail = client.get_pipeline(id, v1::Consistency::Linearizable).await;
    assert_eq!(detail.unwrap().pipeline.phase(), v1::JobPhase::Failed);
}

#[tokio::test]
async fn a_pipeline_is_accepted_and_cancelled_completely_or_not_at_all() {
    let cluster = Cluster::start(ONE_WORKER).await;
    let client = cluster.client().await;
    let bad =
        "name: n\njobs:\n- {name: a, command: [x]}\n- {name: b, queue: nowhere, command: [x]}\n";
    let refused = cluster
        .muster_reading(&["pipeline", "submit", "-"], bad)
        .await;
    assert_eq!(refused.code, 1, "{refused:?}");
    let circle = "name: n\njobs:\n- {name: a, command: [x], after_ok: [a]}\n";
    let refused = cluster
        .muster_reading(&["pipeline", "submit", "-"], circle)
        .await;
    assert_eq!(refused.code, 64, "{refused:?}");
    assert!(refused.stderr.contains("<stdin>:3:"), "{refused:?}");
    let (_, jobs) = client
        .list_jobs(v1::ListJobsRequest::default(), 10)
        .await
        .unwrap();
    assert!(jobs.is_empty(), "{jobs:?}");

    let long = "name: long\njobs:\n- {name: a, command: [sleep, '1000']}\n- {name: b, after_any: [a], command: [x]}\n";
    let id = submit(&cluster, long, "long-1").await["pipeline"].to_string();
    let cancelled = cluster
        .muster(&["pipeline", "cancel", &id, "--reason", "enough"])
        .await;
    assert_eq!(cancelled.code, 0, "{cancelled:?}");
    let waited = cluster.muster(&["pipeline", "wait", &id]).await;
    assert_eq!(waited.code, 4, "{waited:?}");
    let got = json(&cluster, &["pipeline", "get", &id]).await;
    assert_eq!(got["jobs"]["cancelled"], 2, "{got}");
    // Two at a time are one document, and an unknown one does not prevent the other.
    let two = [
        submit(&cluster, long, "long-2").await["pipeline"].to_string(),
        submit(&cluster, long, "long-3").await["pipeline"].to_string(),
    ];
    let args = ["pipeline", "cancel", &two[0], "1", &two[1], "-o", "json"];
    let cancelled = cluster.muster(&args).await;
    assert_eq!(cancelled.code, 1, "{cancelled:?}");
    let done: Vec<Value> = serde_json::from_str(&cancelled.stdout).unwrap();
    let ids: Vec<String> = done
        .iter()
        .map(|done| done["pipeline"].to_string())
        .collect();
    assert_eq!(ids, two, "{cancelled:?}");
}
