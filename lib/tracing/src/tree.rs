//! Spans of a job's trace, and their ids.
//!
//! ```text
//! submit                      the SDK: from the first attempt to the answer
//! └ SubmitJob                 the replica that answered; the trace's root where the SDK does not export
//!   ├ forward                 that replica, as a follower: from forwarding the submission to the leader's answer
//!   ├ propose                 the leader: until a majority has it on disk and it is applied
//!   ├ apply                   each replica: from the stamp in the log until it has applied the submission
//!   ├ plan                    the leader: the round that found a place
//!   ├ wait                    the leader: from the submission (or the end of the attempt before) to the placement
//!   └ attempt                 the leader: from the placement until all tasks run; one for every attempt
//!     ├ apply                 each replica: the placement
//!     ├ order                 the leader: from the placement until the order is sent to the host's worker
//!     └ start                 the worker: from receiving a task until it runs
//!       ├ journal             until the start is on the worker's disk
//!       └ supervisor          from there until the supervisor reports that the task is prepared, or runs
//! ```

use crate::ids::{SpanId, TraceId};

/// The SDK's span, which knows only its request before the answer brings the job.
pub const SUBMIT: &str = "submit";
/// Root span, unless the SDK exports.
pub const ROOT: &str = "SubmitJob";
/// Forwarding by a follower.
pub const FORWARD: &str = "forward";
/// Proposal by the leader.
pub const PROPOSE: &str = "propose";
/// Apply, on each replica.
pub const APPLY: &str = "apply";
/// Planning round of the leader.
pub const PLAN: &str = "plan";
/// Time in the queue, on the leader.
pub const WAIT: &str = "wait";
/// One attempt, on the leader.
pub const ATTEMPT: &str = "attempt";
/// Sending an order to a worker, on the leader.
pub const ORDER: &str = "order";
/// Start of one task, on a worker.
pub const START: &str = "start";
/// Part of `start`: the worker's journal.
pub const JOURNAL: &str = "journal";
/// Part of `start`: the supervisor.
pub const SUPERVISOR: &str = "supervisor";

/// Tasks of a unit whose starts have spans: those with the lowest indexes. A trace of a gang of thousands
/// would be unreadable.
pub const TASKS_TRACED_MAX: u32 = 64;

/// The SDK's span of a request.
#[must_use]
pub fn submit(request_id: &str) -> SpanId {
    SpanId::of(TraceId::of_request(request_id), SUBMIT, &[])
}

/// Root of a job's spans.
#[must_use]
pub fn root(trace: TraceId) -> SpanId {
    SpanId::of(trace, ROOT, &[])
}

/// Span of one attempt, by its epoch.
#[must_use]
pub fn attempt(trace: TraceId, epoch: u64) -> SpanId {
    SpanId::of(trace, ATTEMPT, &[epoch])
}
