//! A collector that does not answer. Runs in its own process, because a process has only one exporter.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::time::Duration;

use metrics_exporter_prometheus::PrometheusBuilder;
use muster_tracing::{
    Export, QUEUE_SPANS_MAX, Span, SpanId, StartError, TraceId, belong_to, describe_metrics,
    finish, is_on, record, start, trace_of,
};
use tokio::net::TcpListener;
use tokio::time::{Instant, timeout};

#[tokio::test]
async fn recording_never_waits_for_a_collector_and_lost_spans_are_counted() {
    let recorder = PrometheusBuilder::new().install_recorder().unwrap();
    describe_metrics();
    let trace = TraceId::of_job("lab", 1);
    let span = || Span::new(trace, SpanId::of(trace, "x", &[]), "x", 1, 2);
    record(span());
    assert!(!is_on() && trace_of(1).is_none());
    // It accepts connections and sends nothing.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let export = Export {
        endpoint: format!("http://{}", listener.local_addr().unwrap()),
        one_in: 1,
        service: "test",
        instance: "1".to_owned(),
    };
    let wrong = Export {
        endpoint: "collector:4317".to_owned(),
        ..export.clone()
    };
    assert!(matches!(start(wrong), Err(StartError::Endpoint(_))));
    start(export.clone()).unwrap();
    assert!(matches!(start(export), Err(StartError::Again)));
    assert!(
        is_on() && trace_of(1).is_none(),
        "the cluster is not known yet"
    );
    belong_to("lab");
    assert_eq!(trace_of(1), Some(trace));
    // No other task runs on this thread meanwhile: the queue fills.
    for _ in 0..3 * QUEUE_SPANS_MAX {
        record(span());
    }
    let lost = format!(
        "muster_tracing_spans_dropped_total{{reason=\"queue_full\"}} {}",
        2 * QUEUE_SPANS_MAX
    );
    let page = recorder.render();
    assert!(page.contains(&lost), "{page}");
    let (began, limit) = (Instant::now(), Duration::from_millis(100));
    timeout(Duration::from_secs(2), finish(limit))
        .await
        .unwrap();
    assert!(began.elapsed() >= limit);
    let page = recorder.render();
    assert!(
        page.contains("muster_tracing_spans_exported_total 0"),
        "{page}"
    );
}
