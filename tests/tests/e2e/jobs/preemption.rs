//! Preemption from a user's view: work is saved before it makes room, it restarts automatically, and a
//! leader crash in the middle changes nothing.

use std::path::Path;

use muster_client::{Client, WatchFilter, WatchUpdate};
use muster_model::ids::{JobId, Revision};
use muster_proto::v1;
use muster_proto::v1::event::Kind;
use muster_tests::{
    Cluster, Shape, eventually, only_attempt, printed, shell, submit, trainer_binary, with_gpus,
};
use serde_json::Value;

const PREEMPTING: &str = "queues:\n  default: {preempt_by_priority: true}\n";

async fn ready(cluster: &Cluster) -> Client {
    let client = cluster.client().await;
    eventually("the host is up", async || {
        let status = client.status(v1::Consistency::Linearizable).await.ok()?;
        (status.hosts?.up == 1).then_some(())
    })
    .await;
    let run = cluster.muster_reading(&["queue", "apply", "-"], PREEMPTING);
    assert_eq!(run.await.code, 0);
    client
}

fn with_priority(mut spec: v1::JobSpec, priority: i32) -> v1::JobSpec {
    spec.priority = priority;
    spec
}

/// A job's only unit; empty before the first placement.
async fn unit(client: &Client, job: JobId) -> v1::Unit {
    let consistency = v1::Consistency::Linearizable;
    let detail = client.get_job(job, 1, consistency).await.unwrap();
    detail.units.into_iter().next().unwrap_or_default()
}

/// Events from the beginning up to the first that `is_last` accepts.
async fn events_until(client: &Client, is_last: impl Fn(&Kind) -> bool) -> Vec<Kind> {
    let mut watch = client.watch(Some(Revision(0)), WatchFilter::default());
    let mut seen = Vec::new();
    loop {
        if let WatchUpdate::Events { events, .. } = watch.next().await.unwrap() {
            let kinds: Vec<Kind> = events.into_iter().filter_map(|event| event.kind).collect();
            let is_over = kinds.iter().any(&is_last);
            seen.extend(kinds);
            if is_over {
                return seen;
            }
        }
    }
}

/// A task that holds a lock on the host's GPUs while any process of it lives, and creates a file if another
/// task holds it.
fn locking(folder: &Path, script: &str) -> v1::JobSpec {
    let lock = folder.join("gpus");
    let double = folder.join("double");
    with_gpus(
        shell(&format!(
            "exec 9>{}; flock -n 9 || touch {}; {script}",
            lock.display(),
            double.display()
        )),
        8,
    )
}

#[tokio::test]
async fn a_preempted_training_comes_back_from_its_checkpoint() {
    const STEPS: &str = "400";
    let cluster = Cluster::start(Shape {
        replicas: 1,
        workers: 1,
        gpus: 8,
    })
    .await;
    let client = ready(&cluster).await;
    let report = cluster.write("report.json", "");
    let mut training = with_gpus(shell(""), 8);
    training.gang = true;
    training.stop_grace_ms = Some(20_000);
    training.groups[0].command = [
        trainer_binary().to_str().unwrap(),
        "--steps",
        STEPS,
        "--step-ms",
        "20",
        "--checkpoint-steps",
        "10",
        "--report",
        report.to_str().unwrap(),
    ]
    .map(str::to_owned)
    .to_vec();
    let training = submit(&client, training).await;
    eventually("it has saved something", async || {
        let checkpoints = unit(&client, training).await.checkpoints;
        (!checkpoints.is_empty()).then_some(())
    })
    .await;

    let urgent = with_priority(with_gpus(shell("echo urgent; sleep 1"), 8), 5);
    let urgent = submit(&client, urgent).await;
    let ended = client.wait_job(urgent).await.unwrap();
    assert_eq!(ended.phase(), v1::JobPhase::Succeeded, "{ended:?}");

    let ended = client.wait_job(training).await.unwrap();
    assert_eq!(ended.phase(), v1::JobPhase::Succeeded, "{ended:?}");
    let unit = &ended.units[0];
    assert_eq!(unit.past.len(), 2, "{unit:?}");
    assert_eq!(unit.failures, 0, "a preemption is not charged");
    assert_eq!(unit.past[0].exit.as_ref().unwrap().code, Some(75));
    // Its history names the job that it was preempted for.
    let whom = format!("job {urgent} (");
    assert!(unit.past[0].detail.contains(&whom), "{unit:?}");
    let id = training.to_string();
    let events = cluster.muster(&["job", "events", &id]).await.ok();
    let stopping = { events.lines() }.find(|line| line.contains("attempt_stopping"));
    assert!(stopping.unwrap().contains(&whom), "{events}");
    let report: Value = serde_json::from_slice(&std::fs::read(report).unwrap()).unwrap();
    assert_eq!(report["restarts"], 1, "{report}");
    let resumed_from = report["resumed_from"].as_u64().unwrap();
    let steps: u64 = STEPS.parse().unwrap();
    assert!((1..steps).contains(&resumed_from), "{report}");
}

