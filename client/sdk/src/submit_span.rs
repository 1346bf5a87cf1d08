//! The client's span of a job's trace: from the first attempt of its submission to the answer.

use std::sync::OnceLock;

use muster_tracing::{Kind, Span, TRACEPARENT, TraceContext, TraceId, is_on, now_ns, record, tree};
use tonic::metadata::{Ascii, MetadataValue};
use tonic::{Request, Response};

use crate::error::ClientError;

/// Span of a submission in progress.
#[derive(Debug)]
pub(crate) struct SubmitSpan {
    request_id: String,
    began_ns: u64,
    /// The caller's own span.
    within: Option<TraceContext>,
    /// Header sent to replicas.
    header: Option<MetadataValue<Ascii>>,
    /// The job's trace, as reported by the answering replica.
    reported: OnceLock<TraceContext>,
}

impl SubmitSpan {
    /// Starts a span, within the caller's if that is valid.
    pub(crate) fn start(request_id: &str, traceparent: Option<&str>) -> Self {
        let within = traceparent.and_then(TraceContext::parse);
        let own = is_on().then(|| TraceContext {
            trace: TraceId::of_request(request_id),
            span: tree::submit(request_id),
            sampled: true,
        });
        let context = own.or(within).map(|context| context.to_string());
        Self {
            request_id: request_id.to_owned(),
            began_ns: now_ns(),
            within,
            header: context.and_then(|text| text.try_into().ok()),
            reported: OnceLock::new(),
        }
    }

    /// Adds the header to a request.
    pub(crate) fn inject<T>(&self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        if let Some(header) = &self.header {
            request.metadata_mut().insert(TRACEPARENT, header.clone());
        }
        request
    }

    /// Records the trace of an answer.
    pub(crate) fn record_answer<T>(&self, answer: &Response<T>) {
        let header = answer.metadata().get(TRACEPARENT);
        let context = header.and_then(|text| TraceContext::parse(text.to_str().ok()?));
        if let Some(context) = context {
            // Any one of several answers counts.
            self.reported.get_or_init(|| context);
        }
    }

    /// Ends the span with the answer or failure.
    pub(crate) fn end(&self, answer: Result<u64, &ClientError>) {
        if !is_on() {
            return;
        }
        let reported = self.reported.get().map(|context| context.trace);
        let trace = reported.unwrap_or_else(|| TraceId::of_request(&self.request_id));
        let id = tree::submit(&self.request_id);
        let mut span = Span::new(trace, id, tree::SUBMIT, self.began_ns, now_ns())
            .kind(Kind::Client)
            .with("muster.request_id", self.request_id.as_str())
            .failed(answer.err().map(ToString::to_string));
        if let Ok(job) = answer {
            span = span.with("muster.job_id", job);
        }
        span.link = self.within;
        record(span);
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail by panicking")]
mod tests {
    use super::*;

    const TEXT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn the_callers_span_is_sent_only_if_it_is_valid() {
        let span = SubmitSpan::start("a", Some(TEXT));
        let request = span.inject(());
        let header = request.metadata().get(TRACEPARENT).unwrap();
        assert_eq!(header.to_str().unwrap(), TEXT);
        for nothing in [None, Some("nonsense")] {
            let request = SubmitSpan::start("a", nothing).inject(());
            assert!(request.metadata().get(TRACEPARENT).is_none(), "{nothing:?}");
        }
    }
}
