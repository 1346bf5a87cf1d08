//! W3C Trace Context: the header with which a caller names the trace of its call.

use std::fmt;

use crate::ids::{SpanId, TraceId};

/// The header, in gRPC metadata as in HTTP.
pub const TRACEPARENT: &str = "traceparent";

/// The only existing version of the header format.
const VERSION: &str = "00";
/// Flag that the sender records its span.
const SAMPLED: u8 = 1;

/// A remote span, as named in the header `traceparent`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceContext {
    /// Trace id.
    pub trace: TraceId,
    /// Span id.
    pub span: SpanId,
    /// Whether it is recorded.
    pub sampled: bool,
}

impl TraceContext {
    /// Parses the header; none if its format is unknown.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split('-');
        let (version, trace, span, flags) =
            (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
        if version != VERSION || parts.next().is_some() || flags.len() != 2 {
            return None;
        }
        Some(Self {
            trace: TraceId::parse(trace)?,
            span: SpanId::parse(span)?,
            sampled: u8::from_str_radix(flags, 16).ok()? & SAMPLED != 0,
        })
    }
}

impl fmt::Display for TraceContext {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let flags = if self.sampled { SAMPLED } else { 0 };
        let Self { trace, span, .. } = self;
        write!(formatter, "{VERSION}-{trace}-{span}-{flags:02x}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_header_is_read_as_w3c_writes_it() {
        let text = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        let context = TraceContext::parse(text);
        assert_eq!(context.map(|it| it.to_string()).as_deref(), Some(text));
        assert!(context.is_some_and(|it| it.sampled));
        for wrong in [
            "",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-more",
            "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-x1",
        ] {
            assert_eq!(TraceContext::parse(wrong), None, "{wrong}");
        }
    }
}
