//! `muster chaos tasks`: the trials as their users meet them, and nothing of them stays.

use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use muster_tests::{Run, muster, muster_binary, processes_naming, skip, trainer_binary};
use serde_json::Value;
use tokio::sync::Mutex;

/// Trials measure times: they take turns.
pub(crate) static TURN: Mutex<()> = Mutex::const_new(());

/// A shell's script in a network and with mounts of its own.
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

/// Whether this system lets us have namespaces of our own, and has the programs for them.
pub(crate) fn may_have_namespaces() -> bool {
    let probe = "ip link add switch type bridge && nsenter --net=/proc/self/ns/net true && mount -t tmpfs probe /mnt";
    let probed = in_namespaces(probe).output();
    probed.is_ok_and(|output| output.status.success())
}

/// Plays one trial; gives its row of the report.
async fn played(trial: &str) -> Option<Value> {
    played_with(trial, &[]).await
}

/// The same with further arguments.
async fn played_with(trial: &str, more: &[&str]) -> Option<Value> {
    if !may_have_namespaces() {
        skip("this system does not let us make network namespaces");
        return None;
    }
    let _turn = TURN.lock().await;
    let trainer = trainer_binary();
    let trainer = trainer.to_str().unwrap();
    let words = ["chaos", "tasks", "--trial", trial, "--trainer", trainer];
    let words = [&words[..], &["-o", "json"], more].concat();
    let run = Run::of(muster(&words), "").await;
    assert_eq!(run.code, 0, "{run:?}");
    let folder = run.stderr.lines().find_map(folder_in).unwrap();
    assert!(!std::fs::exists(folder).unwrap(), "{folder} stays");
    let left = processes_naming(folder);
    assert!(left.is_empty(), "processes of {folder} stay: {left:?}");
    let report: Value = serde_json::from_str(&run.stdout).unwrap();
    let trials = report["trials"].as_array().unwrap();
    assert_eq!(trials.len(), 1, "{report}");
    assert_eq!(trials[0]["trial"], trial);
    assert_eq!(trials[0]["broken"], Value::Array(Vec::new()));
    Some(trials[0].clone())
}

/// The cluster's folder in a line of progress.
pub(crate) fn folder_in(line: &str) -> Option<&str> {
    line.split_once("data and logs: ").map(|(_, folder)| folder)
}

#[tokio::test]
async fn a_training_goes_on_while_its_agent_is_replaced_by_another_program() {
    if let Some(row) = played("agent-upgraded").await {
        assert_eq!(
            (&row["attempts"], &row["steps_repeated"]),
            (&1.into(), &0.into())
        );
    }
}

/// What workers begin with says that it was started, and goes on as the product.
#[tokio::test]
async fn a_training_goes_on_while_an_agent_of_another_build_is_replaced_by_this_one() {
    let folder = tempfile::tempdir().unwrap();
    let (previous, started) = (folder.path().join("muster"), folder.path().join("started"));
    let script = format!(
        "#!/bin/sh\necho \"$1\" >> {}\nexec {} \"$@\"\n",
        started.display(),
        muster_binary().display()
    );
    std::fs::write(&previous, script).unwrap();
    std::fs::set_permissions(&previous, PermissionsExt::from_mode(0o755)).unwrap();
    let more = ["--previous", previous.to_str().unwrap()];
    if let Some(row) = played_with("agent-upgraded", &more).await {
        let (attempts, repeated) = (&row["attempts"], &row["steps_repeated"]);
        assert_eq!((attempts, repeated), (&1.into(), &0.into()));
        // The three agents, and not the one that took the place of one of them.
        let started = std::fs::read_to_string(&started).unwrap();
        assert_eq!(started.lines().collect::<Vec<_>>(), ["worker"; 3]);
    }
}

#[tokio::test]
async fn another_build_is_for_the_trial_of_an_upgrade_alone() {
    let words = ["chaos", "tasks", "--trial", "stop-ignored"];
    let run = Run::of(
        muster(&[&words[..], &["--previous", "muster"]].concat()),
        "",
    )
    .await;
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
async fn a_training_on_a_host_that_nobody_hears_any_more_goes_on_elsewhere_and_never_twice() {
    if let Some(row) = played("long-cut-out").await {
        assert_eq!(row["lived_at_once"], Value::Array(Vec::new()));
    }
}

#[tokio::test]
async fn a_training_survives_a_damaged_checkpoint() {
    if let Some(row) = played("checkpoint-damaged").await {
        assert!(row["steps_repeated"].as_u64() > Some(0), "{row}");
    }
}

#[tokio::test]
async fn a_training_that_is_preempted_while_the_leader_dies_loses_nothing() {
    if let Some(row) = played("preemption-leader-killed").await {
        assert!(row["noticed_ms"].as_u64().is_some(), "{row}");
    }
}

#[tokio::test]
async fn a_training_on_a_host_that_hears_nothing_for_less_than_its_grace_goes_on_there() {
    if let Some(row) = played("short-cut-in").await {
        let (attempts, repeated) = (&row["attempts"], &row["steps_repeated"]);
        assert_eq!((attempts, repeated), (&1.into(), &0.into()), "{row}");
    }
}

#[tokio::test]
async fn a_training_on_a_host_that_is_cut_off_both_ways_goes_on_elsewhere_and_never_twice() {
    if let Some(row) = played("long-cut").await {
        assert_eq!(row["lived_at_once"], Value::Array(Vec::new()));
        assert!(row["attempts"].as_u64() > Some(1), "{row}");
    }
}

#[tokio::test]
async fn a_training_outlives_a_full_disk_while_it_saves() {
    if let Some(row) = played("checkpoint-disk-full").await {
        assert!(row["back_ms"].as_u64().is_some(), "{row}");
    }
}

#[tokio::test]
async fn a_training_that_does_not_stop_when_asked_is_killed_and_goes_on_later() {
    if let Some(row) = played("stop-ignored").await {
        assert_eq!(row["attempts"], 2, "{row}");
    }
}
