//! Exporter: a bounded queue, batches, and counters of lost spans.

use std::sync::{OnceLock, PoisonError, RwLock};
use std::time::Duration;

use http::uri::PathAndQuery;
use metrics::{counter, describe_counter};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep, timeout, timeout_at};
use tonic::client::Grpc;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Status};
use tonic_prost::ProstCodec;

use crate::ids::TraceId;
use crate::otlp;
use crate::span::{Span, Value};

/// Spans queued for the collector: about 4 MiB, and some seconds of a busy leader.
pub const QUEUE_SPANS_MAX: usize = 8_192;
/// Spans per message.
const BATCH_SPANS_MAX: usize = 512;
/// Longest time for a batch to fill.
const BATCH_WAIT: Duration = Duration::from_millis(500);
/// Timeout of the collector's answer.
const ANSWER_MAX: Duration = Duration::from_secs(5);
/// Attempts per batch, while the collector is unreachable or reports to be busy.
const TRIES_MAX: u32 = 3;
/// Pause between attempts.
const RETRY: Duration = Duration::from_millis(500);

const SPANS_TOTAL: &str = "muster_tracing_spans_exported_total";
const DROPPED_TOTAL: &str = "muster_tracing_spans_dropped_total";
/// Reasons of lost spans.
const QUEUE_FULL: &str = "queue_full";
const UNREACHABLE: &str = "unreachable";
const REJECTED: &str = "rejected";

static EXPORTER: OnceLock<Exporter> = OnceLock::new();

/// Configuration of the exporter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Export {
    /// Address of the collector: `http://host:4317`.
    pub endpoint: String,
    /// One trace in this many is exported; the same on all processes of a cluster.
    pub one_in: u64,
    /// Name of the service: `muster-scheduler`.
    pub service: &'static str,
    /// Instance of the service: `1`, `node01`.
    pub instance: String,
}

/// Error of an export that did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The address is invalid.
    #[error("`{0}` is not `http://host:port`")]
    Endpoint(String),
    /// Started a second time in this process.
    #[error("spans are exported already")]
    Again,
}

struct Exporter {
    one_in: u64,
    /// Cluster of this process; none before it is known.
    cluster_id: RwLock<Option<String>>,
    queue: mpsc::Sender<Item>,
}

enum Item {
    Span(Box<Span>),
    /// Everything queued before it is to be sent now.
    Flush(oneshot::Sender<()>),
}

/// Registers the exporter's metrics.
pub fn describe_metrics() {
    describe_counter!(
        SPANS_TOTAL,
        "Spans accepted by the collector (`tracing.otlp_endpoint`)."
    );
    describe_counter!(
        DROPPED_TOTAL,
        "Spans lost, by reason: queue_full, unreachable, rejected."
    );
    counter!(SPANS_TOTAL).increment(0);
    for reason in [QUEUE_FULL, UNREACHABLE, REJECTED] {
        counter!(DROPPED_TOTAL, "reason" => reason).increment(0);
    }
}

/// Starts to record and send spans, on the runtime of the caller; once per process.
///
/// # Errors
/// See [`StartError`]. An unreachable collector is not an error: it is retried forever.
pub fn start(export: Export) -> Result<(), StartError> {
    let endpoint = Some(export.endpoint.as_str())
        .filter(|text| text.starts_with("http://"))
        .and_then(|text| Endpoint::from_shared(text.to_owned()).ok())
        .ok_or_else(|| StartError::Endpoint(export.endpoint.clone()))?;
    let endpoint = endpoint.connect_timeout(ANSWER_MAX).timeout(ANSWER_MAX);
    let (queue, spans) = mpsc::channel(QUEUE_SPANS_MAX);
    let exporter = Exporter {
        one_in: export.one_in,
        cluster_id: RwLock::new(None),
        queue,
    };
    EXPORTER.set(exporter).map_err(|_| StartError::Again)?;
    tracing::info!(endpoint = export.endpoint, "spans are exported");
    let sender = Sender {
        resource: resource(&export),
        channel: endpoint.connect_lazy(),
    };
    tokio::spawn(send_all(spans, sender));
    Ok(())
}

/// Whether spans are recorded at all: work that only serves them may be skipped otherwise.
#[must_use]
pub fn is_on() -> bool {
    EXPORTER.get().is_some()
}

/// Sets the cluster of this process, from which the traces of its jobs derive.
pub fn belong_to(cluster_id: &str) {
    if let Some(exporter) = EXPORTER.get() {
        let known = exporter.cluster_id.write();
        *known.unwrap_or_else(PoisonError::into_inner) = Some(cluster_id.to_owned());
    }
}

/// Returns the trace of a job, if its spans are recorded: none without an exporter, before the cluster is
/// known, and for a job outside the sample.
#[must_use]
pub fn trace_of(job: u64) -> Option<TraceId> {
    let exporter = EXPORTER.get()?;
    let cluster_id = exporter.cluster_id.read();
    let cluster_id = cluster_id.unwrap_or_else(PoisonError::into_inner);
    let trace = TraceId::of_job(cluster_id.as_ref()?, job);
    trace.is_one_in(exporter.one_in).then_some(trace)
}

