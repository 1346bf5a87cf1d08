//! One step of a job's way.

use crate::tracing::context::TraceContext;
use crate::tracing::ids::{SpanId, TraceId};
use crate::tracing::otlp;

/// On which side of a call a span is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Kind {
    /// On none.
    #[default]
    Internal,
    /// It answers.
    Server,
    /// It asks.
    Client,
}

/// A value of an attribute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// A text.
    Text(String),
    /// A number.
    Number(i64),
    /// Yes or no.
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

/// One step of a job's way, once it is over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Span {
    /// Its trace.
    pub trace: TraceId,
    /// Its id.
    pub id: SpanId,
    /// The span that it is a part of.
    pub parent: Option<SpanId>,
    /// What it is called.
    pub name: &'static str,
    /// On which side of a call it is.
    pub kind: Kind,
    /// When it began and ended, in nanoseconds since the Unix epoch.
    pub time_ns: (u64, u64),
    /// What is known of it.
    pub attributes: Vec<(&'static str, Value)>,
    /// A span of another trace that it belongs to.
    pub link: Option<TraceContext>,
    /// Why it failed, if it did.
    pub error: Option<String>,
}

impl Span {
    /// A span that began then and has just ended, or ended then too.
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

    /// A part of another one.
    #[must_use]
    pub const fn below(mut self, parent: SpanId) -> Self {
        self.parent = Some(parent);
        self
    }

    /// On this side of a call.
    #[must_use]
    pub const fn kind(mut self, kind: Kind) -> Self {
        self.kind = kind;
        self
    }

    /// With this known of it.
    #[must_use]
    pub fn with(mut self, name: &'static str, value: impl Into<Value>) -> Self {
        self.attributes.push((name, value.into()));
        self
    }

    /// Failed for this reason, if there is one.
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
