//! Workers that claim what is not theirs: a name, a data directory, an identity, a GPU, a task. Each is
//! refused with a clear error, and the rightful owner is not affected.

use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;

use muster_client::Client;
use muster_model::ids::JobId;
use muster_proto::v1;
use muster_tests::{
    Cluster, FakeWorker, Run, Shape, eventually, is_alive, only_attempt, shell, variable_of,
    with_gpus,
};

const TWO_GPUS: Shape = Shape {
    replicas: 1,
    workers: 1,
    gpus: 2,
};

/// Message of a worker whose identity is in use.
const REFUSAL: &str = "host `node01` is held by another worker that is alive; give this one another name, \
                       or stop the other (HOST_IDENTITY_TAKEN)";

/// A job that runs until it is cancelled and holds one GPU; returns its attempt and its process too.
async fn training(cluster: &Cluster, client: &Client) -> (JobId, v1::Attempt, i32) {
    let spec = with_gpus(shell("exec sleep 1000"), 1);
    let job = client.submit_job(spec).await.unwrap().job;
    let attempt = only_attempt(client, job).await;
    let pid = eventually("its process", async || match *cluster.processes_of(job) {
        [pid] => Some(pid),
        _ => None,
    })
    .await;
    (job, attempt, pid)
}

/// The GPUs of running tasks according to their processes: each belongs to one job.
fn gpus_in_use(cluster: &Cluster, jobs: &[JobId]) -> BTreeMap<String, JobId> {
    let mut holders = BTreeMap::new();
    for job in jobs {
        for pid in cluster.processes_of(*job) {
            let gpus = variable_of(pid, "CUDA_VISIBLE_DEVICES").unwrap_or_default();
            for gpu in gpus.split(',').filter(|gpu| !gpu.is_empty()) {
                let before = holders.insert(gpu.to_owned(), *job);
                assert!(
                    before.is_none_or(|before| before == *job),
                    "{gpu} is given to {before:?} and to {job}"
                );
            }
        }
    }
    holders
}

/// Asserts that the training is unchanged.
async fn is_untouched(client: &Client, job: JobId, attempt: &v1::Attempt, pid: i32) {
    let now = only_attempt(client, job).await;
    assert_eq!((now.epoch, now.number), (attempt.epoch, attempt.number));
    assert_eq!(now.tasks, attempt.tasks);
    assert!(is_alive(pid), "the task's process is gone");
}

async fn gpus(client: &Client) -> Vec<v1::Gpu> {
    let request = v1::ListGpusRequest::default();
    client.list_gpus(request).await.unwrap().1
}

#[tokio::test]
async fn a_second_worker_on_one_data_directory_does_not_start() {
    let cluster = Cluster::start(TWO_GPUS).await;
    let client = cluster.client().await;
    let (job, attempt, pid) = training(&cluster, &client).await;
    let first = &cluster.workers[0];
    let config = first.config.to_str().unwrap();
    let run = cluster.muster(&["worker", "--config", config]).await;
    let data = first.data_dir();
    let expected = format!(
        "error: data directory `{}` is in use by another worker process\n",
        data.display()
    );
    run.fails(1, &expected);
    assert!(first.is_running());
    is_untouched(&client, job, &attempt, pid).await;
}

#[tokio::test]
async fn a_second_worker_of_one_name_is_refused_and_the_first_continues() {
    let mut cluster = Cluster::start(TWO_GPUS).await;
    let client = cluster.client().await;
    let (job, attempt, pid) = training(&cluster, &client).await;
    let twin = cluster.add_worker("twin", |settings| settings["name"] = "node01".into());
    cluster.workers[twin].start();
    eventually("the second worker reports the reason", async || {
        cluster.workers[twin]
            .printed()
            .contains(REFUSAL)
            .then_some(())
    })
    .await;
    assert_eq!(gpus(&client).await.len(), 2);
    is_untouched(&client, job, &attempt, pid).await;

    // Once no process of the first can run any more, the name is free.
    client.cancel_job(job, "ada", "").await.unwrap();
    client.wait_job(job).await.unwrap();
    cluster.workers[0].kill();
    eventually("the second worker takes over", async || {
        let printed = cluster.workers[twin].printed();
        printed
            .contains("session with the leader is open")
            .then_some(())
    })
    .await;
    training(&cluster, &client).await;
}

#[tokio::test]
async fn a_copy_of_a_live_worker_is_refused_and_the_first_continues() {
    let mut cluster = Cluster::start(TWO_GPUS).await;
    let client = cluster.client().await;
    let (job, attempt, pid) = training(&cluster, &client).await;
    // A machine image that includes a worker's data directory, started a second time.
    let copy = cluster.add_worker("copy", |settings| settings["name"] = "node01".into());
    let data = cluster.workers[copy].data_dir();
    fs::create_dir_all(&data).unwrap();
    let original = cluster.workers[0].data_dir().join("identity.json");
    fs::copy(original, data.join("identity.json")).unwrap();
    cluster.workers[copy].start();
    eventually("the copy reports the reason", async || {
        let printed = cluster.workers[copy].printed();
        printed.contains(REFUSAL).then_some(())
    })
    .await;
    is_untouched(&client, job, &attempt, pid).await;
}

