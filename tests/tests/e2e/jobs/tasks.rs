//! Tasks that do not end, and tasks that use more than their share.

use std::fs;
use std::path::Path;
use std::time::Duration;

use muster_client::{Client, LogUpdate, LogsRequest};
use muster_model::ids::{JobId, TaskIndex};
use muster_proto::v1;
use muster_tests::{
    Cluster, Shape, eventually, is_alive, is_root, only_attempt, printed, resident_mib, shell,
    skip, submit, with_gpus,
};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

const ONE_WORKER: Shape = Shape {
    replicas: 1,
    workers: 1,
    gpus: 2,
};
/// GPU model of the worker that a test adds: its jobs request it.
const MODEL: &str = "SPECIAL";

/// Lease of a task that must not lose it.
const LEASE: Duration = Duration::from_secs(5);

fn offer_special_gpus(settings: &mut Value) {
    settings["gpus"] = json!({"simulated": {"count": 2, "model": MODEL, "memory_mib": 1024}});
}

/// Makes a job run on the worker that the test added.
fn special(spec: v1::JobSpec) -> v1::JobSpec {
    let mut spec = with_gpus(spec, 1);
    let resources = spec.groups[0].resources.get_or_insert_default();
    resources.gpu_models = vec![MODEL.to_owned()];
    spec
}

/// Cancels a job and waits for its end.
async fn cancel(client: &Client, job: JobId) -> v1::PastAttempt {
    client.cancel_job(job, "ada", "enough").await.unwrap();
    let ended = client.wait_job(job).await.unwrap();
    assert_eq!(ended.phase(), v1::JobPhase::Cancelled);
    ended.units[0].past[0].clone()
}

#[tokio::test]
async fn a_task_that_ignores_sigterm_is_killed_whole_after_its_grace() {
    let cluster = Cluster::start(ONE_WORKER).await;
    let client = cluster.client().await;
    let stubborn = "trap '' TERM; sh -c 'while :; do sleep 1; done' & echo up; \
                    while :; do sleep 0.1; done";
    let job = submit(&client, shell(stubborn)).await;
    printed(&client, job, 1).await;
    let family = cluster.processes_of(job);
    assert!(family.len() >= 2, "{family:?}");
    let asked = Instant::now();
    let past = cancel(&client, job).await;
    let took = asked.elapsed();
    assert!(took >= Duration::from_secs(1), "no grace: {took:?}");
    assert_eq!(past.exit.unwrap().signal, Some(9));
    assert!(cluster.processes_of(job).is_empty());
    assert!(family.iter().all(|pid| !is_alive(*pid)));
}

#[tokio::test]
async fn a_task_that_handles_sigterm_ends_within_its_grace() {
    let cluster = Cluster::start(ONE_WORKER).await;
    let client = cluster.client().await;
    let mut spec = shell("trap 'echo saved; exit 3' TERM; echo up; while :; do sleep 0.1; done");
    spec.stop_grace_ms = Some(30_000);
    let job = submit(&client, spec).await;
    printed(&client, job, 1).await;
    let asked = Instant::now();
    let past = cancel(&client, job).await;
    assert!(asked.elapsed() < Duration::from_secs(15));
    assert_eq!(past.exit.unwrap().code, Some(3));
    assert_eq!(printed(&client, job, 2).await, ["up", "saved"]);
}

#[tokio::test]
async fn daemons_of_a_task_are_killed_with_it() {
    let cluster = Cluster::start(ONE_WORKER).await;
    let client = cluster.client().await;
    // Forks twice, leads a session of its own, ignores SIGTERM, and has an empty environment.
    let daemon =
        "(setsid env -i /bin/sh -c 'trap \"\" TERM; echo $$; while :; do sleep 1; done' &)";

    let job = submit(&client, shell(&format!("{daemon}; exec sleep 1000"))).await;
    let pid = printed(&client, job, 1).await[0].parse().unwrap();
    assert!(is_alive(pid));
    cancel(&client, job).await;
    assert!(!is_alive(pid), "the daemon outlives a cancelled task");

    // A daemon does not keep its task alive: when the task ends, its remaining processes are killed.
    let job = submit(&client, shell(&format!("{daemon}; sleep 0.5"))).await;
    let pid = printed(&client, job, 1).await[0].parse().unwrap();
    let ended = client.wait_job(job).await.unwrap();
    assert_eq!(ended.phase(), v1::JobPhase::Succeeded);
    assert!(!is_alive(pid), "the daemon outlives a finished task");
}

/// Bytes of all files below a folder.
fn bytes_below(folder: &Path) -> u64 {
    let Ok(entries) = fs::read_dir(folder) else {
        return 0;
    };
    let bytes = entries.filter_map(Result::ok).map(|entry| {
        if entry.path().is_dir() {
            bytes_below(&entry.path())
        } else {
            entry.metadata().map_or(0, |metadata| metadata.len())
        }
    });
    bytes.sum()
}

