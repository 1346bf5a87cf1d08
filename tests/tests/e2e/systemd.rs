//! The units of `deploy/systemd`: systemd takes them as they are, and they start what the program knows.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use muster_tests::{muster_binary, skip};

const PROGRAM: &str = "/usr/bin/muster";

fn units() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/systemd");
    let mut units: Vec<PathBuf> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    units.sort();
    assert_eq!(units.len(), 2, "{units:?}");
    units
}

/// The value of a setting of a unit.
fn setting<'a>(unit: &'a str, name: &str) -> Option<&'a str> {
    let mut lines = unit.lines();
    lines.find_map(|line| line.strip_prefix(name)?.strip_prefix('='))
}

#[test]
fn systemd_takes_the_units_without_a_word() {
    if Command::new("systemd-analyze")
        .arg("--version")
        .output()
        .is_err()
    {
        skip("systemd-analyze is not installed (Debian: systemd)");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    for unit in units() {
        // What is verified must be there: the program where it was built, and its user.
        let text = fs::read_to_string(&unit).unwrap();
        let text = text
            .replace(PROGRAM, muster_binary().to_str().unwrap())
            .replace("=muster\n", "=root\n");
        let copy = folder.path().join(unit.file_name().unwrap());
        fs::write(&copy, text).unwrap();
        let verified = Command::new("systemd-analyze")
            .arg("verify")
            .arg(&copy)
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&verified.stderr);
        assert!(verified.status.success(), "{}: {said}", unit.display());
        assert_eq!(said, "", "{}", unit.display());
    }
}

#[test]
fn units_start_what_the_program_knows() {
    for unit in units() {
        let text = fs::read_to_string(&unit).unwrap();
        let start = setting(&text, "ExecStart").unwrap();
        let words = start.strip_prefix(PROGRAM).unwrap().split_whitespace();
        let words = words.map(|word| word.replace("%S", "/nowhere").replace("/etc", "/nowhere"));
        let ran = Command::new(muster_binary()).args(words).output().unwrap();
        let said = String::from_utf8_lossy(&ran.stderr);
        // It got as far as the settings, which are not there.
        assert!(said.contains("/nowhere/muster/"), "{said}");
        assert!(!said.contains("Usage"), "{said}");
    }
}

/// An agent is restarted without its tasks: with systemd's default, `control-group`, each upgrade would kill them all.
#[test]
fn stopping_the_agent_stops_the_agent_alone() {
    let worker = units()
        .into_iter()
        .find(|unit| unit.ends_with("muster-worker.service"));
    let text = fs::read_to_string(worker.unwrap()).unwrap();
    assert_eq!(setting(&text, "KillMode"), Some("process"));
    assert_eq!(setting(&text, "Delegate"), Some("yes"));
    assert_eq!(setting(&text, "Restart"), Some("always"));
}

#[test]
fn enabled_units_start_on_boot() {
    for unit in units() {
        let text = fs::read_to_string(&unit).unwrap();
        assert_eq!(setting(&text, "WantedBy"), Some("multi-user.target"));
    }
}
