//! Planned maintenance: running work leaves when it begins, and the host returns automatically.

use muster_proto::v1;
use muster_tests::{Cluster, Run, Shape, eventually, only_attempt, shell, submit, with_gpus};

const TWO_WORKERS: Shape = Shape {
    replicas: 1,
    workers: 2,
    gpus: 2,
};

/// Plans maintenance, once all replicas are known to read that.
async fn plan(cluster: &Cluster, args: &[&str]) -> String {
    eventually("the maintenance is planned", async || {
        let run = cluster.muster(args).await;
        (run.code == 0).then_some(run.stdout)
    })
    .await
}

fn is_refused(run: &Run, code: i32, message: &str) {
    assert_eq!(run.code, code, "{run:?}");
    assert!(run.stderr.contains(message), "{run:?}");
}

#[tokio::test]
async fn a_host_is_drained_when_its_maintenance_begins_and_returns_by_itself() {
    let cluster = Cluster::start(TWO_WORKERS).await;
    let client = cluster.client().await;
    let job = submit(&client, with_gpus(shell("sleep 1000"), 1)).await;
    let before = only_attempt(&client, job).await;
    let host = before.tasks[0].host.clone();
    let window = ["host", "drain", &host, "--reason", "driver 580", "--at"];
    let args = [&window[..], &["8s", "--expires", "6s", "--grace", "2s"]].concat();
    let message = plan(&cluster, &args).await;
    assert!(message.contains("to be drained in"), "{message}");
    let listed = cluster.muster(&["host", "list", &host]).await.ok();
    assert!(
        listed.contains("to be blocked in") && listed.contains("driver 580"),
        "{listed}"
    );
    // The whole cluster has no room for this job until the maintenance is over, and it reports that.
    let mut gang = with_gpus(shell("sleep 1"), 1);
    gang.gang = true;
    gang.groups[0].count = Some(3);
    let gang = submit(&client, gang).await;
    let why = cluster
        .muster(&["job", "explain", &gang.to_string()])
        .await
        .ok();
    assert!(
        why.contains(&format!("{host}: it is to be blocked")) && why.contains("run_time"),
        "{why}"
    );
    let moved = eventually("the task has moved", async || {
        let known = client.get_job(job, 1, v1::Consistency::Linearizable).await;
        let unit = known.ok()?.units.into_iter().next()?;
        let attempt = unit.attempt?;
        (attempt.epoch != before.epoch).then_some((unit.failures, attempt))
    })
    .await;
    assert_eq!(moved.0, 0, "the job is not charged");
    assert_ne!(moved.1.tasks[0].host, host);
    eventually("the host is back, and the gang placed", async || {
        let known = client.get_job(gang, 1, v1::Consistency::Linearizable).await;
        let job = known.ok()?.job;
        (job.phase() == v1::JobPhase::Succeeded).then_some(())
    })
    .await;
    let args = ["host", "list", &host, "--output", "json"];
    let listed = cluster.muster(&args).await.json();
    assert_eq!(listed["hosts"][0]["block"], serde_json::Value::Null);
    assert_eq!(listed["hosts"][0]["planned"], serde_json::Value::Null);
}

