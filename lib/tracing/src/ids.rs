//! Ids of traces and spans, derived identically on every process.

use std::fmt;

use xxhash_rust::xxh3::{xxh3_64, xxh3_128};

/// Trace id; never zero, as W3C Trace Context requires.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TraceId(u128);

/// Span id within a trace; never zero either.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SpanId(u64);

impl TraceId {
    /// Trace of a job of a cluster for its whole life: job ids restart in every cluster.
    #[must_use]
    pub fn of_job(cluster_id: &str, job: u64) -> Self {
        Self::of(b"job", cluster_id, &job.to_le_bytes())
    }

    /// Trace of a request that did not result in a job.
    #[must_use]
    pub fn of_request(request_id: &str) -> Self {
        Self::of(b"request", request_id, &[])
    }

    fn of(what: &[u8], text: &str, rest: &[u8]) -> Self {
        let bytes = [what, &[0], text.as_bytes(), &[0], rest].concat();
        Self(xxh3_128(&bytes).max(1))
    }

    /// Parses 32 lower-case hexadecimal digits that are not all zero.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let id =
            (text.len() == 32 && is_hex(text)).then(|| u128::from_str_radix(text, 16).ok())??;
        (id != 0).then_some(Self(id))
    }

    /// Bytes in OTLP's encoding.
    #[must_use]
    pub fn bytes(self) -> Vec<u8> {
        self.0.to_be_bytes().to_vec()
    }

    /// Whether the trace is in the sample of one in `count`; the same on every process.
    #[must_use]
    pub(crate) fn is_one_in(self, count: u64) -> bool {
        self.0.is_multiple_of(u128::from(count.max(1)))
    }
}

impl SpanId {
    /// The span of this name in a trace; the numbers distinguish several of one name.
    #[must_use]
    pub fn of(trace: TraceId, name: &str, numbers: &[u64]) -> Self {
        let mut bytes = [&trace.0.to_be_bytes()[..], name.as_bytes(), &[0]].concat();
        bytes.extend(numbers.iter().flat_map(|number| number.to_le_bytes()));
        Self(xxh3_64(&bytes).max(1))
    }

    /// Parses 16 lower-case hexadecimal digits that are not all zero.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let id =
            (text.len() == 16 && is_hex(text)).then(|| u64::from_str_radix(text, 16).ok())??;
        (id != 0).then_some(Self(id))
    }

    /// Bytes in OTLP's encoding.
    #[must_use]
    pub fn bytes(self) -> Vec<u8> {
        self.0.to_be_bytes().to_vec()
    }
}

fn is_hex(text: &str) -> bool {
    text.bytes()
        .all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

impl fmt::Display for TraceId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:032x}", self.0)
    }
}

impl fmt::Display for SpanId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:016x}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Replicas and workers of different builds must agree: these numbers must not change.
    #[test]
    fn ids_are_the_same_in_every_build() {
        let trace = TraceId::of_job("lab", 7);
        assert_eq!(trace, TraceId::of_job("lab", 7));
        assert_eq!(trace.to_string(), FROZEN_TRACE);
        assert_eq!(SpanId::of(trace, "attempt", &[9]).to_string(), FROZEN_SPAN);
    }

    const FROZEN_TRACE: &str = "9b885e627310ec5c145111e8bd24362f";
    const FROZEN_SPAN: &str = "4f84e2b3684a853a";

    #[test]
    fn different_inputs_have_different_ids() {
        let trace = TraceId::of_job("lab", 7);
        assert_ne!(trace, TraceId::of_job("lab", 8));
        assert_ne!(trace, TraceId::of_job("production", 7));
        let plan = SpanId::of(trace, "plan", &[1]);
        assert_ne!(plan, SpanId::of(trace, "plan", &[2]));
        assert_ne!(plan, SpanId::of(trace, "plan", &[1, 0]));
        assert_ne!(plan, SpanId::of(trace, "apply", &[1]));
    }

    #[test]
    fn ids_are_read_as_they_are_written() {
        let trace = TraceId::of_request("a");
        assert_eq!(TraceId::parse(&trace.to_string()), Some(trace));
        let span = SpanId::of(trace, "submit", &[]);
        assert_eq!(SpanId::parse(&span.to_string()), Some(span));
        for wrong in ["", "0", &"0".repeat(32), &"F".repeat(32), &"+".repeat(32)] {
            assert_eq!(TraceId::parse(wrong), None, "{wrong}");
        }
        assert_eq!(SpanId::parse(&"0".repeat(16)), None);
    }

    #[test]
    fn one_in_n_traces_is_exported() {
        let traces = (0..10_000).map(|job| TraceId::of_job("lab", job));
        let taken = traces.filter(|trace| trace.is_one_in(10)).count();
        assert!((800..1_200).contains(&taken), "{taken}");
        assert!(TraceId::of_job("lab", 1).is_one_in(1));
    }
}