#[tokio::test]
async fn a_gpu_of_another_host_is_not_registered() {
    let cluster = Cluster::start(TWO_GPUS).await;
    let client = cluster.client().await;
    let (job, attempt, pid) = training(&cluster, &client).await;
    let leader = &cluster.addresses[cluster.leader(&client).await];
    let theirs = &attempt.tasks[0].gpus[0];
    let own = "GPU-00000000-0000-0000-0000-000000000001";

    let liar = FakeWorker::registration("liar", &[own, theirs]);
    let rejected = FakeWorker::register(leader, liar).await.rejected();
    assert_eq!(rejected.reason, "GPU_CLAIMED_TWICE");
    assert_eq!(
        rejected.message,
        format!("{theirs} is presented by host `node01` already; a GPU belongs to one host")
    );
    let twice = FakeWorker::registration("liar", &[own, own]);
    let rejected = FakeWorker::register(leader, twice).await.rejected();
    assert_eq!(rejected.reason, "INVALID_REGISTRATION", "{rejected:?}");
    assert!(rejected.message.contains("gpus"), "{rejected:?}");
    let nameless = FakeWorker::registration("", &[own]);
    let rejected = FakeWorker::register(leader, nameless).await.rejected();
    assert_eq!(rejected.reason, "INVALID_REGISTRATION", "{rejected:?}");

    let known = gpus(&client).await;
    assert!(known.iter().all(|gpu| gpu.host == "node01"), "{known:?}");
    is_untouched(&client, job, &attempt, pid).await;
}

#[tokio::test]
async fn false_reports_in_heartbeats_do_not_affect_other_hosts() {
    let cluster = Cluster::start(TWO_GPUS).await;
    let client = cluster.client().await;
    let (job, attempt, pid) = training(&cluster, &client).await;
    let leader = &cluster.addresses[cluster.leader(&client).await];
    let own = "GPU-00000000-0000-0000-0000-000000000001";
    let never = "GPU-00000000-0000-0000-0000-000000000002";
    let theirs = &attempt.tasks[0].gpus[0];
    let registration = FakeWorker::registration("liar", &[own]);
    let mut liar = FakeWorker::register(leader, registration).await.welcome();

    let faulted = |uuid: &str| v1::GpuStatus {
        uuid: uuid.to_owned(),
        health: Some(v1::GpuHealth {
            fault: Some(v1::GpuFault {
                signal: "xid79".to_owned(),
                detail: "a lie".to_owned(),
            }),
        }),
    };
    let finished = v1::TaskStatus {
        job_id: job.get(),
        task: 0,
        unit: 0,
        epoch: attempt.epoch,
        phase: Some(v1::WorkerTaskPhase {
            kind: Some(v1::worker_task_phase::Kind::Exited(v1::Exit {
                code: Some(0),
                ..v1::Exit::default()
            })),
        }),
        ..v1::TaskStatus::default()
    };
    let status = v1::WorkerStatus {
        tasks: vec![finished],
        gpus: vec![faulted(theirs), faulted(never)],
        ..v1::WorkerStatus::default()
    };
    for _ in 0..3 {
        if !liar.heartbeat(status.clone()).await {
            break;
        }
        liar.listen(Duration::from_millis(100)).await;
    }
    assert_eq!(liar.desired.tasks.len(), 0, "nothing was placed on it");
    is_untouched(&client, job, &attempt, pid).await;
    let known = gpus(&client).await;
    let mut uuids: Vec<&str> = known.iter().map(|gpu| &*gpu.uuid).collect();
    uuids.sort_unstable();
    uuids.dedup();
    assert_eq!(uuids.len(), 3, "{known:?}");
    assert!(!uuids.contains(&never), "{known:?}");
    let taken = known.iter().find(|gpu| gpu.uuid == *theirs).unwrap();
    assert!(
        taken
            .health
            .as_ref()
            .is_none_or(|health| health.fault.is_none())
    );

    // The lying worker goes silent. All real GPUs are allocated once.
    drop(liar);
    let mut jobs = vec![job];
    for _ in 0..3 {
        let spec = with_gpus(shell("exec sleep 1000"), 1);
        jobs.push(client.submit_job(spec).await.unwrap().job);
    }
    eventually("both real GPUs are in use", async || {
        (gpus_in_use(&cluster, &jobs).len() == 2).then_some(())
    })
    .await;
    let run: Run = cluster.muster(&["gpu", "list", "-o", "name"]).await;
    assert_eq!(run.ok().lines().count(), 3);
}
