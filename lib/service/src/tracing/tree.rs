//! The spans of a job's trace, and their ids.
//!
//! ```text
//! submit                      the SDK: from the first try to the answer
//! └ SubmitJob                 the replica that answered; the trace's root where the SDK does not export
//!   ├ forward                 that replica, if another one leads: from handing the submission on to the leader's answer
//!   ├ propose                 the leader: until a majority has it on disk and it is applied
//!   ├ apply                   each replica: from the stamp in the log until it has applied the submission
//!   ├ plan                    the leader: the round that found a place
//!   ├ wait                    the leader: from the submission (or the end of the attempt before) to the placement
//!   └ attempt                 the leader: from the placement until all tasks run; one for every attempt
//!     ├ apply                 each replica: the placement
//!     ├ order                 the leader: from the placement until the host's worker is told
//!     └ start                 the worker: from hearing of a task until it runs
//!       ├ journal             until the start is on the worker's disk
//!       └ supervisor          from there until the supervisor says that the task is prepared, or runs
//! ```

use crate::tracing::ids::{SpanId, TraceId};

/// The SDK's span, which knows its request and not its job before the answer.
pub const SUBMIT: &str = "submit";
/// The root, as long as the SDK exports nothing.
pub const ROOT: &str = "SubmitJob";
/// A follower's span.
pub const FORWARD: &str = "forward";
/// The leader's, of the proposal.
pub const PROPOSE: &str = "propose";
/// Each replica's.
pub const APPLY: &str = "apply";
/// The leader's, of a planning round.
pub const PLAN: &str = "plan";
/// The leader's, of the time in the queue.
pub const WAIT: &str = "wait";
/// The leader's, of one run.
pub const ATTEMPT: &str = "attempt";
/// The leader's, of telling a worker.
pub const ORDER: &str = "order";
/// A worker's, of one task.
pub const START: &str = "start";
/// A part of that.
pub const JOURNAL: &str = "journal";
/// The other part of it.
pub const SUPERVISOR: &str = "supervisor";

/// Tasks of a unit whose starts have spans: those with the lowest indexes. A trace of a gang of thousands could not be looked at.
pub const TASKS_TRACED_MAX: u32 = 64;

/// The SDK's span of a request.
#[must_use]
pub fn submit(request_id: &str) -> SpanId {
    SpanId::of(TraceId::of_request(request_id), SUBMIT, &[])
}

/// What a job's spans hang from.
#[must_use]
pub fn root(trace: TraceId) -> SpanId {
    SpanId::of(trace, ROOT, &[])
}

/// One run, by its epoch.
#[must_use]
pub fn attempt(trace: TraceId, epoch: u64) -> SpanId {
    SpanId::of(trace, ATTEMPT, &[epoch])
}
