//! Trace spans of a submission on its way through replicas.

use muster_model::ids::ReplicaId;
use muster_proto::v1;
use muster_proto::v1::write_result::Kind as Outcome;
use muster_tracing::{
    Kind, Span, SpanId, TRACEPARENT, TraceContext, TraceId, is_on, now_ns, record, trace_of, tree,
};
use tonic::metadata::{Ascii, MetadataMap, MetadataValue};
use tonic::{Request, Response, Status};

use crate::spans::{JOB, REPLICA};

/// Jobs of a pipeline with a span of its submission each.
const PIPELINE_JOBS_TRACED_MAX: usize = 64;

/// The answer to a submission.
pub(crate) trait Submitted {
    /// Its jobs, as many as have spans, and whether it repeats an earlier submission.
    fn jobs(&self) -> (Vec<u64>, bool);
}

impl Submitted for v1::SubmitJobResponse {
    fn jobs(&self) -> (Vec<u64>, bool) {
        let id = (self.job_id > 0).then_some(self.job_id);
        (id.into_iter().collect(), self.repeated)
    }
}

impl Submitted for v1::SubmitPipelineResponse {
    fn jobs(&self) -> (Vec<u64>, bool) {
        let jobs = self.job_ids.iter().take(PIPELINE_JOBS_TRACED_MAX);
        (jobs.copied().collect(), self.repeated)
    }
}

/// A client's submission to this replica.
pub(crate) struct Submission {
    began_ns: u64,
    request_id: String,
    /// The client's span, if given.
    caller: Option<TraceContext>,
}

impl Submission {
    /// Starts the span of a new submission; `None` if tracing is off.
    pub(crate) fn began<T>(request: &Request<T>, request_id: &str) -> Option<Self> {
        is_on().then(|| Self {
            began_ns: now_ns(),
            request_id: request_id.to_owned(),
            caller: caller(request.metadata()),
        })
    }

    /// Ends the span. Returns the span of its (first) job.
    pub(crate) fn answered<T: Submitted>(
        self,
        replica: ReplicaId,
        answer: &Result<T, Status>,
    ) -> Option<TraceContext> {
        let ended_ns = now_ns();
        let (jobs, repeated) = match answer {
            Ok(answer) => answer.jobs(),
            Err(status) => {
                let trace = TraceId::of_request(&self.request_id);
                let id = SpanId::of(trace, tree::ROOT, &[replica.get(), self.began_ns]);
                let error = format!("{:?}: {}", status.code(), status.message());
                let span = self.span((trace, id), replica, ended_ns);
                record(span.failed(Some(error)));
                return None;
            }
        };
        let mut first = None;
        for job in jobs {
            let Some(trace) = trace_of(job) else { continue };
            let id = match repeated {
                false => tree::root(trace),
                true => SpanId::of(trace, tree::ROOT, &[replica.get(), self.began_ns]),
            };
            let mut span = self.span((trace, id), replica, ended_ns).with(JOB, job);
            if repeated {
                span = span.with("muster.repeated", true);
            }
            record(span);
            first.get_or_insert(TraceContext {
                trace,
                span: id,
                sampled: true,
            });
        }
        first
    }

    fn span(&self, ids: (TraceId, SpanId), replica: ReplicaId, ended_ns: u64) -> Span {
        let mut span = Span::new(ids, tree::ROOT, (self.began_ns, ended_ns))
            .kind(Kind::Server)
            .with("muster.request_id", self.request_id.as_str())
            .with(REPLICA, replica.get());
        let submit = tree::submit(&self.request_id);
        match self.caller {
            // Our SDK records its span in the job's trace, once it knows that trace.
            Some(caller) if caller.span == submit => {
                span.parent = caller.sampled.then_some(submit);
            }
            other => span.link = other,
        }
        span
    }
}

/// An answer with the trace that it belongs to.
pub(crate) fn traced<T>(answer: T, context: Option<TraceContext>) -> Response<T> {
    let mut response = Response::new(answer);
    let header = context.map(|context| MetadataValue::<Ascii>::try_from(context.to_string()));
    if let Some(Ok(header)) = header {
        response.metadata_mut().insert(TRACEPARENT, header);
    }
    response
}

fn caller(metadata: &MetadataMap) -> Option<TraceContext> {
    TraceContext::parse(metadata.get(TRACEPARENT)?.to_str().ok()?)
}

/// The jobs of an outcome, if it is one of a submission.
fn jobs(outcome: &Outcome) -> Vec<u64> {
    match outcome {
        Outcome::SubmitJob(answer) => answer.jobs().0,
        Outcome::SubmitPipeline(answer) => answer.jobs().0,
        _ => Vec::new(),
    }
}

/// Records the span of a write forwarded by a follower and answered by the leader.
pub(crate) fn forwarded(
    began_ns: u64,
    (replica, leader): (ReplicaId, u64),
    answer: &Result<Outcome, Status>,
) {
    if !is_on() {
        return;
    }
    let ended_ns = now_ns();
    for job in answer.iter().flat_map(jobs) {
        let Some(trace) = trace_of(job) else { continue };
        let id = SpanId::of(trace, tree::FORWARD, &[replica.get(), began_ns]);
        let span = Span::new((trace, id), tree::FORWARD, (began_ns, ended_ns))
            .kind(Kind::Client)
            .below(tree::root(trace))
            .with(JOB, job)
            .with(REPLICA, replica.get())
            .with("muster.leader_id", leader);
        record(span);
    }
}

/// Records the span of a submission that the leader proposed and applied.
pub(crate) fn proposed(began_ns: u64, replica: ReplicaId, answer: &v1::SubmitJobResponse) {
    let Some(trace) = trace_of(answer.job_id) else {
        return;
    };
    let id = SpanId::of(trace, tree::PROPOSE, &[answer.revision]);
    let span = Span::new((trace, id), tree::PROPOSE, (began_ns, now_ns()))
        .below(tree::root(trace))
        .with(JOB, answer.job_id)
        .with(REPLICA, replica.get())
        .with("muster.revision", answer.revision);
    record(span);
}
