//! Retries in place and checkpoint retention, with real tasks on a real host.

use muster_client::Client;
use muster_model::ids::JobId;
use muster_proto::v1;
use muster_tests::{Cluster, Shape, eventually, shell, with_gpus};

/// A cluster with the given number of hosts, all of them up.
async fn ready(workers: usize) -> (Cluster, Client) {
    let cluster = Cluster::start(Shape {
        replicas: 1,
        workers,
        gpus: 8,
    })
    .await;
    let client = cluster.client().await;
    eventually("the hosts are up", async || {
        let status = client.status(v1::Consistency::Linearizable).await.ok()?;
        (status.hosts?.up as usize == workers).then_some(())
    })
    .await;
    (cluster, client)
}

/// Longer than any test runs.
const NEVER_MS: u64 = 600_000;

async fn submit(
    client: &Client,
    mut spec: v1::JobSpec,
    lifecycle: v1::Lifecycle,
    backoff_ms: u64,
) -> JobId {
    spec.lifecycle = Some(lifecycle);
    spec.retry = Some(v1::RetryPolicy {
        retries_max: 9,
        backoff_ms,
    });
    client.submit_job(spec).await.unwrap().job
}

/// A back-off of ten minutes does not apply: the task is restarted where it was, on the same GPU.
#[tokio::test]
async fn a_failed_task_is_restarted_at_once_in_place() {
    let (cluster, client) = ready(1).await;
    let script = "echo $CUDA_VISIBLE_DEVICES >> $MUSTER_CKPT_DIR/gpus; [ $MUSTER_ATTEMPT = 3 ]";
    let lifecycle = v1::Lifecycle {
        local_retries_max: 2,
        ..v1::Lifecycle::default()
    };
    let job = submit(&client, with_gpus(shell(script), 1), lifecycle, NEVER_MS).await;
    let ended = client.wait_job(job).await.unwrap();
    assert_eq!(ended.phase(), v1::JobPhase::Succeeded, "{ended:?}");
    let unit = &ended.units[0];
    assert_eq!((unit.attempts, unit.failures), (3, 2), "{unit:?}");
    assert_eq!(unit.local_retries, 2, "{unit:?}");
    let id = job.to_string();
    let events = cluster.muster(&["job", "events", &id]).await;
    let events = events.ok();
    assert!(
        events.contains("retried in place (1 of 2 in a row)"),
        "{events}"
    );
    assert!(
        events.contains("retried in place (2 of 2 in a row)"),
        "{events}"
    );
}

/// The task fails on the host where it first starts, whichever that is: the GPUs of each attempt show that
/// it was placed elsewhere.
#[tokio::test]
async fn a_task_out_of_retries_in_place_is_restarted_elsewhere() {
    let (cluster, client) = ready(2).await;
    let folder = cluster.folder.display();
    let script = format!(
        "cd {folder}; [ -e first ] || echo $CUDA_VISIBLE_DEVICES > first; \
         [ $CUDA_VISIBLE_DEVICES != $(cat first) ]"
    );
    let lifecycle = v1::Lifecycle {
        local_retries_max: 1,
        ..v1::Lifecycle::default()
    };
    let job = submit(&client, with_gpus(shell(&script), 1), lifecycle, 100).await;
    let ended = client.wait_job(job).await.unwrap();
    assert_eq!(ended.phase(), v1::JobPhase::Succeeded, "{ended:?}");
    let unit = &ended.units[0];
    assert_eq!((unit.attempts, unit.failures), (3, 2), "{unit:?}");
    let hosts: Vec<&str> = unit.past.iter().map(|attempt| &*attempt.hosts[0]).collect();
    assert_eq!(hosts.len(), 3, "{unit:?}");
    assert!(hosts[0] == hosts[1] && hosts[1] != hosts[2], "{hosts:?}");
    let events = cluster.muster(&["job", "events", &job.to_string()]).await;
    let events = events.ok();
    assert_eq!(events.matches("retried in place").count(), 1, "{events}");
}

/// The newest two are kept, the other folders are removed, and a restart continues from the newest.
#[tokio::test]
async fn old_checkpoints_are_removed_and_the_newest_are_kept() {
    let (cluster, client) = ready(1).await;
    let list = cluster.write("list", "");
    let script = format!(
        "for step in 1 2 3 4 5; do \
           mkdir $MUSTER_CKPT_DIR/step_$step.tmp; \
           mv $MUSTER_CKPT_DIR/step_$step.tmp $MUSTER_CKPT_DIR/step_$step; \
           touch $MUSTER_CKPT_DIR/step_$step/_COMMITTED; sleep 1.5; \
         done; \
         while :; do ls $MUSTER_CKPT_DIR > {list}.new; mv {list}.new {list}; sleep 0.2; done",
        list = list.display()
    );
    let lifecycle = v1::Lifecycle {
        checkpoints: Some(v1::CheckpointPolicy {
            kept_min: 2,
            kept_every: None,
            remove: true,
            bad_max: 3,
            restore_window_ms: 600_000,
        }),
        ..v1::Lifecycle::default()
    };
    let job = submit(&client, shell(&script), lifecycle, NEVER_MS).await;
    eventually("only the newest two are left", async || {
        let left = std::fs::read_to_string(&list).ok()?;
        (left.split_whitespace().eq(["step_4", "step_5"])).then_some(())
    })
    .await;
    let consistency = v1::Consistency::Linearizable;
    let detail = client.get_job(job, 1, consistency).await.unwrap();
    let steps: Vec<u64> = detail.units[0]
        .checkpoints
        .iter()
        .map(|it| it.step)
        .collect();
    assert_eq!(steps, [4, 5]);
}
