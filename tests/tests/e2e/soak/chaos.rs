//! Chaos runs of one profile each.

use std::fs;

use muster_tests::{Run, muster, muster_binary, processes_naming, skip, trainer_binary};
use serde_json::Value;

use crate::faults::trials::{folder_in, may_have_namespaces};

/// Injects the only fault of a profile once; no invariant may be violated.
async fn run_in_namespaces(profile: &str, fault: &str, more: &[&str]) {
    if !may_have_namespaces() {
        skip("this system does not let us make network namespaces");
        return;
    }
    run_profile(profile, &[fault], more).await;
}

/// Injects the faults of a profile once, like [`run_in_namespaces`], at any target.
async fn run_profile(profile: &str, faults: &[&str], more: &[&str]) -> Value {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("report").display().to_string();
    let trainer = trainer_binary();
    let args = ["chaos", "run", "--profile", profile, "--out", &out];
    let rest = ["--trainer", trainer.to_str().unwrap(), "-o", "json"];
    let run = Run::of(muster(&[&args[..], &rest, more].concat()), "").await;
    assert_eq!(run.code, 0, "{run:?}");
    let report: Value = serde_json::from_str(&run.stdout).unwrap();
    assert_eq!(report["verdict"], "accepted", "{report}");
    let made = report["faults"].as_array().unwrap().iter();
    let made: Vec<_> = made.map(|it| (&it["fault"], &it["made"])).collect();
    let (names, once) = (faults.iter().map(|it| Value::from(*it)), Value::from(1));
    let names: Vec<Value> = names.collect();
    let expected: Vec<_> = names.iter().map(|it| (it, &once)).collect();
    assert_eq!(made, expected, "{report}");
    // Every replica reported its state at the end, and it equals the state derived from the log.
    let coverage = report["coverage"].as_array().unwrap().iter();
    let mut states = coverage.filter(|it| it["what"] == "states of replicas compared with the log");
    assert!(states.all(|it| it["count"] == 3), "{report}");
    let checks = report["checks"].as_array().unwrap();
    assert!(checks.iter().all(|it| it["violations"] == 0), "{report}");
    let cluster = run.stderr.lines().find_map(folder_in).unwrap();
    let left = processes_naming(cluster);
    assert!(left.is_empty(), "processes of {cluster} stay: {left:?}");
    report
}

#[tokio::test]
async fn without_namespaces_proxies_cut_the_leader_off_in_one_direction_and_the_other() {
    let more = ["--network", "proxies"];
    let report = run_profile("asymmetric", &["leader-cut-out", "leader-cut-in"], &more).await;
    assert_eq!(report["network"], "proxies", "{report}");
    let again = report["again"].as_str().unwrap();
    assert!(again.contains("--network proxies"), "{again}");
}

#[tokio::test]
async fn without_namespaces_proxies_cut_a_host_off() {
    let more = ["--network", "proxies"];
    let report = run_profile("worker-isolate", &["host-cut"], &more).await;
    assert_eq!(report["network"], "proxies", "{report}");
}

#[tokio::test]
async fn a_cluster_is_upgraded_from_another_program_under_load_and_users_do_not_notice() {
    let folder = tempfile::tempdir().unwrap();
    let programs = muster_binary();
    for name in ["muster", "muster-supervise"] {
        fs::copy(programs.with_file_name(name), folder.path().join(name)).unwrap();
    }
    let previous = folder.path().join("muster");
    run_in_namespaces(
        "upgrade",
        "rolling-upgrade",
        &["--previous", previous.to_str().unwrap()],
    )
    .await;
}

#[tokio::test]
async fn a_replica_without_its_data_neither_serves_nor_votes_and_a_new_one_takes_its_place() {
    run_in_namespaces("wipe-and-rejoin", "data-wiped", &[]).await;
}

#[tokio::test]
async fn replicas_are_added_and_removed_under_load_without_failed_calls() {
    run_in_namespaces("membership", "members-changed", &[]).await;
}
