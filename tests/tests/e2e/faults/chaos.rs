//! `muster chaos run`: the smoke profile from a user's view.

use std::fs;

use muster_tests::{Run, muster, processes_naming, skip, trainer_binary};
use serde_json::Value;

use crate::faults::trials::{folder_in, may_have_namespaces};

#[tokio::test]
async fn a_minute_of_faults_under_load_violates_no_guarantee_and_leaves_a_report() {
    if !may_have_namespaces() {
        skip("this system does not let us make network namespaces");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("report");
    let (trainer, out_text) = (trainer_binary(), out.display().to_string());
    let trainer = trainer.to_str().unwrap();
    let args = ["chaos", "run", "--trainer", trainer, "--out", &out_text];
    let run = Run::of(muster(&[&args[..], &["-o", "json"]].concat()), "").await;
    assert_eq!(run.code, 0, "{run:?}");
    let report: Value = serde_json::from_str(&run.stdout).unwrap();
    assert_eq!(
        (&report["verdict"], &report["profile"]),
        (&"accepted".into(), &"smoke".into())
    );
    let faults = report["faults"].as_array().unwrap();
    let made: Vec<(&Value, &Value)> = faults
        .iter()
        .map(|it| (&it["fault"], &it["made"]))
        .collect();
    let once = |name: &str| (Value::from(name), Value::from(1));
    let expected = ["leader-killed", "leader-frozen", "host-killed"].map(once);
    assert!(
        expected
            .iter()
            .all(|(name, count)| made.contains(&(name, count))),
        "{report}"
    );
    let text = fs::read_to_string(out.join("report.md")).unwrap();
    assert!(text.contains("every promise held"), "{text}");
    let page = fs::read_to_string(out.join("report.html")).unwrap();
    assert_eq!(page.matches("<svg").count(), 2);
    let calls = fs::read_to_string(out.join("history/users.jsonl")).unwrap();
    assert!(calls.lines().count() > 100, "{}", calls.lines().count());
    let cluster = run.stderr.lines().find_map(folder_in).unwrap();
    assert!(!fs::exists(cluster).unwrap(), "{cluster} stays");
    let left = processes_naming(cluster);
    assert!(left.is_empty(), "processes of {cluster} stay: {left:?}");
}

#[tokio::test]
async fn a_profile_that_mounts_disks_is_refused_without_namespaces() {
    let args = ["chaos", "run", "--profile", "disk-full"];
    let network = ["--network", "proxies"];
    let run = Run::of(muster(&[&args[..], &network].concat()), "").await;
    assert_eq!(run.code, 64, "{run:?}");
    let message = "profile disk-full mounts small disks";
    assert!(run.stderr.contains(message), "{run:?}");
    // Without explicit capabilities they are probed: without `unshare` there are none.
    let mut bare = muster(&args);
    bare.env("PATH", "");
    let run = Run::of(bare, "").await;
    assert_eq!(run.code, 64, "{run:?}");
    let tried = "cannot create network namespaces (`unshare`:";
    assert!(run.stderr.contains(tried), "{run:?}");
    assert!(run.stderr.contains(message), "{run:?}");
}

#[tokio::test]
async fn an_unknown_profile_and_an_upgrade_without_a_previous_program_are_refused() {
    let unknown = Run::of(muster(&["chaos", "run", "--profile", "nothing"]), "").await;
    assert_eq!(unknown.code, 64, "{unknown:?}");
    assert!(unknown.stderr.contains("leader-kill"), "{unknown:?}");
    let upgrade = Run::of(muster(&["chaos", "run", "--profile", "upgrade"]), "").await;
    assert_eq!(upgrade.code, 64, "{upgrade:?}");
    assert!(upgrade.stderr.contains("--previous"), "{upgrade:?}");
}

#[tokio::test]
async fn an_unsupported_output_format_is_refused_and_help_lists_exit_codes() {
    let run = Run::of(muster(&["chaos", "sim", "-o", "json"]), "").await;
    assert_eq!(run.code, 64, "{run:?}");
    assert!(run.stderr.contains("-o supports only table"), "{run:?}");
    for (command, texts) in [
        ("sim", ["Exit codes: 0", "64 usage"]),
        ("run", ["invalid", "namespaces"]),
    ] {
        let run = Run::of(muster(&["chaos", command, "--help"]), "").await;
        assert!(texts.iter().all(|it| run.stdout.contains(it)), "{run:?}");
    }
}

#[tokio::test]
async fn an_argument_that_is_neither_a_seed_nor_a_world_file_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let odd = folder.path().join("odd.json");
    fs::write(&odd, "{}").unwrap();
    for command in ["shrink", "replay"] {
        for world in ["abc", "nosuch.json", "-1x"] {
            let run = Run::of(muster(&["chaos", command, "--", world]), "").await;
            assert_eq!(run.code, 64, "{run:?}");
            let message = format!("{world} is neither a seed nor a file");
            assert!(run.stderr.contains(&message), "{run:?}");
        }
        let run = Run::of(muster(&["chaos", command, odd.to_str().unwrap()]), "").await;
        assert_eq!(run.code, 64, "{run:?}");
        assert!(run.stderr.contains("cannot read the world in"), "{run:?}");
    }
}
