//! Dashboards, alerts and metrics, evaluated by a real Prometheus that reads a real cluster under load and over a failover.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use muster_client::Client;
use muster_proto::v1;
use muster_tests::{
    Cluster, EtcdServer, Member, Prometheus, Shape, eventually, has_etcd, has_prometheus, page,
    shell, skip, submit, with_gpus,
};
use serde_json::Value;
use tokio::time::{Instant, sleep};

/// The folder of the whole repository.
const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
/// What Grafana would put for its variables. The interval covers the load and the failover.
const VARIABLES: [(&str, &str); 2] = [("$__rate_interval", "2m"), ("$queue", ".*")];
/// How long queries may take to become non-empty.
const PATIENCE: Duration = Duration::from_secs(60);

/// Series that this load does not bring about, and why.
const ABSENT: [(&str, &str); 5] = [
    (
        "muster_scheduler_blocks_total",
        "no rule takes out a simulated GPU that nothing happens to",
    ),
    (
        "muster_scheduler_gpu_blocked",
        "nobody blocks a GPU, and a series of one ends with its block",
    ),
    (
        "muster_worker_xid_events_total",
        "simulated GPUs without a timeline have no XIDs",
    ),
    (
        "DCGM_FI_DEV_GPU_TEMP",
        "simulated GPUs without a timeline have no temperature",
    ),
    (
        "muster_raft_snapshot_seconds",
        "there are too few entries for a snapshot",
    ),
];

/// What the cluster uses an etcd for, where one is installed; else its series are absent too.
const OF_ETCD: (&str, &str) = (
    "muster_etcd_",
    "there is no etcd here (Debian: etcd-server)",
);
/// etcd's own default.
const ETCD_BYTES: u64 = 2 << 30;

/// A query of a dashboard's panel.
#[derive(Clone, Debug)]
struct Query {
    place: String,
    expression: String,
}

fn prepared(expression: &str) -> String {
    let mut text = expression.to_owned();
    for (name, value) in VARIABLES {
        text = text.replace(name, value);
    }
    assert!(
        !text.contains('$'),
        "a variable that nobody sets: {expression}"
    );
    text
}

/// The queries of all panels, and the ids of the dashboards.
fn dashboards() -> (Vec<Query>, BTreeSet<String>) {
    let (mut queries, mut ids) = (Vec::new(), BTreeSet::new());
    for entry in fs::read_dir(Path::new(ROOT).join("deploy/grafana/dashboards")).unwrap() {
        let text = fs::read_to_string(entry.unwrap().path()).unwrap();
        let dashboard: Value = serde_json::from_str(&text).unwrap();
        let title = dashboard["title"].as_str().unwrap();
        assert!(
            ids.insert(dashboard["uid"].as_str().unwrap().to_owned()),
            "{title}"
        );
        for panel in dashboard["panels"].as_array().unwrap() {
            let place = format!("{title}: {}", panel["title"].as_str().unwrap());
            for target in panel["targets"].as_array().unwrap() {
                let expression = prepared(target["expr"].as_str().unwrap());
                queries.push(Query {
                    place: place.clone(),
                    expression,
                });
            }
        }
    }
    (queries, ids)
}

/// Alerts with their expressions, as Prometheus itself has read them; all were evaluated well.
async fn alerts(prometheus: &Prometheus) -> BTreeMap<String, String> {
    let rules = eventually("the rules are evaluated", async || {
        let data = prometheus.ask("rules").await.unwrap();
        let rules = data["groups"][0]["rules"].as_array()?.clone();
        rules
            .iter()
            .all(|rule| rule["health"] != "unknown")
            .then_some(rules)
    })
    .await;
    let alert = |rule: &Value| {
        assert_eq!(rule["health"], "ok", "{rule}");
        let text = |name: &str| rule[name].as_str().unwrap().to_owned();
        (text("name"), text("query"))
    };
    rules.iter().map(alert).collect()
}

/// What gives nothing, and why.
fn absent(has_etcd: bool) -> Vec<(&'static str, &'static str)> {
    let of_etcd = (!has_etcd).then_some(OF_ETCD);
    ABSENT.into_iter().chain(of_etcd).collect()
}

