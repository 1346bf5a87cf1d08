//! Consistency of alerts, runbook, examples and the metrics page; no cluster is needed for that.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::Command;

use muster_tests::{has_prometheus, skip};

use crate::operations::observability::{ROOT, dashboards};

/// Location of the runbook in alerts: where the Debian package installs it.
const RUNBOOK: &str = "file:///usr/share/doc/muster/runbook.md#";
/// Crates with published metrics.
const CRATES: [&str; 7] = [
    "scheduler",
    "raft-store",
    "worker/agent",
    "worker/monitor",
    "lib/etcd",
    "lib/tls",
    "lib/service",
];

/// Second component of the names of their series, after `muster_`.
const KINDS: [&str; 7] = [
    "scheduler",
    "raft",
    "worker",
    "etcd",
    "tls",
    "tracing",
    "build",
];

fn read(path: &str) -> String {
    fs::read_to_string(Path::new(ROOT).join(path)).unwrap()
}

/// The rest of the lines that begin with `prefix`.
fn named(text: &str, prefix: &str) -> Vec<String> {
    let lines = text
        .lines()
        .filter_map(|line| line.trim().strip_prefix(prefix));
    lines.map(str::to_owned).collect()
}

fn promtool(args: [&str; 3]) {
    let output = Command::new("promtool")
        .args(args)
        .current_dir(Path::new(ROOT).join("deploy/prometheus"))
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "promtool {args:?}: {}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
}

#[test]
fn rules_and_examples_are_in_order_and_every_alert_has_a_section_in_the_runbook() {
    let text = read("deploy/prometheus/alerts.yaml");
    let alerts = named(&text, "- alert: ");
    let links = named(&text, &format!("runbook_url: {RUNBOOK}"));
    let sections = named(&read("docs/runbook.md"), "## ");
    assert_eq!(
        sections, alerts,
        "one section for each alert, in the same order"
    );
    assert_eq!(
        links,
        alerts
            .iter()
            .map(|name| name.to_lowercase())
            .collect::<Vec<_>>()
    );
    let (_, ids) = dashboards();
    assert!(ids.len() >= 6, "{ids:?}");
    if !has_prometheus() {
        return skip("no promtool here (the Debian package prometheus)");
    }
    promtool(["check", "rules", "alerts.yaml"]);
    promtool(["check", "config", "prometheus.yaml"]);
}

#[test]
fn every_alert_fires_in_a_case_of_its_own() {
    let alerts = named(&read("deploy/prometheus/alerts.yaml"), "- alert: ");
    let cases = read("deploy/prometheus/alerts.test.yaml");
    assert_eq!(named(&cases, "- alertname: "), alerts);
    let fired = cases.matches("- exp_labels: ").count();
    assert_eq!(fired, alerts.len(), "in every case an alert fires");
    if !has_prometheus() {
        return skip("no promtool here (the Debian package prometheus)");
    }
    promtool(["test", "rules", "alerts.test.yaml"]);
}

/// Names of series in the sources below a folder, with the file of each.
fn collect(folder: &Path, names: &mut BTreeMap<String, String>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            collect(&path, names);
        } else if path.extension().is_some_and(|it| it == "rs") {
            let text = fs::read_to_string(&path).unwrap();
            // Text between two quotes, and other text, which is not a name.
            let quoted = text.split('"').filter(|part| is_name(part));
            names.extend(quoted.map(|name| (name.to_owned(), path.display().to_string())));
        }
    }
}

fn is_name(text: &str) -> bool {
    let is_plain = text
        .chars()
        .all(|it| it.is_ascii_lowercase() || it.is_ascii_digit() || it == '_');
    let rest = text.strip_prefix("muster_");
    let split = rest.and_then(|rest| rest.split_once('_'));
    is_plain && split.is_some_and(|(kind, what)| KINDS.contains(&kind) && !what.is_empty())
}

/// Names of series on a page. In a line, `_name` is short for a name with the beginning of the previous
/// one.
fn written(page: &str) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for line in page.lines() {
        let mut prefix = String::new();
        for code in line.split('`').skip(1).step_by(2) {
            let name = code.split('{').next().unwrap_or_default();
            if let Some(rest) = name.strip_prefix("muster_") {
                prefix = format!("muster_{}", rest.split('_').next().unwrap_or_default());
                names.insert(name.to_owned());
            } else if name.starts_with('_') {
                names.insert(format!("{prefix}{name}"));
            }
        }
    }
    names
}

#[test]
fn every_series_is_documented_on_the_monitoring_page() {
    let mut exported = BTreeMap::new();
    for name in CRATES {
        collect(&Path::new(ROOT).join(name).join("src"), &mut exported);
    }
    for known in ["muster_raft_term", "muster_worker_session_open"] {
        assert!(exported.contains_key(known), "{known}: {exported:?}");
    }
    let written = written(&read("docs/monitoring.md"));
    exported.retain(|name, _| !written.contains(name));
    assert!(
        exported.is_empty(),
        "these are documented nowhere: {exported:#?}"
    );
}