#[tokio::test]
async fn a_leader_killed_between_claim_and_placement_changes_nothing() {
    let mut cluster = Cluster::start(Shape {
        replicas: 3,
        workers: 1,
        gpus: 8,
    })
    .await;
    let client = ready(&cluster).await;
    let folder = tempfile::tempdir().unwrap();
    let asked = folder.path().join("asked");
    let may_go = folder.path().join("may-go");
    // It ends only when the test lets it: the claim stays open until then.
    let mut victim = locking(
        folder.path(),
        &format!(
            "if [ $MUSTER_RESTART_REASON = preempt ]; then echo back; exit 0; fi; \
             trap 'touch {}; until [ -e {} ]; do sleep 0.05; done; exit 1' TERM; \
             echo first; while :; do sleep 0.05; done",
            asked.display(),
            may_go.display()
        ),
    );
    victim.stop_grace_ms = Some(60_000);
    let victim = submit(&client, victim).await;
    assert_eq!(printed(&client, victim, 1).await, ["first"]);
    only_attempt(&client, victim).await;

    let preemptor = with_priority(locking(folder.path(), "echo urgent; sleep 0.5"), 5);
    let preemptor = submit(&client, preemptor).await;
    eventually("the victim was asked to go", async || {
        asked.exists().then_some(())
    })
    .await;
    let waiting = unit(&client, preemptor).await;
    assert_eq!(
        waiting.claim.as_ref().unwrap().victims.len(),
        1,
        "{waiting:?}"
    );

    let leader = cluster.leader(&client).await;
    cluster.replicas[leader].kill();
    let new_leader = cluster.leader(&client).await;
    assert_ne!(new_leader, leader);
    let waiting = unit(&client, preemptor).await;
    assert!(
        waiting.claim.is_some(),
        "the claim survives the leader change"
    );
    std::fs::write(&may_go, "").unwrap();

    let ended = client.wait_job(preemptor).await.unwrap();
    assert_eq!(ended.phase(), v1::JobPhase::Succeeded, "{ended:?}");
    assert_eq!(ended.units[0].past.len(), 1, "{ended:?}");
    let ended = client.wait_job(victim).await.unwrap();
    assert_eq!(ended.phase(), v1::JobPhase::Succeeded, "{ended:?}");
    assert_eq!(ended.units[0].past.len(), 2, "{ended:?}");
    assert_eq!(ended.units[0].failures, 0);
    assert_eq!(printed(&client, victim, 1).await, ["back"]);
    assert!(!folder.path().join("double").exists(), "two held the GPUs");

    let is_end = |kind: &Kind| matches!(kind, Kind::JobFinished(end) if end.job_id == victim.get());
    let events = events_until(&client, is_end).await;
    let claims = events
        .iter()
        .filter(|kind| matches!(kind, Kind::UnitClaimed(_)));
    assert_eq!(claims.count(), 1, "the new leader continues with the claim");
    let order: Vec<(bool, u64)> = events
        .iter()
        .filter_map(|kind| match kind {
            Kind::AttemptPlaced(placed) => Some((true, placed.job_id)),
            Kind::AttemptEnded(ended) => Some((false, ended.job_id)),
            _ => None,
        })
        .collect();
    let (low, high) = (victim.get(), preemptor.get());
    let expected = [
        (true, low),
        (false, low),
        (true, high),
        (false, high),
        (true, low),
        (false, low),
    ];
    assert_eq!(order, expected, "never two at a time");
    cluster.replicas[leader].start();
}
