//! Runs on a shared cluster, with other events in the cluster.

use std::convert::Infallible;
use std::process::Stdio;

use muster_client::Client;
use muster_proto::v1;
use muster_tests::{Cluster, Run, SecuredCluster, Shape, eventually};
use serde_json::Value;
use tokio::time::{Duration, sleep};

use crate::faults::chaos_target::{SHAPE, foreign_job, is_untouched, remaining_work};

/// Polling interval for killed processes.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Reason of an admin's block from long before the run.
const ADMINS: &str = "driver 580";

/// A run that may hit one replica but hits none; returns how it ended.
async fn spares(cluster: &Cluster, allowed: &str, replica: i32) -> Run {
    let folder = tempfile::tempdir().unwrap();
    let (out, replica) = (folder.path().join("report"), replica.to_string());
    let target = ["chaos", "run", "--target", &cluster.addresses[0]];
    let named = ["--allow", allowed, "--replica-pid", &replica];
    let rest = ["-o", "json", "--out", out.to_str().unwrap()];
    let run = cluster.muster(&[&target[..], &named, &rest].concat()).await;
    assert_eq!(run.code, 1, "{run:?}");
    let report: Value = serde_json::from_str(&run.stdout).unwrap();
    assert_eq!(report["verdict"], "invalid", "{report}");
    let faults = report["faults"].as_array().unwrap();
    assert_eq!(faults.len(), allowed.split(',').count(), "{report}");
    assert!(faults.iter().all(|it| it["made"] == 0), "{report}");
    run
}

/// Supervises the processes of a cluster: restarts each one that ends.
async fn keep_running(cluster: &mut Cluster) -> Infallible {
    loop {
        let members = cluster.replicas.iter_mut().chain(&mut cluster.workers);
        { members.filter(|member| !member.is_running()) }.for_each(muster_tests::Member::start);
        sleep(POLL_INTERVAL).await;
    }
}

#[tokio::test]
async fn a_killed_agent_and_replica_come_back_and_a_foreign_job_keeps_running() {
    let mut cluster = Cluster::start(SHAPE).await;
    let client = cluster.client().await;
    let (foreign, before) = foreign_job(&client).await;
    let pids = cluster.processes_of(foreign);
    let agent = cluster
        .workers
        .iter()
        .find(|worker| worker.name != before.tasks[0].host);
    let agent = agent
        .map(|agent| format!("{}={}", agent.name, agent.pid()))
        .unwrap();
    let replica = cluster.replicas[1].pid().to_string();
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("report");
    let target = ["chaos", "run", "--target", &cluster.addresses[0]];
    let named = ["--agent-pid", &agent, "--replica-pid", &replica];
    let rest = ["--allow", "agent-killed,replica-killed", "--out"];
    let last = [out.to_str().unwrap(), "-o", "json"];
    let command = cluster.command(&[&target[..], &named, &rest, &last].concat());
    let run = tokio::select! {
        run = Run::of(command, "") => run,
        never = keep_running(&mut cluster) => match never {},
    };
    assert_eq!(run.code, 0, "{run:?}");
    let report: Value = serde_json::from_str(&run.stdout).unwrap();
    assert_eq!(report["verdict"], "accepted", "{report}");
    let faults = report["faults"].as_array().unwrap();
    assert_eq!(faults.len(), 2, "{report}");
    assert!(faults.iter().all(|it| it["made"] == 1), "{report}");
    let again = report["again"].as_str().unwrap();
    let processes = format!("--agent-pid {agent} --replica-pid {replica}");
    assert!(again.contains(&processes), "{again}");
    is_untouched(&cluster, &client, (foreign, &before), &pids).await;
    assert_eq!(remaining_work(&client).await, (Vec::new(), 0));
}

#[tokio::test]
async fn a_replica_of_another_cluster_is_released_and_keeps_running() {
    let cluster = Cluster::start(SHAPE).await;
    let other = Cluster::start(Shape {
        replicas: 1,
        ..SHAPE
    })
    .await;
    let run = spares(&cluster, "replica-killed", other.replicas[0].pid()).await;
    assert!(run.stderr.contains("it is not one of them"), "{run:?}");
    // It is no longer stopped.
    let status = other.client().await;
    let status = status.status(v1::Consistency::Linearizable).await;
    assert!(status.is_ok(), "{status:?}");
}

