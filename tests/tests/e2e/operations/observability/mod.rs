//! Dashboards, alerts and metrics, evaluated by a real Prometheus that scrapes a real cluster under load
//! and during a failover.

mod selectors;
mod written;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use muster_client::{Client, ClientConfig};
use muster_proto::v1;
use muster_tests::{
    Cluster, EtcdServer, Member, Prometheus, SecuredCluster, Shape, eventually, has_etcd,
    has_prometheus, page, shell, skip, submit, with_gpus,
};
use serde_json::Value;
use tokio::time::{Instant, sleep};

use selectors::selectors_of;

/// Root folder of the repository.
const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
/// Values of Grafana's variables. The interval covers the load and the failover.
const VARIABLES: [(&str, &str); 3] = [
    ("$__rate_interval", "2m"),
    ("$queue", ".*"),
    ("$host", ".*"),
];
/// Maximum time for queries to become non-empty.
const TIMEOUT: Duration = Duration::from_secs(60);
/// Deadline of a call that is made without a leader: longer than a replica looks for a leader, with any
/// timings, before it reports that there is none. A caller that gives up earlier gets no answer.
const LEADERLESS_CALL: Duration = Duration::from_secs(12);
/// Calls of users that were answered with the lack of a leader.
const LEADERLESS_ANSWERS: &str =
    r#"muster_scheduler_requests_total{method="GetStatus",code="Unavailable"} > 0"#;

/// Series about etcd, which are absent if none is installed.
const OF_ETCD: (&str, &str) = (
    "muster_etcd_",
    "there is no etcd here (Debian: etcd-server)",
);
/// etcd's own default.
const ETCD_BYTES: u64 = 2 << 30;

/// A query of a dashboard's panel or annotation, or what an alert selects.
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
    assert!(!text.contains('$'), "an unset variable: {expression}");
    text
}

/// The queries of all panels and annotations, and the ids of the dashboards.
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
        for annotation in dashboard["annotations"]["list"].as_array().unwrap() {
            queries.push(Query {
                place: format!("{title}: {}", annotation["name"].as_str().unwrap()),
                expression: prepared(annotation["expr"].as_str().unwrap()),
            });
        }
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

