//! Suspended jobs, in place or without their resources.

use muster_proto::v1;
use muster_tests::{Cluster, Shape, eventually, only_attempt, shell, submit, with_gpus};

const ONE_WORKER: Shape = Shape {
    replicas: 1,
    workers: 1,
    gpus: 1,
};

fn length(path: &std::path::Path) -> u64 {
    std::fs::metadata(path).map_or(0, |it| it.len())
}

#[tokio::test]
async fn a_suspended_job_is_paused_in_place_and_resumed() {
    let cluster = Cluster::start(ONE_WORKER).await;
    let client = cluster.client().await;
    let count = cluster.write("count", "");
    let script = format!("while :; do echo >> {}; sleep 0.01; done", count.display());
    let job = submit(&client, with_gpus(shell(&script), 1)).await;
    let attempt = only_attempt(&client, job).await;
    let id = job.to_string();
    let args = ["job", "suspend", &id, "--reason", "another one's turn"];
    eventually("all replicas support suspensions", async || {
        let run = cluster.muster(&args).await;
        (run.code == 0).then_some(())
    })
    .await;
    eventually("it is paused", async || {
        let before = length(&count);
        tokio::time::sleep(std::time::Duration::from_millis(300)).await;
        (before > 0 && length(&count) == before).then_some(())
    })
    .await;
    let shown = cluster.muster(&["job", "list"]).await.ok();
    assert!(shown.contains("suspended"), "{shown}");
    let why = cluster.muster(&["job", "explain", &id]).await.ok();
    assert!(why.contains("another one's turn"), "{why}");
    let still = length(&count);
    let now = only_attempt(&client, job).await;
    assert_eq!((now.epoch, &now.tasks), (attempt.epoch, &attempt.tasks));
    client.resume_job(job, "ada", "our turn").await.unwrap();
    eventually("it goes on", async || {
        (length(&count) > still).then_some(())
    })
    .await;
    assert_eq!(only_attempt(&client, job).await.epoch, attempt.epoch);
}

#[tokio::test]
async fn a_suspended_job_that_releases_its_gpus_resumes_from_its_checkpoint() {
    let cluster = Cluster::start(ONE_WORKER).await;
    let client = cluster.client().await;
    let script = "[ -n \"$MUSTER_CKPT_LATEST\" ] && exit 0
                  trap 'mkdir $MUSTER_CKPT_DIR/step_7; echo > $MUSTER_CKPT_DIR/step_7/_COMMITTED; exit 75' TERM
                  while :; do sleep 0.05; done";
    let mut spec = with_gpus(shell(script), 1);
    spec.stop_grace_ms = Some(10_000);
    let lifecycle = spec.lifecycle.get_or_insert_default();
    lifecycle.suspend = v1::SuspendMode::Release.into();
    let job = submit(&client, spec).await;
    only_attempt(&client, job).await;
    client
        .suspend_job(job, "ada", "another one's turn")
        .await
        .unwrap();
    let other = submit(&client, with_gpus(shell("true"), 1)).await;
    let ended = client.wait_job(other).await.unwrap();
    assert_eq!(ended.phase(), v1::JobPhase::Succeeded);
    let why = cluster
        .muster(&["job", "explain", &job.to_string()])
        .await
        .ok();
    assert!(why.contains("suspended by ada"), "{why}");
    client.resume_job(job, "ada", "our turn").await.unwrap();
    let ended = client.wait_job(job).await.unwrap();
    assert_eq!(ended.phase(), v1::JobPhase::Succeeded);
    let past = &ended.units[0].past;
    assert_eq!((past.len(), ended.units[0].failures), (2, 0));
}