fn is_absent(expression: &str, absent: &[(&str, &str)]) -> bool {
    absent.iter().any(|(name, _)| expression.contains(name))
}

/// Names of our series in an expression.
fn series_of(expression: &str) -> BTreeSet<String> {
    let words = expression.split(|it: char| !it.is_ascii_alphanumeric() && it != '_');
    words
        .filter(|word| word.starts_with("muster_"))
        .map(str::to_owned)
        .collect()
}

/// Work of every kind: tasks that end well and badly, a gang, jobs that hold GPUs, jobs that wait for them, and one that is refused.
async fn load(client: &Client) {
    let mut gang = with_gpus(shell("sleep 1"), 1);
    gang.groups[0].count = Some(2);
    gang.gang = true;
    submit(client, gang).await;
    for _ in 0..3 {
        submit(client, with_gpus(shell("sleep 2"), 1)).await;
        submit(client, with_gpus(shell("exit 3"), 1)).await;
    }
    for _ in 0..4 {
        submit(client, with_gpus(shell("sleep 600"), 6)).await;
    }
    let refused = client.submit_job(v1::JobSpec::default()).await;
    assert!(refused.is_err(), "a job without tasks");
}

/// Something is found that has no consequence, as in a drill.
async fn find(cluster: &Cluster) {
    let words = ["chaos", "inject", "reading", "node01", "nvme", "timeouts=1"];
    let injected = cluster.muster(&words).await;
    assert_eq!(injected.code, 0, "{}", injected.stderr);
}

/// Keeps short jobs coming.
async fn trickle(client: Client) {
    loop {
        // Without a leader for a moment, it is tried again.
        drop(client.submit_job(shell("exit 0")).await);
        sleep(Duration::from_millis(200)).await;
    }
}

fn metrics_of(members: &[Member]) -> Vec<String> {
    let address = |member: &Member| {
        member.settings()["metrics_listen"]
            .as_str()
            .unwrap()
            .to_owned()
    };
    members.iter().map(address).collect()
}

/// Kills the leader, sees that it is missed, and starts it again.
async fn fail_over(cluster: &mut Cluster, client: &Client, prometheus: &Prometheus, down: &str) {
    let leader = cluster.leader(client).await;
    assert_eq!(
        prometheus.query(down).await,
        Ok(Vec::new()),
        "all replicas are up"
    );
    cluster.replicas[leader].kill();
    eventually(
        "the alert about the dead replica has something to tell",
        async || {
            let found = prometheus.query(down).await.unwrap();
            (found.len() == 1).then_some(())
        },
    )
    .await;
    cluster.replicas[leader].start();
    eventually("the replica is back", async || {
        prometheus
            .query(down)
            .await
            .unwrap()
            .is_empty()
            .then_some(())
    })
    .await;
}

/// Lets etcd be dead until somebody complains.
async fn interrupt(etcd: &mut EtcdServer, prometheus: &Prometheus) {
    etcd.kill();
    eventually("somebody misses etcd", async || {
        let found = prometheus.query("muster_etcd_errors_total").await.unwrap();
        (!found.is_empty()).then_some(())
    })
    .await;
    etcd.start_again().await;
}

/// Evaluates queries until all that should give something do. Gives those that do not.
async fn empty_ones(
    prometheus: &Prometheus,
    queries: &[Query],
    absent: &[(&str, &str)],
) -> Vec<Query> {
    let deadline = Instant::now() + PATIENCE;
    let mut left = queries.to_vec();
    loop {
        let mut empty = Vec::new();
        for query in left {
            match prometheus.query(&query.expression).await {
                Err(error) => panic!("{query:?}: {error}"),
                Ok(series) if series.is_empty() => empty.push(query),
                Ok(_) => {}
            }
        }
        left = empty;
        let are_expected = left
            .iter()
            .all(|query| is_absent(&query.expression, absent));
        if are_expected || Instant::now() > deadline {
            return left;
        }
        sleep(Duration::from_secs(1)).await;
    }
}

