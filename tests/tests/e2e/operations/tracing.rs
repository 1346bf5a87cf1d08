//! Spans of a job's life cycle, as a collector receives them from real processes.

use std::collections::{BTreeMap, BTreeSet};

use muster_client::Client;
use muster_model::ids::JobId;
use muster_proto::v1;
use muster_tests::{
    Cluster, Collected, Collector, Shape, eventually, only_attempt, page, shell, submit, with_gpus,
};
use muster_tracing::{TraceContext, TraceId};

/// A span of a user's own program, as W3C's Trace Context writes it.
const CALLER: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
/// The variable that configures the collector in every process of the cluster.
const ENDPOINT: &str = "MUSTER_OTLP_ENDPOINT";

/// Spans of a complete trace of a job with one task; `apply` occurs more than once.
const WHOLE: [&str; 12] = [
    "submit",
    "SubmitJob",
    "forward",
    "propose",
    "apply",
    "plan",
    "wait",
    "attempt",
    "order",
    "start",
    "journal",
    "supervisor",
];

async fn trace_of(client: &Client, job: JobId) -> TraceId {
    let status = client.status(v1::Consistency::Stale).await.unwrap();
    TraceId::of_job(&status.cluster_id, job.get())
}

fn names(spans: &[Collected]) -> BTreeSet<&str> {
    spans.iter().map(|it| it.span.name.as_str()).collect()
}

