//! `muster chaos run --target` on a shared cluster.

use muster_client::Client;
use muster_model::ids::JobId;
use muster_proto::v1;
use muster_tests::{
    Cluster, Run, Shape, muster, only_attempt, shell, submit, trainer_binary, with_gpus,
};
use serde_json::Value;

pub(crate) const SHAPE: Shape = Shape {
    replicas: 3,
    workers: 3,
    gpus: 2,
};

/// Another user's job, which runs before the run begins.
pub(crate) async fn foreign_job(client: &Client) -> (JobId, v1::Attempt) {
    let job = submit(client, with_gpus(shell("sleep 1000"), 1)).await;
    let attempt = only_attempt(client, job).await;
    (job, attempt)
}

pub(crate) async fn is_untouched(
    cluster: &Cluster,
    client: &Client,
    foreign: (JobId, &v1::Attempt),
    pids: &[i32],
) {
    let (job, before) = foreign;
    let now = only_attempt(client, job).await;
    assert_eq!(now.epoch, before.epoch, "the foreign job was moved");
    assert_eq!(cluster.processes_of(job), pids, "its process has changed");
}

/// Blocks by their reasons, and live jobs of any run.
pub(crate) async fn remaining_work(client: &Client) -> (Vec<String>, usize) {
    let (_, hosts) = client
        .list_hosts(v1::ListHostsRequest::default())
        .await
        .unwrap();
    let gpus = hosts.iter().flat_map(|host| &host.gpus);
    let gpus = gpus.filter_map(|gpu| gpu.block.clone());
    let blocks = hosts.iter().filter_map(|host| host.block.clone());
    let reasons = blocks.chain(gpus).map(|block| block.reason).collect();
    let request = v1::ListJobsRequest {
        name: "chaos-".to_owned(),
        ..v1::ListJobsRequest::default()
    };
    let (_, jobs) = client.list_jobs(request, 100_000).await.unwrap();
    assert!(!jobs.is_empty(), "the run has submitted nothing");
    let live = jobs.iter().filter(|job| {
        use v1::JobPhase::{Cancelled, Failed, Succeeded};
        !matches!(job.phase(), Succeeded | Failed | Cancelled)
    });
    (reasons, live.count())
}

#[tokio::test]
async fn allowed_faults_are_injected_and_a_foreign_job_runs_undisturbed() {
    let cluster = Cluster::start(SHAPE).await;
    let client = cluster.client().await;
    let (foreign, before) = foreign_job(&client).await;
    let pids = cluster.processes_of(foreign);
    assert!(!pids.is_empty());
    let agent = cluster
        .workers
        .iter()
        .find(|worker| worker.name != before.tasks[0].host);
    let agent = agent
        .map(|agent| format!("{}={}", agent.name, agent.pid()))
        .unwrap();
    let replica = cluster.replicas[0].pid().to_string();
    let folder = tempfile::tempdir().unwrap();
    let (out, ledger) = (folder.path().join("report"), folder.path().join("ledger"));
    // Findings of an earlier run are not attributed to this one.
    std::fs::create_dir(&ledger).unwrap();
    std::fs::write(ledger.join("conflicts"), "GPU-7 is held\n").unwrap();
    let (out, ledger) = (out.to_str().unwrap(), ledger.to_str().unwrap());
    let trainer = trainer_binary();
    let allowed = concat!(
        "gpu-blocked,host-blocked,host-drained,jobs-cancelled,",
        "leadership-transferred,agent-frozen,replica-frozen"
    );
    let args = [
        "chaos",
        "run",
        "--target",
        &cluster.addresses[0],
        "--allow",
        allowed,
    ];
    let named = [
        "--agent-pid",
        &agent,
        "--replica-pid",
        &replica,
        "--gpu-ledger",
        ledger,
    ];
    let rest = [
        "--trainer",
        trainer.to_str().unwrap(),
        "--out",
        out,
        "-o",
        "json",
    ];
    let run = cluster.muster(&[&args[..], &named, &rest].concat()).await;
    assert_eq!(run.code, 0, "{run:?}");
    let report: Value = serde_json::from_str(&run.stdout).unwrap();
    assert_eq!(
        (&report["verdict"], &report["profile"]),
        (&"accepted".into(), &"target".into())
    );
    let faults = report["faults"].as_array().unwrap();
    assert_eq!(faults.len(), allowed.split(',').count(), "{report}");
    assert!(faults.iter().all(|it| it["made"] == 1), "{report}");
    assert_eq!(report["grounds"]["foreign_jobs"], 1, "{report}");
    assert_eq!(report["grounds"]["foreign_displaced"], 0, "{report}");
    is_untouched(&cluster, &client, (foreign, &before), &pids).await;
    assert_eq!(remaining_work(&client).await, (Vec::new(), 0));
    let page = std::fs::read_to_string(format!("{out}/report.md")).unwrap();
    assert!(
        page.contains("every promise held") && page.contains("agent-frozen"),
        "{page}"
    );
}

#[tokio::test]
async fn unknown_disallowed_or_mismatching_targets_are_refused() {
    let target = ["chaos", "run", "--target", "127.0.0.1:1"];
    let refused = async |args: &[&str], messages: &[&str]| {
        let run = Run::of(muster(args), "").await;
        assert_eq!(run.code, 64, "{run:?}");
        assert!(messages.iter().all(|it| run.stderr.contains(it)), "{run:?}");
    };
    let with = |args: &[&'static str]| [&target[..], args].concat();
    refused(
        &with(&["--allow", "disk-full"]),
        &["disk-full", "gpu-blocked", "agent-killed"],
    )
    .await;
    refused(
        &with(&["--allow", "agent-killed"]),
        &["--agent-pid HOST=PID"],
    )
    .await;
    refused(
        &with(&["--replica-pid", "1"]),
        &["replica-frozen and replica-killed"],
    )
    .await;
    refused(
        &with(&["--allow", "agent-frozen", "--agent-pid", "x"]),
        &["HOST=PID"],
    )
    .await;
    refused(&with(&["--profile", "leader-kill"]), &["--profile"]).await;
    let killed = [
        "--allow",
        "replica-killed",
        "--replica-pid",
        "1",
        "--repetitions",
        "2",
    ];
    refused(&with(&killed), &["gets a new id"]).await;
    refused(&["chaos", "run", "--allow", "gpu-blocked"], &["--target"]).await;
    let own = std::process::id().to_string();
    let args = [
        &target[..],
        &["--allow", "replica-frozen", "--replica-pid", &own],
    ]
    .concat();
    let run = Run::of(muster(&args), "").await;
    assert_eq!(run.code, 1, "{run:?}");
    assert!(
        run.stderr.contains("is not a `muster scheduler`"),
        "{run:?}"
    );
}
