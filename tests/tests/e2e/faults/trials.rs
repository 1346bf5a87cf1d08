//! `muster chaos tasks`: the trials from a user's view, without leftovers.

use std::process::Command;

use muster_tests::{Run, muster, processes_naming, skip, trainer_binary};
use serde_json::Value;

/// A shell script in a network and with mounts of its own.
pub(crate) fn in_namespaces(script: &str) -> Command {
    let user: &[&str] = if rustix::process::geteuid().is_root() {
        &[]
    } else {
        &["--user", "--map-root-user"]
    };
    let mut command = Command::new("unshare");
    command.args(user);
    command.args(["--net", "--mount", "sh", "-c", script]);
    command
}

/// Whether this system allows namespaces and has the programs for them.
pub(crate) fn may_have_namespaces() -> bool {
    let probe = "ip link add switch type bridge && nsenter --net=/proc/self/ns/net true && mount -t tmpfs probe /mnt";
    let probed = in_namespaces(probe).output();
    probed.is_ok_and(|output| output.status.success())
}

/// Runs one trial; returns its row of the report.
pub(crate) async fn played(trial: &str) -> Option<Value> {
    played_with(trial, &[]).await
}

/// The same with further arguments.
pub(crate) async fn played_with(trial: &str, more: &[&str]) -> Option<Value> {
    if !may_have_namespaces() {
        skip("this system does not let us make network namespaces");
        return None;
    }
    let trainer = trainer_binary();
    let trainer = trainer.to_str().unwrap();
    let args = ["chaos", "tasks", "--trial", trial, "--trainer", trainer];
    let args = [&args[..], &["-o", "json"], more].concat();
    let run = Run::of(muster(&args), "").await;
    assert_eq!(run.code, 0, "{run:?}");
    let folder = run.stderr.lines().find_map(folder_in).unwrap();
    assert!(!std::fs::exists(folder).unwrap(), "{folder} stays");
    let left = processes_naming(folder);
    assert!(left.is_empty(), "processes of {folder} stay: {left:?}");
    let report: Value = serde_json::from_str(&run.stdout).unwrap();
    let trials = report["trials"].as_array().unwrap();
    assert_eq!(trials.len(), 1, "{report}");
    assert_eq!(trials[0]["fault"], trial);
    assert_eq!(trials[0]["broken"], Value::Array(Vec::new()));
    Some(trials[0].clone())
}

/// The cluster's folder in a line of progress.
pub(crate) fn folder_in(line: &str) -> Option<&str> {
    line.split_once("data and logs: ").map(|(_, folder)| folder)
}

#[tokio::test]
async fn another_build_is_for_the_trial_of_an_upgrade_alone() {
    let args = ["chaos", "tasks", "--trial", "stop-ignored"];
    let run = Run::of(muster(&[&args[..], &["--previous", "muster"]].concat()), "").await;
    assert_eq!(run.code, 64, "{run:?}");
    assert!(run.stderr.contains("agent-upgraded"), "{run:?}");
}

#[tokio::test]
async fn a_training_whose_supervisor_is_killed_loses_the_steps_since_its_checkpoint() {
    if let Some(row) = played("supervisor-killed").await {
        assert_eq!(row["attempts"], 2);
        let repeated = row["steps_repeated"].as_u64().unwrap();
        assert!((1..200).contains(&repeated), "{row}");
        assert!(row["back_ms"].as_u64().is_some(), "{row}");
    }
}

#[tokio::test]
async fn a_training_that_is_preempted_while_the_leader_dies_loses_nothing() {
    if let Some(row) = played("leader-killed-in-preemption").await {
        assert!(row["noticed_ms"].as_u64().is_some(), "{row}");
    }
}

#[tokio::test]
async fn a_training_on_an_isolated_host_continues_elsewhere_and_never_twice() {
    if let Some(row) = played("host-cut").await {
        assert_eq!(row["lived_at_once"], Value::Array(Vec::new()));
        assert!(row["attempts"].as_u64() > Some(1), "{row}");
    }
}
