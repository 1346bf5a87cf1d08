//! Job in a container, from the command line to its host's engine and back.

use muster_model::ids::JobId;
use muster_proto::v1;
use muster_tests::{Cluster, Shape, eventually, only_attempt, output, printed};
use serde_json::json;

use crate::jobs::gangs::only_these_are_up;
use crate::podman::{IMAGE, Podman};

const NO_ENGINE: Shape = Shape {
    replicas: 1,
    workers: 1,
    gpus: 1,
};
/// By default Podman requests more files and processes than every host allows.
const SUBMIT: [&str; 11] = [
    "job",
    "submit",
    "--image",
    IMAGE,
    "--ulimit",
    "nofile=1024:4096",
    "--ulimit",
    "nproc=1024:4096",
    "--stop-grace",
    "1s",
    "-o",
];

/// A cluster with one worker that has an engine.
async fn cluster(podman: &Podman) -> Cluster {
    let mut cluster = Cluster::start(NO_ENGINE).await;
    let boxes = cluster.add_worker("boxes", |settings| {
        settings["container_engine"] = json!(podman.socket());
    });
    // The other worker has no engine, whatever this machine runs.
    cluster.workers[0].kill();
    cluster.workers[boxes].start();
    only_these_are_up(&cluster.client().await, &["boxes"]).await;
    cluster
}

/// Submits a shell script in a container by the command line.
async fn submit(cluster: &Cluster, script: &str) -> JobId {
    let args = [&SUBMIT[..], &["name", "--", "sh", "-c", script]].concat();
    let id = eventually("the job is accepted", async || {
        let run = cluster.muster(&args).await;
        (run.code == 0).then_some(run.stdout)
    })
    .await;
    JobId(id.trim().parse().unwrap())
}

/// Asserts that an engine keeps nothing of ended tasks, once it has had time to remove it.
async fn expect_nothing_left(cluster: &Cluster, podman: &Podman, job: JobId) {
    eventually("no container and no process is left", async || {
        let left = podman.containers();
        (left.is_empty() && cluster.processes_of(job).is_empty()).then_some(())
    })
    .await;
    let tasks = cluster.workers[1].data_dir().join("tasks");
    eventually("no directory is left", async || {
        let mut left = std::fs::read_dir(&tasks).unwrap();
        left.next().is_none().then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_job_runs_in_a_container_and_is_read_entered_and_cancelled() {
    let Some(podman) = Podman::start() else {
        return;
    };
    let cluster = cluster(&podman).await;
    let client = cluster.client().await;
    let script = "echo from $(ls / | tr '\\n' ' '); echo mine > file; while :; do sleep 0.1; done";
    let job = submit(&cluster, script).await;
    let attempt = only_attempt(&client, job).await;
    assert_eq!(attempt.tasks[0].host, "boxes");
    eventually("its container", async || {
        (podman.containers().len() == 1).then_some(())
    })
    .await;

    // Only the image's files are visible, and no folder of the host.
    printed(&client, job, 1).await;
    let id = job.to_string();
    let logs = cluster.muster(&["job", "logs", &id]).await.ok();
    assert!(
        logs.contains(" bin ") && !logs.contains(" boot ") && !logs.contains(" usr "),
        "{logs}"
    );

    // An exec session is in the same container: it sees its files, and its first process as number 1.
    let script = "cat file; tr '\\0' ' ' < /proc/1/cmdline; exit 7";
    let beside = ["job", "exec", &id, "-n", "--", "sh", "-c", script];
    let beside = cluster.muster(&beside).await;
    assert_eq!(beside.code, 7, "{beside:?}");
    assert!(
        beside.stdout.starts_with("mine\nsh -c echo from"),
        "{beside:?}"
    );

    let cancelled = cluster
        .muster(&["job", "cancel", &id, "--reason", "seen enough"])
        .await;
    assert_eq!(cancelled.code, 0, "{cancelled:?}");
    let ended = client.wait_job(job).await.unwrap();
    assert_eq!(ended.phase(), v1::JobPhase::Cancelled, "{ended:?}");
    expect_nothing_left(&cluster, &podman, job).await;
}

#[tokio::test]
async fn a_container_ends_as_its_program_does_and_a_missing_image_is_named() {
    let Some(podman) = Podman::start() else {
        return;
    };
    let cluster = cluster(&podman).await;
    let client = cluster.client().await;
    let job = submit(&cluster, "echo done; exit 3").await;
    let ended = client.wait_job(job).await.unwrap();
    assert_eq!(ended.phase(), v1::JobPhase::Failed, "{ended:?}");
    assert_eq!(output(&client, job).await.unwrap(), "done\n");
    let shown = cluster.muster(&["job", "get", &job.to_string()]).await.ok();
    assert!(shown.contains("exit code 3"), "{shown}");
    expect_nothing_left(&cluster, &podman, job).await;

    let args = [
        "job",
        "submit",
        "--image",
        "localhost/nosuch:1",
        "--pull",
        "never",
        "-o",
        "name",
    ];
    let id = cluster
        .muster(&[&args[..], &["--", "true"]].concat())
        .await
        .ok();
    let why = eventually("the event about the unavailable image", async || {
        let run = cluster
            .muster(&["job", "events", id.trim(), "-o", "jsonl"])
            .await;
        run.stdout
            .contains("IMAGE_UNAVAILABLE")
            .then_some(run.stdout)
    })
    .await;
    assert!(why.contains("nosuch"), "{why}");
}