#[tokio::test]
async fn endless_output_of_a_task_takes_bounded_disk_and_memory() {
    const SEGMENT_BYTES: u64 = 256 << 10;
    const SEGMENTS: u64 = 4;
    const MEMORY_MIB: u64 = 128;
    let mut cluster = Cluster::start(ONE_WORKER).await;
    let client = cluster.client().await;
    let loud = cluster.add_worker("loud", |settings| {
        offer_special_gpus(settings);
        settings["log_limits"] = json!({"segment_bytes": SEGMENT_BYTES, "segments_max": SEGMENTS});
    });
    cluster.workers[loud].start();
    let job = submit(&client, special(shell("yes muster"))).await;
    only_attempt(&client, job).await;

    // A reader that follows and does not read: all processes in between must stay small.
    let request = |follow, tail_lines| LogsRequest {
        job,
        task: TaskIndex(0),
        stream: v1::LogStream::Stdout,
        follow,
        tail_lines,
        ..LogsRequest::default()
    };
    let mut lazy = client.logs(request(true, None));
    lazy.next().await.unwrap();
    let logs = cluster.workers[loud].data_dir().join("logs");
    let position = async || {
        let mut logs = client.logs(request(false, Some(1)));
        while let Some(update) = logs.next().await.ok()? {
            if let LogUpdate::Data { offset_bytes, .. } = update {
                return Some(offset_bytes);
            }
        }
        None
    };
    eventually("it has printed 100 MiB", async || {
        let bytes = bytes_below(&logs);
        assert!(bytes <= (SEGMENTS + 1) * SEGMENT_BYTES, "{bytes}");
        (position().await? >= 100 << 20).then_some(())
    })
    .await;
    for pid in cluster.processes_on(loud) {
        let memory = resident_mib(pid);
        assert!(memory < MEMORY_MIB, "process {pid} holds {memory} MiB");
    }
    let replica = resident_mib(cluster.replicas[0].pid());
    assert!(replica < 2 * MEMORY_MIB, "the replica holds {replica} MiB");

    let job_text = job.to_string();
    let args = ["job", "logs", &job_text, "--tail", "3"];
    let tail = cluster.muster(&args).await.ok();
    // The last line may be incomplete.
    assert_eq!(tail.lines().count(), 3, "{} bytes", tail.len());
    assert!(tail.lines().all(|line| "muster".starts_with(line)));
    cancel(&client, job).await;
    assert!(cluster.processes_of(job).is_empty());
}

#[tokio::test]
async fn a_task_that_fills_the_disk_of_its_host_affects_only_that_host() {
    if !is_root() {
        return skip("mounting a small file system needs root");
    }
    let mut cluster = Cluster::start(ONE_WORKER).await;
    let client = cluster.client().await;
    let tiny = cluster.add_worker("tiny", offer_special_gpus);
    let data = cluster.workers[tiny].data_dir();
    cluster.mount(&data, 8);
    cluster.workers[tiny].start();
    let glutton = "dd if=/dev/zero of=ballast bs=64k 2>/dev/null; echo full >&2; exec sleep 1000";
    let mut glutton = special(shell(glutton));
    glutton.partition_grace_ms = u64::try_from(LEASE.as_millis()).ok();
    let glutton = submit(&client, glutton).await;
    only_attempt(&client, glutton).await;
    eventually("the disk is full", async || {
        (bytes_below(&data) > 7 << 20).then_some(())
    })
    .await;

    // The rest of the cluster is not affected.
    let mut elsewhere = with_gpus(shell("exit 0"), 1);
    let resources = elsewhere.groups[0].resources.get_or_insert_default();
    resources.gpu_models = vec!["H100".to_owned()];
    let other = submit(&client, elsewhere).await;
    let ended = client.wait_job(other).await.unwrap();
    assert_eq!(ended.phase(), v1::JobPhase::Succeeded);

    // Another task for the full host cannot start, and its job is not charged.
    let waiting = submit(&client, special(shell("echo ran"))).await;
    eventually("the agent reports why nothing starts", async || {
        let printed = cluster.workers[tiny].printed();
        printed.contains("No space left on device").then_some(())
    })
    .await;
    // The lease of the running task is renewed, well beyond its end.
    sleep(LEASE + Duration::from_secs(2)).await;
    assert_eq!(only_attempt(&client, glutton).await.number, 1);
    assert!(cluster.workers[tiny].is_running());

    // The task that fills the disk can be cancelled, its data is removed, and the host works again.
    cancel(&client, glutton).await;
    let ended = client.wait_job(waiting).await.unwrap();
    assert_eq!(ended.phase(), v1::JobPhase::Succeeded, "{ended:?}");
    assert_eq!(ended.units[0].failures, 0);
    assert_eq!(printed(&client, waiting, 1).await, ["ran"]);
}
