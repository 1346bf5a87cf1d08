//! Work that is asked to stop: its host is drained, or its time limit is reached.

use std::path::Path;

use muster_proto::v1;
use muster_tests::{Cluster, Shape, only_attempt, shell, submit, with_gpus};

const TWO_WORKERS: Shape = Shape {
    replicas: 1,
    workers: 2,
    gpus: 1,
};

/// A task that saves its progress when it is asked to stop, and succeeds when it has a checkpoint to start
/// from.
const SAVES: &str = "[ -n \"$MUSTER_CKPT_LATEST\" ] && exit 0
    save() {
        cat $MUSTER_CTL_DIR/preempt > $REASON
        mkdir $MUSTER_CKPT_DIR/step_7
        echo > $MUSTER_CKPT_DIR/step_7/_COMMITTED
        exit 75
    }
    trap save TERM
    while :; do sleep 0.05; done";

/// A job of one such task on one GPU, which writes the reported reason to a file.
fn saving(reason: &Path) -> v1::JobSpec {
    let script = format!("REASON={}; {SAVES}", reason.display());
    let mut spec = with_gpus(shell(&script), 1);
    spec.stop_grace_ms = Some(10_000);
    spec
}

#[tokio::test]
async fn a_drain_moves_work_through_its_checkpoint_and_waits_for_it() {
    let cluster = Cluster::start(TWO_WORKERS).await;
    let client = cluster.client().await;
    let reason = cluster.write("reason", "");
    let job = submit(&client, saving(&reason)).await;
    let attempt = only_attempt(&client, job).await;
    let host = attempt.tasks[0].host.clone();
    let args = ["host", "drain", &host, "--reason", "a new disk"];
    let dry = cluster
        .muster(&[&args[..], &["--dry-run"]].concat())
        .await
        .ok();
    assert!(dry.contains(&job.to_string()), "{dry}");
    assert_eq!(only_attempt(&client, job).await.epoch, attempt.epoch);
    let wait = ["--wait", "--timeout", "60s"];
    let drained = cluster.muster(&[&args[..], &wait].concat()).await;
    assert_eq!(drained.code, 0, "{drained:?}");
    let saved_reason = std::fs::read_to_string(reason).unwrap();
    assert!(saved_reason.contains("\"drain\""), "{saved_reason}");
    let ended = client.wait_job(job).await.unwrap();
    assert_eq!(ended.phase(), v1::JobPhase::Succeeded);
    let unit = &ended.units[0];
    assert_eq!((unit.attempts, unit.failures), (2, 0));
    assert_eq!(unit.past[0].hosts, std::slice::from_ref(&host));
    assert_ne!(unit.past[1].hosts, std::slice::from_ref(&host));
    // Its history shows where, by whom and why.
    assert!(unit.past[0].detail.contains("a new disk"), "{unit:?}");
    let id = job.to_string();
    let events = cluster.muster(&["job", "events", &id]).await.ok();
    let stopping = { events.lines() }.find(|line| line.contains("attempt_stopping"));
    let stopping = stopping.unwrap();
    assert!(
        stopping.contains(&format!("host {host} is drained by ")),
        "{events}"
    );
    assert!(stopping.contains(": a new disk"), "{events}");
    let listed = cluster.muster(&["host", "list"]).await.ok();
    let line = listed.lines().find(|line| line.contains(&host)).unwrap();
    assert!(line.contains("a new disk"), "{listed}");
}

#[tokio::test]
async fn a_job_over_its_time_limit_is_asked_to_save_and_fails_permanently() {
    let cluster = Cluster::start(TWO_WORKERS).await;
    let client = cluster.client().await;
    let reason = cluster.write("reason", "");
    let mut spec = saving(&reason);
    let scheduling = spec.scheduling.get_or_insert_default();
    scheduling.run_time_ms_max = Some(1_500);
    let job = submit(&client, spec).await;
    let ended = client.wait_job(job).await.unwrap();
    assert_eq!(ended.phase(), v1::JobPhase::Failed, "{ended:?}");
    assert_eq!(ended.units[0].attempts, 1);
    let saved_reason = std::fs::read_to_string(reason).unwrap();
    assert!(saved_reason.contains("\"run_time\""), "{saved_reason}");
    let shown = cluster.muster(&["job", "explain", &job.to_string()]).await;
    let shown = shown.ok();
    assert!(shown.contains("run_time_ms_max"), "{shown}");
}
