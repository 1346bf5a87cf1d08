//! `muster dev`: its cluster is usable, and a signal ends all of it.

use std::fs;
use std::process::Stdio;

use muster_tests::{Run, eventually, is_alive, muster};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// Starts a cluster, runs a long job, ends the cluster with a signal; asserts that nothing remains.
async fn ends_by(signal: Signal) {
    let folder = tempfile::tempdir().unwrap();
    let ready_file = folder.path().join("ready.json");
    let mut command = muster(&["dev", "--workers", "2", "--gpus", "1", "--ready-file"]);
    command
        .arg(&ready_file)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    let child = command.spawn().unwrap();
    let pid = child.id().unwrap().cast_signed();
    let ready: Value = eventually("muster dev is ready", async || {
        serde_json::from_slice(&fs::read(&ready_file).ok()?).ok()
    })
    .await;
    let addresses: Vec<&str> = ready["addresses"]
        .as_array()
        .unwrap()
        .iter()
        .map(|address| address.as_str().unwrap())
        .collect();
    let addresses = addresses.join(",");
    let args = [
        "job",
        "submit",
        "--gpus",
        "1",
        "--tasks",
        "2",
        "--wait=running",
        "--address",
        &addresses,
        "--",
        "sleep",
        "1000",
    ];
    let submitted = Run::of(muster(&args), "").await;
    assert_eq!(submitted.code, 0, "{submitted:?}");
    let pids: Vec<i32> = ["replicas", "workers"]
        .iter()
        .flat_map(|kind| ready[kind].as_array().unwrap())
        .map(|process| i32::try_from(process["pid"].as_i64().unwrap()).unwrap())
        .collect();
    assert_eq!(pids.len(), 5);
    let cluster_folder = ready["folder"].as_str().unwrap().to_owned();
    assert!(pids.iter().all(|pid| is_alive(*pid)));

    kill_process(Pid::from_raw(pid).unwrap(), signal).unwrap();
    let output = child.wait_with_output().await.unwrap();
    let stdout = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{:?}", output.status);
    assert!(
        stdout.starts_with(&format!("export MUSTER_ADDR={addresses}\n")),
        "{stdout}"
    );
    assert!(pids.iter().all(|pid| !is_alive(*pid)));
    assert!(
        !fs::exists(&cluster_folder).unwrap(),
        "{cluster_folder} stays"
    );
    let left = muster_tests::processes_naming(&cluster_folder);
    assert!(left.is_empty(), "supervisors or tasks stay: {left:?}");
}

#[tokio::test]
async fn a_development_cluster_ends_by_sigterm_and_leaves_nothing() {
    ends_by(Signal::TERM).await;
}

#[tokio::test]
async fn a_development_cluster_ends_by_ctrl_c_and_leaves_nothing() {
    ends_by(Signal::INT).await;
}