#[tokio::test]
async fn every_panel_and_alert_reads_a_cluster_under_load_and_a_failover() {
    if !has_prometheus() {
        return skip("no prometheus and promtool here (the Debian package prometheus)");
    }
    let rules = Path::new(ROOT).join("deploy/prometheus/alerts.yaml");
    let mut etcd = None;
    if has_etcd() {
        etcd = Some(EtcdServer::start(ETCD_BYTES).await);
    }
    let absent = absent(etcd.is_some());
    let endpoint = etcd.as_ref().map(|etcd| ("MUSTER_ETCD", &*etcd.endpoint));
    let variables: Vec<(&str, &str)> = endpoint.into_iter().collect();
    let mut cluster = Cluster::start_with(Shape::default(), &variables).await;
    let client = cluster.client().await;
    let (replicas, workers) = (metrics_of(&cluster.replicas), metrics_of(&cluster.workers));
    let jobs = [
        ("muster-scheduler", replicas.clone()),
        ("muster-worker", workers.clone()),
    ];
    let prometheus = Prometheus::start(&jobs, &rules).await;
    load(&client).await;
    let trickling = tokio::spawn(trickle(cluster.client().await));
    let alerts = alerts(&prometheus).await;
    fail_over(
        &mut cluster,
        &client,
        &prometheus,
        &alerts["MusterReplicaDown"],
    )
    .await;

    if let Some(etcd) = &mut etcd {
        interrupt(etcd, &prometheus).await;
    }
    // Once more: what a new leader counts begins at nothing.
    load(&client).await;
    find(&cluster).await;
    let (mut queries, _) = dashboards();
    for (name, expression) in &alerts {
        // An alert tells nothing of a cluster that is well, but what it looks at must be there.
        let series = series_of(expression).into_iter();
        queries.extend(series.map(|name_of| Query {
            place: name.clone(),
            expression: name_of,
        }));
        assert!(prometheus.query(expression).await.is_ok(), "{name}");
    }
    let empty = empty_ones(&prometheus, &queries, &absent).await;
    trickling.abort();
    let mut unexpected = empty.clone();
    unexpected.retain(|query| !is_absent(&query.expression, &absent));
    let unexpected: Vec<String> = { unexpected.iter() }
        .map(|query| format!("{}: {}", query.place, query.expression))
        .collect();
    assert!(unexpected.is_empty(), "these give nothing: {unexpected:#?}");
    for (name, why) in absent {
        let is_used = empty.iter().any(|query| query.expression.contains(name));
        assert!(
            is_used,
            "`{name}` is there or nobody asks for it, so this is no exception: {why}"
        );
    }
    for target in replicas.iter().chain(&workers) {
        check_metrics(&page(target, "/metrics").await.unwrap());
    }
}

/// Names, types and help texts by Prometheus's own linter. The names of NVIDIA's exporter are NVIDIA's.
fn check_metrics(page: &str) {
    let ours = page.lines().filter(|line| !line.contains("DCGM_FI_"));
    let ours: String = ours.flat_map(|line| [line, "\n"]).collect();
    let mut promtool = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    promtool
        .stdin
        .take()
        .unwrap()
        .write_all(ours.as_bytes())
        .unwrap();
    let output = promtool.wait_with_output().unwrap();
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success() && told.is_empty(),
        "promtool check metrics: {told}"
    );
}

#[test]
fn rules_and_examples_are_in_order_and_every_alert_has_a_section_in_the_runbook() {
    let rules: PathBuf = Path::new(ROOT).join("deploy/prometheus/alerts.yaml");
    let text = fs::read_to_string(&rules).unwrap();
    let named = |prefix: &str| -> Vec<String> {
        let lines = text
            .lines()
            .filter_map(|line| line.trim().strip_prefix(prefix));
        lines.map(str::to_owned).collect()
    };
    let (alerts, links) = (named("- alert: "), named("runbook_url: docs/runbook.md#"));
    let runbook = fs::read_to_string(Path::new(ROOT).join("docs/runbook.md")).unwrap();
    let sections: Vec<String> = { runbook.lines() }
        .filter_map(|line| line.strip_prefix("## "))
        .map(str::to_owned)
        .collect();
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
    let folder = rules.parent().unwrap();
    for words in [
        ["check", "rules", "alerts.yaml"],
        ["check", "config", "prometheus.yaml"],
    ] {
        let output = Command::new("promtool")
            .args(words)
            .current_dir(folder)
            .output()
            .unwrap();
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
}