/// Every span but the root has a parent in the trace, and ends no sooner than it begins.
fn check_tree(spans: &[Collected]) {
    let by_id: BTreeMap<&[u8], &Collected> = spans
        .iter()
        .map(|it| (it.span.span_id.as_slice(), it))
        .collect();
    assert_eq!(by_id.len(), spans.len(), "every id occurs once: {spans:#?}");
    for it in spans {
        let span = &it.span;
        assert!(
            span.start_time_unix_nano <= span.end_time_unix_nano && span.status.is_none(),
            "{it:#?}"
        );
        let parent = by_id.get(span.parent_span_id.as_slice());
        let parent = parent.map(|parent| parent.span.name.as_str());
        let wanted = match span.name.as_str() {
            "submit" => None,
            "SubmitJob" => Some("submit"),
            "order" | "start" => Some("attempt"),
            "journal" | "supervisor" => Some("start"),
            "apply" => parent.filter(|name| ["SubmitJob", "attempt"].contains(name)),
            _ => Some("SubmitJob"),
        };
        assert_eq!(parent, wanted, "{it:#?}");
        assert_eq!(parent.is_none(), span.name == "submit", "{it:#?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_has_one_trace_from_its_submission_to_its_start_in_all_processes() {
    let collector = Collector::start().await;
    let variable = [(ENDPOINT, collector.endpoint.as_str())];
    let cluster = Cluster::start_with(Shape::default(), &variable).await;
    let client = cluster.client().await;
    let leader = cluster.leader(&client).await;
    let follower = (leader + 1) % cluster.addresses.len();
    let mut command = cluster.command(&["job", "submit", "-o", "name", "--", "sleep", "1000"]);
    command
        .env("MUSTER_ADDR", &cluster.addresses[follower])
        .env("TRACEPARENT", CALLER)
        .envs(variable);
    let submitted = muster_tests::Run::of(command, "").await.ok();
    let job = JobId(submitted.trim().parse().unwrap());
    let trace = trace_of(&client, job).await;
    let spans = eventually("the whole trace is exported", async || {
        let spans = collector.trace(trace);
        let applies = spans.iter().filter(|it| it.span.name == "apply").count();
        // Three replicas apply the submission and the placement.
        let is_whole = applies == 6 && names(&spans) == WHOLE.into_iter().collect();
        is_whole.then_some(spans)
    })
    .await;
    check_tree(&spans);
    let services: BTreeSet<&str> = spans.iter().map(|it| it.service.as_str()).collect();
    assert_eq!(
        services,
        BTreeSet::from(["muster-cli", "muster-scheduler", "muster-worker"])
    );
    let from = |name: &str| {
        let found = spans.iter().find(|it| it.span.name == name).unwrap();
        (found.service.as_str(), found.instance.clone())
    };
    let replica = |index: usize| ("muster-scheduler", (index + 1).to_string());
    for (name, process) in [
        ("SubmitJob", replica(follower)),
        ("forward", replica(follower)),
        ("propose", replica(leader)),
        ("plan", replica(leader)),
        ("order", replica(leader)),
    ] {
        assert_eq!(from(name), process, "{name}");
    }
    let host = only_attempt(&client, job).await;
    assert!(host.running_at_ms.is_some());
    // The user's own span is referenced.
    let caller = TraceContext::parse(CALLER).unwrap();
    let submit = spans.iter().find(|it| it.span.name == "submit").unwrap();
    let links: Vec<Vec<u8>> = submit
        .span
        .links
        .iter()
        .map(|link| link.span_id.clone())
        .collect();
    assert_eq!(links, [caller.span.bytes()]);
    // Exported spans are counted, and none was lost.
    let metrics = cluster.replicas[leader].settings()["metrics_listen"].clone();
    let text = page(metrics.as_str().unwrap(), "/metrics").await.unwrap();
    let value = |name: &str| {
        let line = text.lines().find(|line| line.starts_with(name)).unwrap();
        line.rsplit(' ').next().unwrap().parse::<f64>().unwrap()
    };
    assert!(value("muster_tracing_spans_exported_total") > 0.0);
    for reason in ["queue_full", "unreachable", "rejected"] {
        let series = format!("muster_tracing_spans_dropped_total{{reason=\"{reason}\"}}");
        assert!(value(&series).abs() < f64::EPSILON, "{series}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_trace_continues_under_the_next_leader() {
    let collector = Collector::start().await;
    let variable = [(ENDPOINT, collector.endpoint.as_str())];
    let shape = Shape {
        workers: 1,
        ..Shape::default()
    };
    let mut cluster = Cluster::start_with(shape, &variable).await;
    let client = cluster.client().await;
    let first = submit(&client, with_gpus(shell("sleep 1000"), 8)).await;
    only_attempt(&client, first).await;
    let waiting = submit(&client, with_gpus(shell("sleep 1000"), 8)).await;
    let trace = trace_of(&client, waiting).await;
    eventually("its submission is exported", async || {
        let spans = collector.trace(trace);
        names(&spans)
            .is_superset(&BTreeSet::from(["SubmitJob", "propose"]))
            .then_some(())
    })
    .await;
    let leader = cluster.leader(&client).await;
    cluster.replicas[leader].kill();
    eventually("the first job is cancelled", async || {
        client.cancel_job(first, "ada", "").await.ok()
    })
    .await;
    only_attempt(&client, waiting).await;
    let spans = eventually("its start is exported", async || {
        let spans = collector.trace(trace);
        names(&spans)
            .is_superset(&BTreeSet::from(["attempt", "start", "wait"]))
            .then_some(spans)
    })
    .await;
    let from = |name: &str| {
        let found = spans.iter().find(|it| it.span.name == name).unwrap();
        found.instance.clone()
    };
    assert_eq!(from("propose"), (leader + 1).to_string());
    assert_ne!(from("attempt"), (leader + 1).to_string());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_collector_stops_nothing_and_lost_spans_are_counted() {
    let unused = {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        format!("http://{}", listener.local_addr().unwrap())
    };
    let shape = Shape {
        replicas: 1,
        workers: 1,
        gpus: 1,
    };
    let cluster = Cluster::start_with(shape, &[(ENDPOINT, &unused)]).await;
    let client = cluster.client().await;
    let job = submit(&client, shell("sleep 1000")).await;
    only_attempt(&client, job).await;
    let metrics = cluster.replicas[0].settings()["metrics_listen"].clone();
    eventually("lost spans are counted", async || {
        let text = page(metrics.as_str().unwrap(), "/metrics").await.unwrap();
        let series = "muster_tracing_spans_dropped_total{reason=\"unreachable\"} ";
        let line = text.lines().find(|line| line.starts_with(series))?;
        let count: u64 = line.rsplit(' ').next()?.parse().ok()?;
        (count > 0).then_some(())
    })
    .await;
}
