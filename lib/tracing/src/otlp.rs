//! Messages to a collector: those of `opentelemetry-proto` 1.x that spans need, with its field numbers.
//!
//! They are permanently stable (OTLP 1.0), and few: a generated crate for them would bring every other
//! signal along, and a second copy of the transport.

use prost::{Message, Oneof};

use crate::span::Value;

/// Path of the only call.
pub const EXPORT_PATH: &str = "/opentelemetry.proto.collector.trace.v1.TraceService/Export";

/// `SpanKind.SPAN_KIND_INTERNAL`.
pub const KIND_INTERNAL: i32 = 1;
/// `SpanKind.SPAN_KIND_SERVER`.
pub const KIND_SERVER: i32 = 2;
/// `SpanKind.SPAN_KIND_CLIENT`.
pub const KIND_CLIENT: i32 = 3;
/// `Status.STATUS_CODE_ERROR`.
pub const STATUS_ERROR: i32 = 2;

/// `ExportTraceServiceRequest`.
#[derive(Clone, PartialEq, Message)]
pub struct ExportRequest {
    /// Spans by process.
    #[prost(message, repeated, tag = "1")]
    pub resource_spans: Vec<ResourceSpans>,
}

/// `ExportTraceServiceResponse`.
#[derive(Clone, PartialEq, Message)]
pub struct ExportResponse {
    /// Rejected part; absent if everything was accepted.
    #[prost(message, optional, tag = "1")]
    pub partial_success: Option<PartialSuccess>,
}

/// `ExportTracePartialSuccess`.
#[derive(Clone, PartialEq, Message)]
pub struct PartialSuccess {
    /// Number of rejected spans.
    #[prost(int64, tag = "1")]
    pub rejected_spans: i64,
    /// Reason.
    #[prost(string, tag = "2")]
    pub error_message: String,
}

/// `ResourceSpans`.
#[derive(Clone, PartialEq, Message)]
pub struct ResourceSpans {
    /// The process.
    #[prost(message, optional, tag = "1")]
    pub resource: Option<Resource>,
    /// Its spans by instrumentation scope.
    #[prost(message, repeated, tag = "2")]
    pub scope_spans: Vec<ScopeSpans>,
}

/// `Resource`.
#[derive(Clone, PartialEq, Message)]
pub struct Resource {
    /// Attributes of the process.
    #[prost(message, repeated, tag = "1")]
    pub attributes: Vec<KeyValue>,
}

/// `ScopeSpans`.
#[derive(Clone, PartialEq, Message)]
pub struct ScopeSpans {
    /// Instrumentation scope that recorded them.
    #[prost(message, optional, tag = "1")]
    pub scope: Option<Scope>,
    /// The spans.
    #[prost(message, repeated, tag = "2")]
    pub spans: Vec<Span>,
}

/// `InstrumentationScope`.
#[derive(Clone, PartialEq, Message)]
pub struct Scope {
    /// Its name.
    #[prost(string, tag = "1")]
    pub name: String,
    /// Its version.
    #[prost(string, tag = "2")]
    pub version: String,
}

/// `Span`.
#[derive(Clone, PartialEq, Message)]
pub struct Span {
    /// 16 bytes.
    #[prost(bytes = "vec", tag = "1")]
    pub trace_id: Vec<u8>,
    /// 8 bytes.
    #[prost(bytes = "vec", tag = "2")]
    pub span_id: Vec<u8>,
    /// 8 bytes, or none.
    #[prost(bytes = "vec", tag = "4")]
    pub parent_span_id: Vec<u8>,
    /// Name of the span.
    #[prost(string, tag = "5")]
    pub name: String,
    /// One of `KIND_INTERNAL`, `KIND_SERVER`, `KIND_CLIENT`.
    #[prost(int32, tag = "6")]
    pub kind: i32,
    /// Start time, in nanoseconds since the Unix epoch.
    #[prost(fixed64, tag = "7")]
    pub start_time_unix_nano: u64,
    /// End time.
    #[prost(fixed64, tag = "8")]
    pub end_time_unix_nano: u64,
    /// Attributes of the span.
    #[prost(message, repeated, tag = "9")]
    pub attributes: Vec<KeyValue>,
    /// Links to spans of other traces.
    #[prost(message, repeated, tag = "13")]
    pub links: Vec<Link>,
    /// Present if it failed.
    #[prost(message, optional, tag = "15")]
    pub status: Option<Status>,
}

/// `Span.Link`.
#[derive(Clone, PartialEq, Message)]
pub struct Link {
    /// 16 bytes.
    #[prost(bytes = "vec", tag = "1")]
    pub trace_id: Vec<u8>,
    /// 8 bytes.
    #[prost(bytes = "vec", tag = "2")]
    pub span_id: Vec<u8>,
}

/// `Status`.
#[derive(Clone, PartialEq, Message)]
pub struct Status {
    /// Human-readable message.
    #[prost(string, tag = "2")]
    pub message: String,
    /// `STATUS_ERROR`.
    #[prost(int32, tag = "3")]
    pub code: i32,
}

/// `KeyValue`.
#[derive(Clone, PartialEq, Message)]
pub struct KeyValue {
    /// The attribute's name.
    #[prost(string, tag = "1")]
    pub key: String,
    /// Its value.
    #[prost(message, optional, tag = "2")]
    pub value: Option<AnyValue>,
}

/// `AnyValue`.
#[derive(Clone, PartialEq, Message)]
pub struct AnyValue {
    /// Kind of the value.
    #[prost(oneof = "AnyKind", tags = "1, 2, 3")]
    pub kind: Option<AnyKind>,
}

/// Kinds of values that we write.
#[derive(Clone, PartialEq, Oneof)]
pub enum AnyKind {
    /// A text.
    #[prost(string, tag = "1")]
    Text(String),
    /// A boolean.
    #[prost(bool, tag = "2")]
    Truth(bool),
    /// A number.
    #[prost(int64, tag = "3")]
    Number(i64),
}

impl KeyValue {
    /// Builds an attribute.
    #[must_use]
    pub fn new(key: &str, value: Value) -> Self {
        let kind = match value {
            Value::Text(text) => AnyKind::Text(text),
            Value::Number(number) => AnyKind::Number(number),
            Value::Truth(truth) => AnyKind::Truth(truth),
        };
        Self {
            key: key.to_owned(),
            value: Some(AnyValue { kind: Some(kind) }),
        }
    }

    /// Its value, if it is a text.
    #[must_use]
    pub fn text(&self) -> Option<&str> {
        match self.value.as_ref()?.kind.as_ref()? {
            AnyKind::Text(text) => Some(text),
            _ => None,
        }
    }
}
