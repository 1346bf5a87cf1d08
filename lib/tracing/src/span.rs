//! Spans: steps of a job on its way from submission to start.

use crate::context::TraceContext;
use crate::ids::{SpanId, TraceId};
use crate::otlp;

/// Side of a call that a span describes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Kind {
    /// No call.
    #[default]
    Internal,
    /// Server side.
    Server,
    /// Client side.
    Client,
}

/// A value of an attribute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// A text.
    Text(String),
    /// A number.
    Number(i64),
    /// A boolean.
    Truth(bool),
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<u64> for Value {
    fn from(number: u64) -> Self {
        Self::Number(i64::try_from(number).unwrap_or(i64::MAX))
    }
}

impl From<u32> for Value {
    fn from(number: u32) -> Self {
        Self::Number(number.into())
    }
}

impl From<bool> for Value {
    fn from(truth: bool) -> Self {
        Self::Truth(truth)
    }
}

/// A completed step of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Span {
    /// Trace id.
    pub trace: TraceId,
    /// Span id.
    pub id: SpanId,
    /// Parent span.
    pub parent: Option<SpanId>,
    /// Name of the span.
    pub name: &'static str,
    /// Side of a call.
    pub kind: Kind,
    /// Start and end, in nanoseconds since the Unix epoch.
    pub time_ns: (u64, u64),
    /// Attributes of the span.
    pub attributes: Vec<(&'static str, Value)>,
    /// A related span of another trace.
    pub link: Option<TraceContext>,
    /// Reason of failure, if it failed.
    pub error: Option<String>,
}

impl Span {
    /// Builds a span with this start and end.
    #[must_use]
    pub fn new((trace, id): (TraceId, SpanId), name: &'static str, time_ns: (u64, u64)) -> Self {
        // Clocks of two hosts may disagree: a span does not end before it begins.
        let time_ns = (time_ns.0, time_ns.1.max(time_ns.0));
        Self {
            trace,
            id,
            parent: None,
            name,
            kind: Kind::Internal,
            time_ns,
            attributes: Vec::new(),
            link: None,
            error: None,
        }
    }

    /// Sets the parent.
    #[must_use]
    pub const fn below(mut self, parent: SpanId) -> Self {
        self.parent = Some(parent);
        self
    }

    /// Sets the side of the call.
    #[must_use]
    pub const fn kind(mut self, kind: Kind) -> Self {
        self.kind = kind;
        self
    }

    /// Adds an attribute.
    #[must_use]
    pub fn with(mut self, name: &'static str, value: impl Into<Value>) -> Self {
        self.attributes.push((name, value.into()));
        self
    }

    /// Marks the span as failed, if there is a reason.
    #[must_use]
    pub fn failed(mut self, error: Option<String>) -> Self {
        self.error = error;
        self
    }
}

impl From<Span> for otlp::Span {
    fn from(span: Span) -> Self {
        let kind = match span.kind {
            Kind::Internal => otlp::KIND_INTERNAL,
            Kind::Server => otlp::KIND_SERVER,
            Kind::Client => otlp::KIND_CLIENT,
        };
        let attributes = span.attributes.into_iter();
        Self {
            trace_id: span.trace.bytes(),
            span_id: span.id.bytes(),
            parent_span_id: span.parent.map(SpanId::bytes).unwrap_or_default(),
            name: span.name.to_owned(),
            kind,
            start_time_unix_nano: span.time_ns.0,
            end_time_unix_nano: span.time_ns.1,
            attributes: attributes
                .map(|(key, value)| otlp::KeyValue::new(key, value))
                .collect(),
            links: { span.link.into_iter() }
                .map(|link| otlp::Link {
                    trace_id: link.trace.bytes(),
                    span_id: link.span.bytes(),
                })
                .collect(),
            status: span.error.map(|message| otlp::Status {
                message,
                code: otlp::STATUS_ERROR,
            }),
        }
    }
}