/// The user of the token differs from the one who runs the command: blocks and jobs belong to the user of
/// the token, whatever is specified.
#[tokio::test]
async fn with_certificates_a_run_works_by_its_token_and_leaves_no_block() {
    let cluster = SecuredCluster::start().await;
    let token = cluster.add_user(&["ada", "--role", "operator"]).await;
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("report");
    let target = ["chaos", "run", "--target", &cluster.addresses[0]];
    let rest = [
        "--allow",
        "gpu-blocked,jobs-cancelled",
        "-o",
        "json",
        "--out",
    ];
    let args = [&target[..], &rest, &[out.to_str().unwrap()]].concat();
    let run = cluster.muster(Some(&token), &args).await;
    let report: Value = serde_json::from_str(&run.stdout).unwrap();
    assert_eq!(report["violations"], Value::Array(Vec::new()), "{report}");
    // The number of calls per second on this machine is not under test.
    let faults = report["faults"].as_array().unwrap();
    assert_eq!(faults.len(), 2, "{report}");
    assert!(
        faults.iter().all(|it| it["without_effect"] == 0),
        "{report}"
    );
    let client = cluster.client_of(Some("replica-1"), None).await;
    assert_eq!(remaining_work(&client).await, (Vec::new(), 0));
    let request = v1::ListJobsRequest {
        name: "chaos-".to_owned(),
        ..v1::ListJobsRequest::default()
    };
    let (_, jobs) = client.list_jobs(request, 100_000).await.unwrap();
    let mut users = jobs.iter().filter_map(|job| job.spec.as_ref());
    assert!(users.all(|spec| spec.user == "ada"), "{jobs:?}");
}

/// The host that a run has blocked.
async fn blocked_host(client: &Client) -> String {
    eventually("the run has blocked a host", async || {
        let listed = client.list_hosts(v1::ListHostsRequest::default());
        let (_, hosts) = listed.await.ok()?;
        let is_of_run = |host: &v1::Host| {
            let block = host.block.as_ref();
            block.is_some_and(|block| block.reason != ADMINS)
        };
        hosts.into_iter().find(is_of_run).map(|host| host.name)
    })
    .await
}

#[tokio::test]
async fn a_block_by_an_admin_replaces_that_of_the_run_and_stays() {
    let cluster = Cluster::start(SHAPE).await;
    let client = cluster.client().await;
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("report");
    let target = ["chaos", "run", "--target", &cluster.addresses[0]];
    let rest = ["--allow", "host-blocked", "--out", out.to_str().unwrap()];
    let command = cluster.command(&[&target[..], &rest].concat());
    let replaced = async {
        let host = blocked_host(&client).await;
        let args = ["host", "block", &host, "--reason", ADMINS];
        assert_eq!(cluster.muster(&args).await.code, 0);
    };
    let (run, ()) = tokio::join!(Run::of(command, ""), replaced);
    let left = remaining_work(&client).await;
    assert_eq!(left, (vec![ADMINS.to_owned()], 0), "{run:?}");
}

#[tokio::test]
async fn an_interrupted_run_removes_its_own_blocks_and_jobs_only() {
    let cluster = Cluster::start(SHAPE).await;
    let client = cluster.client().await;
    let (foreign, before) = foreign_job(&client).await;
    let pids = cluster.processes_of(foreign);
    let host = before.tasks[0].host.clone();
    let other = cluster.workers.iter().find(|worker| worker.name != host);
    let other = other.map(|worker| worker.name.clone()).unwrap();
    let args = ["host", "block", &other, "--reason", ADMINS];
    assert_eq!(cluster.muster(&args).await.code, 0);
    let args = [
        "chaos",
        "run",
        "--target",
        &cluster.addresses[0],
        "--allow",
        "host-blocked",
    ];
    let mut command = cluster.command(&args);
    command
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    let child = command.spawn().unwrap();
    let pid = child.id().unwrap().to_string();
    blocked_host(&client).await;
    let sent = std::process::Command::new("kill")
        .args(["-INT", &pid])
        .status()
        .unwrap();
    assert!(sent.success());
    let ended = child.wait_with_output().await.unwrap();
    let stderr = String::from_utf8_lossy(&ended.stderr);
    assert_eq!(ended.status.code(), Some(1), "{stderr}");
    assert!(
        stderr.contains("interrupted; what it had made is cleared away"),
        "{stderr}"
    );
    assert_eq!(remaining_work(&client).await, (vec![ADMINS.to_owned()], 0));
    is_untouched(&cluster, &client, (foreign, &before), &pids).await;
}

#[tokio::test]
async fn no_replica_is_hit_while_another_one_is_down() {
    let mut cluster = Cluster::start(SHAPE).await;
    cluster.replicas[2].kill();
    let client = cluster.client().await;
    cluster.leader(&client).await;
    let allowed = "replica-frozen,replica-killed";
    let run = spares(&cluster, allowed, cluster.replicas[1].pid()).await;
    // Reported for its watcher, and for each fault.
    let warnings = run.stderr.matches("does not answer").count();
    assert_eq!(warnings, 3, "{run:?}");
    assert!(cluster.replicas[1].is_running(), "{run:?}");
}
