//! Where the time goes between a job's submission and its start: spans, and their way to a collector that speaks OTLP.
//!
//! A job's trace id derives from the cluster and the job ([`TraceId::of_job`]), and the ids of spans derive from the trace and
//! what they are about ([`SpanId::of`]). So replicas and workers agree on them without telling each other, and a new leader goes on
//! with the same trace: nothing of it is in the log. What the spans of one trace are, and how they hang together, is in [`tree`].
//!
//! Nothing is recorded before [`start`] was called, and [`record`] never waits: what the queue does not take is counted.
#![forbid(unsafe_code)]

mod clock;
mod context;
mod export;
mod ids;
pub mod otlp;
mod span;
pub mod tree;

pub use clock::{now_ns, of_ms};
pub use context::{TRACEPARENT, TraceContext};
pub use export::{
    Export, QUEUE_SPANS_MAX, StartError, belong_to, describe_metrics, finish, is_on, record, start,
    trace_of,
};
pub use ids::{SpanId, TraceId};
pub use span::{Kind, Span, Value};