/// Queues a span for export; never blocks.
pub fn record(span: Span) {
    let Some(exporter) = EXPORTER.get() else {
        return;
    };
    if !span.trace.is_one_in(exporter.one_in) {
        return;
    }
    if exporter.queue.try_send(Item::Span(Box::new(span))).is_err() {
        counter!(DROPPED_TOTAL, "reason" => QUEUE_FULL).increment(1);
    }
}

/// Sends queued spans before a process ends, for at most `limit`.
pub async fn finish(limit: Duration) {
    let Some(exporter) = EXPORTER.get() else {
        return;
    };
    let (sent, all_sent) = oneshot::channel();
    let sending = async {
        if exporter.queue.send(Item::Flush(sent)).await.is_ok() {
            // The sender was dropped, so the exporter is gone: there is nothing to wait for.
            all_sent.await.unwrap_or(());
        }
    };
    if timeout(limit, sending).await.is_err() {
        tracing::debug!("the collector did not accept the last spans in time");
    }
}

fn resource(export: &Export) -> otlp::Resource {
    let version = env!("CARGO_PKG_VERSION");
    let attributes = [
        ("service.namespace", "muster"),
        ("service.name", export.service),
        ("service.instance.id", export.instance.as_str()),
        ("service.version", version),
    ];
    let attributes = attributes.map(|(key, value)| otlp::KeyValue::new(key, Value::from(value)));
    otlp::Resource {
        attributes: attributes.to_vec(),
    }
}

struct Sender {
    resource: otlp::Resource,
    channel: Channel,
}

/// Sends batches until all senders are gone.
async fn send_all(mut spans: mpsc::Receiver<Item>, sender: Sender) {
    let mut batch = Vec::with_capacity(BATCH_SPANS_MAX);
    while let Some(first) = spans.recv().await {
        let mut waiting = take(first, &mut batch);
        let full_at = Instant::now() + BATCH_WAIT;
        while waiting.is_none() && batch.len() < BATCH_SPANS_MAX {
            match timeout_at(full_at, spans.recv()).await {
                Ok(Some(item)) => waiting = take(item, &mut batch),
                Ok(None) | Err(_) => break,
            }
        }
        if !batch.is_empty() {
            sender.send(std::mem::take(&mut batch)).await;
        }
        if let Some(waiting) = waiting {
            // A waiter that is gone needs no answer.
            waiting.send(()).unwrap_or(());
        }
    }
}

/// Adds a span to the batch, or returns the waiter of a flush.
fn take(item: Item, batch: &mut Vec<otlp::Span>) -> Option<oneshot::Sender<()>> {
    match item {
        Item::Span(span) => {
            batch.push((*span).into());
            None
        }
        Item::Flush(waiting) => Some(waiting),
    }
}

impl Sender {
    /// Sends a batch, with retries; counts the result.
    async fn send(&self, spans: Vec<otlp::Span>) {
        let count = u64::try_from(spans.len()).unwrap_or(u64::MAX);
        let request = self.request(spans);
        for tries_left in (0..TRIES_MAX).rev() {
            match self.try_send(request.clone()).await {
                Ok(answer) => {
                    let refused = answer.partial_success.unwrap_or_default();
                    let rejected = u64::try_from(refused.rejected_spans)
                        .unwrap_or(0)
                        .min(count);
                    if rejected > 0 {
                        let why = refused.error_message;
                        tracing::warn!(rejected, why, "the collector does not accept all spans");
                        counter!(DROPPED_TOTAL, "reason" => REJECTED).increment(rejected);
                    }
                    counter!(SPANS_TOTAL).increment(count - rejected);
                    return;
                }
                Err(status) if may_help(&status) && tries_left > 0 => sleep(RETRY).await,
                Err(status) => {
                    let reason = if may_help(&status) {
                        UNREACHABLE
                    } else {
                        REJECTED
                    };
                    tracing::debug!(code = ?status.code(), why = status.message(), "spans are lost");
                    counter!(DROPPED_TOTAL, "reason" => reason).increment(count);
                    return;
                }
            }
        }
    }

    fn request(&self, spans: Vec<otlp::Span>) -> otlp::ExportRequest {
        let scope = otlp::Scope {
            name: "muster".to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
        };
        otlp::ExportRequest {
            resource_spans: vec![otlp::ResourceSpans {
                resource: Some(self.resource.clone()),
                scope_spans: vec![otlp::ScopeSpans {
                    scope: Some(scope),
                    spans,
                }],
            }],
        }
    }

    async fn try_send(&self, request: otlp::ExportRequest) -> Result<otlp::ExportResponse, Status> {
        let mut grpc = Grpc::new(self.channel.clone());
        grpc.ready()
            .await
            .map_err(|error| Status::unavailable(error.to_string()))?;
        let codec: ProstCodec<otlp::ExportRequest, otlp::ExportResponse> = ProstCodec::default();
        let path = PathAndQuery::from_static(otlp::EXPORT_PATH);
        let answered = grpc.unary(Request::new(request), path, codec).await?;
        Ok(answered.into_inner())
    }
}

/// Whether a retry may succeed, as defined by OTLP.
fn may_help(status: &Status) -> bool {
    matches!(
        status.code(),
        Code::Unavailable
            | Code::DeadlineExceeded
            | Code::Cancelled
            | Code::Aborted
            | Code::ResourceExhausted
            | Code::OutOfRange
            | Code::DataLoss
            | Code::Unknown
    )
}
