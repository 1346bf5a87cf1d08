//! Tracing of the time between a job's submission and its start: spans, and their export to an OTLP
//! collector.
//!
//! A job's trace id derives from the cluster and the job ([`TraceId::of_job`]), and span ids derive from
//! the trace and their subject ([`SpanId::of`]). So replicas and workers agree on them without
//! communication, and a new leader continues the same trace: none of it is in the log. [`tree`] describes
//! the spans of one trace and their hierarchy.
//!
//! Nothing is recorded before [`start`] was called, and [`record`] never blocks: spans that exceed the
//! queue are counted.
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