#[tokio::test]
async fn a_planned_block_is_cancelled_and_invalid_plans_are_refused() {
    let cluster = Cluster::start(TWO_WORKERS).await;
    let client = cluster.client().await;
    let (_, hosts) = client
        .list_hosts(v1::ListHostsRequest::default())
        .await
        .unwrap();
    let host = hosts[0].name.clone();
    let block = |rest: &[&'static str]| {
        let args = ["block-host", &host, "--reason", "riser"].map(str::to_owned);
        let rest = rest.iter().map(|argument| (*argument).to_owned());
        args.into_iter().chain(rest).collect::<Vec<String>>()
    };
    let run = async |args: Vec<String>| {
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        cluster.muster(&args).await
    };
    for (rest, message) in [
        (&["--at", "2020-01-01T00:00:00Z"][..], "is in the past"),
        (&["--at", "tomorrow"], "neither an instant"),
        (&["--notice", "1h"], "--at"),
    ] {
        is_refused(&run(block(rest)).await, 64, message);
    }
    let drain = ["host", "drain", &host, "--reason", "x", "--at", "1h"];
    let waits = cluster.muster(&[&drain[..], &["--wait"]].concat()).await;
    is_refused(&waits, 64, "--wait");
    let gpu = format!("{host}:0");
    let of_gpu = ["block-gpu", &gpu, "--reason", "x", "--at", "1h"];
    is_refused(&cluster.muster(&of_gpu).await, 64, "--at");
    let far = block(&["--at", "3d", "--notice", "31d"]);
    eventually("it is refused for its notice", async || {
        let refused = run(far.clone()).await;
        (refused.stderr.contains("NOTICE_MS_MAX")).then_some(())
    })
    .await;
    // A dry run plans nothing.
    let dry = run(block(&["--at", "3d", "--dry-run"])).await.ok();
    assert!(dry.contains("would be blocked in 2d23h"), "{dry}");
    let cancel = ["unblock-host", &host, "--planned"];
    let nothing = cluster.muster(&cancel).await;
    is_refused(&nothing, 1, "no block of host");
    let args = block(&["--at", "3d"]);
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    plan(&cluster, &args).await;
    let not_yet = cluster.muster(&["unblock-host", &host]).await;
    is_refused(&not_yet, 1, "is not blocked");
    let cancelled = cluster.muster(&cancel).await.ok();
    assert!(cancelled.contains("will not be blocked"), "{cancelled}");
}

#[tokio::test]
async fn a_block_drains_a_gpu_while_tasks_beside_it_continue() {
    let cluster = Cluster::start(TWO_WORKERS).await;
    let client = cluster.client().await;
    let leaves = submit(&client, with_gpus(shell("sleep 1000"), 1)).await;
    let stays = submit(&client, with_gpus(shell("sleep 1000"), 1)).await;
    let before = only_attempt(&client, leaves).await;
    let beside = only_attempt(&client, stays).await;
    let gpu = before.tasks[0].gpus[0].clone();
    let block = ["block-gpu", &gpu, "--reason", "riser"];
    for (rest, message) in [
        (&["--deadline", "10s"][..], "--drain"),
        (
            &["--drain", "--expires", "10s"],
            "before the drain deadline",
        ),
    ] {
        let run = cluster.muster(&[&block[..], rest].concat()).await;
        is_refused(&run, 64, message);
    }
    let drain = [&block[..], &["--drain", "--deadline", "20s"]].concat();
    let looked = cluster.muster(&[&drain[..], &["--dry-run"]].concat()).await;
    let looked = looked.ok();
    assert!(
        looked.contains("would be drained") && looked.contains("1 job moved away"),
        "{looked}"
    );
    let message = cluster.muster(&drain).await.ok();
    assert!(message.contains("draining: 1 GPU"), "{message}");
    let moved = eventually("the task has moved", async || {
        let known = client
            .get_job(leaves, 1, v1::Consistency::Linearizable)
            .await;
        let unit = known.ok()?.units.into_iter().next()?;
        let attempt = unit.attempt?;
        (attempt.epoch != before.epoch).then_some((unit.failures, attempt))
    })
    .await;
    assert_eq!(moved.0, 0, "the job is not charged");
    assert_ne!(moved.1.tasks[0].gpus[0], gpu);
    let list = ["gpu", "list", "--phase", "blocked", "-o", "json"];
    let listed = cluster.muster(&list).await.json();
    let gpus = listed["gpus"].as_array().unwrap();
    assert_eq!(gpus.len(), 1, "{listed:#}");
    assert_eq!(gpus[0]["uuid"], gpu.as_str());
    assert_eq!(gpus[0]["health_phase"], "blocked(admin)");
    assert_eq!(only_attempt(&client, stays).await.epoch, beside.epoch);
}