/// Alerts with their expressions, as read by Prometheus itself; all must have been evaluated without an
/// error.
async fn alerts(prometheus: &Prometheus) -> BTreeMap<String, String> {
    let rules = eventually("the rules are evaluated", async || {
        let data = prometheus.api("rules").await.unwrap();
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

fn is_absent(expression: &str, absent: Option<(&str, &str)>) -> bool {
    absent.is_some_and(|(name, _)| expression.contains(name))
}

/// Work of every kind: tasks that succeed and fail, a gang, jobs that hold GPUs, jobs that wait for them,
/// and one that is refused.
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

/// Adds a host whose GPUs report a temperature.
fn add_warm_host(cluster: &mut Cluster) {
    let gpus = 0..Shape::default().gpus;
    let timeline = gpus.fold(String::new(), |mut lines, gpu| {
        writeln!(lines, "0,{gpu},metric:DCGM_FI_DEV_GPU_TEMP,61").unwrap();
        lines
    });
    let timeline = cluster.write("timeline.csv", &timeline);
    let address = cluster.reserve_address();
    let warm = cluster.add_worker("node03", |settings| {
        settings["gpus"]["simulated"]["timeline"] = timeline.to_str().unwrap().into();
        settings["metrics_listen"] = address.as_str().into();
    });
    cluster.workers[warm].start();
}

/// Causes what the panels are to show: a snapshot, a leader change, a finding without a consequence, a GPU
/// that fails under a task, and one that an operator blocks.
async fn drill(cluster: &Cluster, client: &Client) {
    // A new leader does not know its workers at once.
    let run = async |args: &[&str]| {
        eventually(&format!("{args:?} is done"), async || {
            (cluster.muster(args).await.code == 0).then_some(())
        })
        .await;
    };
    run(&["cluster", "transfer-leader"]).await;
    run(&["cluster", "snapshot"]).await;
    run(&["chaos", "inject", "reading", "node01", "nvme", "timeouts=1"]).await;
    let held = eventually("a GPU is held", async || {
        let all = v1::ListGpusRequest::default();
        let gpus = client.list_gpus(all).await.ok()?.1;
        gpus.into_iter().find(|gpu| gpu.holder.is_some())
    })
    .await;
    run(&["chaos", "inject", "signal", &held.uuid, "xid-48"]).await;
    run(&["block-gpu", "node02:7", "--reason", "a drill"]).await;
}

/// Keeps submitting short jobs.
async fn submit_continuously(client: Client) {
    loop {
        // Without a leader for a moment, it is repeated.
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

/// Kills the leader, checks that the alert fires, and starts it again.
async fn fail_over(cluster: &mut Cluster, client: &Client, prometheus: &Prometheus, down: &str) {
    let leader = cluster.leader(client).await;
    assert_eq!(
        prometheus.query(down).await,
        Ok(Vec::new()),
        "all replicas are up"
    );
    cluster.replicas[leader].kill();
    eventually("the alert about the dead replica fires", async || {
        let found = prometheus.query(down).await.unwrap();
        (found.len() == 1).then_some(())
    })
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

/// Kills two of three replicas, checks that there is no leader and the answer of a call, and starts them
/// again.
async fn lose_majority(cluster: &mut Cluster, prometheus: &Prometheus, leaderless: &str) {
    for replica in &mut cluster.replicas[1..] {
        replica.kill();
    }
    eventually("the alert about the missing leader fires", async || {
        let found = prometheus.query(leaderless).await.unwrap();
        (!found.is_empty()).then_some(())
    })
    .await;
    let impatient = Client::connect(ClientConfig {
        deadline: LEADERLESS_CALL,
        per_try_deadline: LEADERLESS_CALL,
        discover: false,
        ..ClientConfig::new([cluster.addresses[0].clone()])
    });
    let impatient = impatient.await.unwrap();
    eventually("answers of such calls are counted", async || {
        let result = impatient.status(v1::Consistency::Linearizable).await;
        assert!(result.is_err(), "{result:?}");
        let counted = prometheus.query(LEADERLESS_ANSWERS).await.unwrap();
        (!counted.is_empty()).then_some(())
    })
    .await;
    for replica in &mut cluster.replicas[1..] {
        replica.start();
    }
}

/// Stops etcd until a replica reports it.
async fn interrupt(etcd: &mut EtcdServer, prometheus: &Prometheus) {
    etcd.kill();
    eventually("a replica reports that etcd is missing", async || {
        let found = prometheus.query("muster_etcd_errors_total").await.unwrap();
        (!found.is_empty()).then_some(())
    })
    .await;
    etcd.start_again().await;
}

/// Evaluates queries until all that should give a result do. Returns those that do not.
async fn empty_ones(
    prometheus: &Prometheus,
    queries: &[Query],
    absent: Option<(&str, &str)>,
) -> Vec<Query> {
    let deadline = Instant::now() + TIMEOUT;
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
    let absent = etcd.is_none().then_some(OF_ETCD);
    let backups = tempfile::tempdir().unwrap();
    let mut variables = vec![(
        "MUSTER_SCHEDULER_BACKUP_DIR",
        backups.path().to_str().unwrap(),
    )];
    variables.extend(etcd.as_ref().map(|etcd| ("MUSTER_ETCD", &*etcd.endpoint)));
    let mut cluster = Cluster::start_with(Shape::default(), &variables).await;
    add_warm_host(&mut cluster);
    // Certificates and refusals: the cluster under load has none.
    let secured = SecuredCluster::start().await;
    let stranger = secured.client_of(None, None).await;
    let refused = stranger.status(v1::Consistency::Stale).await;
    assert!(refused.is_err(), "{refused:?}");
    let client = cluster.client().await;
    let jobs = [
        ("muster-scheduler", metrics_of(&cluster.replicas)),
        ("muster-worker", metrics_of(&cluster.workers)),
        ("secured", secured.metrics.clone()),
    ];
    let prometheus = Prometheus::start(&jobs, &rules).await;
    load(&client).await;
    let submitting = tokio::spawn(submit_continuously(cluster.client().await));
    let alerts = alerts(&prometheus).await;
    fail_over(
        &mut cluster,
        &client,
        &prometheus,
        &alerts["MusterReplicaDown"],
    )
    .await;
    lose_majority(&mut cluster, &prometheus, &alerts["MusterNoLeader"]).await;
    if let Some(etcd) = &mut etcd {
        interrupt(etcd, &prometheus).await;
    }
    // Once more: counters of a new leader start at zero.
    load(&client).await;
    drill(&cluster, &client).await;
    check_queries(&prometheus, &alerts, absent).await;
    submitting.abort();
    for target in jobs.iter().flat_map(|(_, targets)| targets) {
        check_metrics(&page(target, "/metrics").await.unwrap());
    }
}

/// Every panel and annotation gives a result, every alert can be evaluated, and the series that it selects
/// exist.
async fn check_queries(
    prometheus: &Prometheus,
    alerts: &BTreeMap<String, String>,
    absent: Option<(&str, &str)>,
) {
    let (mut queries, _) = dashboards();
    for (name, expression) in alerts {
        // An alert gives no result on a healthy cluster, but all its series must exist, with the labels
        // that it selects.
        let selected = selectors_of(expression);
        assert!(!selected.is_empty(), "{name}: {expression}");
        queries.extend(selected.into_iter().map(|expression| Query {
            place: name.clone(),
            expression,
        }));
        assert!(prometheus.query(expression).await.is_ok(), "{name}");
    }
    let empty = empty_ones(prometheus, &queries, absent).await;
    let unexpected: Vec<String> = empty
        .iter()
        .filter(|query| !is_absent(&query.expression, absent))
        .map(|query| format!("{}: {}", query.place, query.expression))
        .collect();
    assert!(unexpected.is_empty(), "these give nothing: {unexpected:#?}");
    if let Some((name, why)) = absent {
        let is_used = empty.iter().any(|query| query.expression.contains(name));
        assert!(
            is_used,
            "`{name}` exists or is not queried, so it is no exception: {why}"
        );
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
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success() && stderr.is_empty(),
        "promtool check metrics: {stderr}"
    );
}
