//! Client writes, from any replica to the leader, with the retries that `request_id` makes safe.

mod access;
pub(super) mod answer_limit;
pub(super) mod audited_call;
pub(super) mod deadline;
mod faults;
pub(super) mod forward;
mod health;
mod hosts;
mod impact;
mod jobs;
pub(super) mod leaders;
mod propose;
mod queues;
pub(super) mod replicas;
pub(super) mod request;
mod topology;

use std::net::SocketAddr;
use std::pin::pin;
use std::time::Duration;

use muster_proto::status::{self, ErrorReport};
use muster_proto::v1;
use muster_raft_store::Leadership;
use muster_tracing::now_ns;
use tokio::time::{Instant, sleep_until, timeout_at};
use tonic::{Code, Request, Response, Status};

use crate::audit_log::Record;
use crate::leader::feature_level::FEATURE_NOT_YET;
use crate::service::context::Context;
use crate::service::gate::{Caller, caller_of};
use crate::service::peer::recipient::is_undone;
use crate::service::read;
use crate::service::write::forward::{Forward, unknown};
pub use crate::service::write::health::set_health_rules_command;
use crate::service::write::leaders::Leaders;
pub use crate::service::write::propose::propose_status;
use crate::service::write::request::{Reply, WriteRequest, execute};
use crate::spans;

/// Reason of a failure whose effect is unknown; repeating the request is safe.
pub(crate) const UNKNOWN_OUTCOME: &str = "UNKNOWN_OUTCOME";
/// Reason of a failure because a required replica does not answer.
pub(crate) const UNREACHABLE: &str = "UNREACHABLE";
/// Reason of a refusal for load.
const OVERLOADED: &str = "OVERLOADED";
/// Message if a leader has lost its majority meanwhile.
const NO_LEADER: &str = "this replica lost contact to the leader during the write";
/// Message if a majority or another participant does not answer in time.
const NOT_DONE_YET: &str = "the write timed out and may still take effect";
/// Wait before a write is tried again.
const RETRY: Duration = Duration::from_millis(10);

/// Who makes a call, and until when it must be answered.
pub(crate) struct CallerContext {
    pub(crate) deadline: Instant,
    pub(crate) from: Option<SocketAddr>,
    pub(crate) caller: Caller,
}

impl CallerContext {
    pub(crate) fn of<T>(context: &Context, request: &Request<T>) -> Self {
        Self {
            deadline: deadline::of(request.metadata(), context.request_ms_default()),
            from: request.remote_addr(),
            caller: caller_of(request),
        }
    }
}

/// Answers a client's write.
pub(crate) async fn serve<R: WriteRequest>(
    context: &Context,
    request: Request<R>,
) -> Result<Response<R::Response>, Status> {
    let _permit = context.admit()?;
    let calling = CallerContext::of(context, &request);
    let response = write(context, request.into_inner(), calling).await?;
    Ok(Response::new(response))
}

/// Executes a write: here if this replica leads, at the leader otherwise; waits for a leader for as long as
/// an election may take, and retries until the deadline. Write, caller and answer are recorded in the audit
/// log, also if the caller does not wait for the answer.
pub(crate) async fn write<R: WriteRequest>(
    context: &Context,
    mut request: R,
    calling: CallerContext,
) -> Reply<R> {
    let CallerContext {
        deadline,
        from,
        caller,
    } = calling;
    caller.sign(request.authors());
    let unanswered = context.unanswered(record(&mut request, &caller, from));
    let result = match permit(context, &caller, &request, deadline).await {
        Ok(()) => attempts(context, request, deadline).await,
        Err(refusal) => Err(refusal),
    };
    unanswered.answer(|it| answered::<R>(it, &result)).await;
    result
}

/// Audit record of a write under the authenticated name: not every write has an author field, and a replica's
/// certificate proves none of the names that it may pass on.
fn record<R: WriteRequest>(request: &mut R, caller: &Caller, from: Option<SocketAddr>) -> Record {
    let asked = request.record();
    let authors = request.authors();
    let author = authors.first().map(|author| author.as_str().to_owned());
    let user = caller.on_record(author.unwrap_or_else(|| asked.user.clone()));
    asked.called(R::METHOD.name, &user, from)
}

/// Completes an audit record with the answer.
fn answered<R: WriteRequest>(record: Record, result: &Reply<R>) -> Record {
    let record = record.answered_with(result.as_ref().err());
    match result {
        Ok(response) => R::complete(record, response),
        Err(_) => record,
    }
}

/// Refuses a write that the caller has no right to. A job unknown here may be known to the leader.
async fn permit<R: WriteRequest>(
    context: &Context,
    caller: &Caller,
    request: &R,
    deadline: Instant,
) -> Result<(), Status> {
    let scope = request.scope();
    let checked = context
        .handle
        .with_state(|state| caller.check(state, &scope));
    match checked {
        Err(refusal) if refusal.code() == Code::NotFound => {
            let newest = v1::Consistency::Linearizable.into();
            let state = read::state(context, newest, deadline).await?;
            caller.check(&state, &scope)
        }
        checked => checked,
    }
}

async fn attempts<R: WriteRequest>(context: &Context, request: R, deadline: Instant) -> Reply<R> {
    let mut leadership = context.handle.leadership();
    if !leadership.borrow().is_self {
        // The leader checks when it executes; here a bad request need not wait for a leader.
        request.clone().order()?;
    }
    let leaders = Leaders::of(&context.handle);
    let mut isolated = pin!(leaders.isolated());
    let mut earlier = EarlierErrors::default();
    loop {
        let now = leadership.borrow_and_update().clone();
        let (result, is_last) = tokio::select! {
            biased;
            result = attempt(context, &now, request.clone(), deadline) => (result, false),
            () = &mut isolated, if !R::IS_HANDOVER => (Err(unknown(NO_LEADER)), true),
        };
        let status = match result {
            Ok(response) => return Ok(response),
            Err(status) if is_safe_to_repeat(R::IS_REPEATABLE, &status) => earlier.combine(status),
            Err(status) => return Err(earlier.unless_unknown(status)),
        };
        let retry_at = Instant::now() + RETRY;
        if is_last || retry_at >= deadline {
            return Err(status);
        }
        let change = async {
            // Ends with the replica, which the next attempt reports.
            drop(leadership.changed().await);
            sleep_until(retry_at).await;
        };
        // Without a known leader only a change of leadership can help.
        let limit = if now.leader.is_none() {
            deadline
        } else {
            (retry_at + RETRY).min(deadline)
        };
        let is_over = tokio::select! {
            biased;
            () = &mut isolated => true,
            _ = timeout_at(limit, change) => Instant::now() >= deadline,
        };
        if is_over {
            return Err(status);
        }
    }
}

/// One attempt, at the current leader.
async fn attempt<R: WriteRequest>(
    context: &Context,
    now: &Leadership,
    request: R,
    deadline: Instant,
) -> Reply<R> {
    match &now.leader {
        _ if now.is_self => {
            let executed = timeout_at(deadline, execute(context, request, deadline)).await;
            executed.unwrap_or_else(|_| Err(unknown(NOT_DONE_YET)))
        }
        Some(leader) if leader.id != context.config.replica_id.get() => {
            let began_ns = now_ns();
            let forward = Forward {
                leader: leader.clone(),
                write: request.into_kind(),
                is_handover: R::IS_HANDOVER,
                deadline,
            };
            let forwarded = context.forwarder.forward(forward).await;
            let replica = context.config.replica_id;
            spans::forwarded(began_ns, replica, leader.id, &forwarded);
            let mismatched = || Status::internal("unexpected kind of outcome of a write");
            R::response(forwarded?).ok_or_else(mismatched)
        }
        _ => Err(status::not_leader(None)),
    }
}

/// More informative errors of earlier attempts.
#[derive(Default)]
struct EarlierErrors {
    /// A replica required for a membership change is silent.
    silent: Option<Status>,
    /// The write may have taken effect.
    open: Option<Status>,
}

impl EarlierErrors {
    /// The status to return if this attempt is the last: a membership change that times out while it asks a
    /// silent replica again reports that replica. Once any attempt had an unknown outcome, the write is never
    /// reported as certainly not done.
    fn combine(&mut self, status: Status) -> Status {
        let reason = ErrorReport::of(&status).reason;
        let better = match &*reason {
            UNREACHABLE => {
                self.silent = Some(status.clone());
                None
            }
            UNKNOWN_OUTCOME => {
                self.open = Some(status.clone());
                self.silent.clone()
            }
            reason if is_undone(reason) => self.open.clone(),
            _ => None,
        };
        better.unwrap_or(status)
    }

    /// The status to end with: a refusal for load, or because of an older replica, does not exclude that an
    /// earlier attempt took effect.
    fn unless_unknown(self, status: Status) -> Status {
        let reason = ErrorReport::of(&status).reason;
        let is_before_the_log = [OVERLOADED, FEATURE_NOT_YET].contains(&&*reason);
        self.open.filter(|_| is_before_the_log).unwrap_or(status)
    }
}

/// True if nothing was done, or if a repetition gets the same answer.
fn is_safe_to_repeat(is_repeatable: bool, status: &Status) -> bool {
    let may_pass = status.code() == Code::Unavailable;
    may_pass && (is_repeatable || is_undone(&ErrorReport::of(status).reason))
}

#[cfg(test)]
mod tests {
    use muster_proto::for_each_write;
    use muster_raft_store::ProposeError;

    use super::*;

    fn user_on_record<R: WriteRequest>(mut write: R, caller: &Caller) -> String {
        caller.sign(write.authors());
        record(&mut write, caller, None).user
    }

    macro_rules! users_on_record {
        ($($kind:ident: $request:ident => $response:ident,)*) => {
            /// Method of every write, and the user in its audit record.
            fn users_on_record(caller: &Caller) -> Vec<(&'static str, String)> {
                vec![$((
                    <v1::$request as WriteRequest>::METHOD.name,
                    user_on_record(v1::$request::default(), caller),
                )),*]
            }
        };
    }
    for_each_write!(users_on_record);

    #[test]
    fn every_write_is_audited_under_its_authenticated_caller() {
        for (caller, expected) in [
            (Caller::User("ada".to_owned()), "ada"),
            (Caller::Worker("gpu-1".to_owned()), "worker gpu-1"),
            (Caller::Replica, "a replica"),
        ] {
            for (method, user) in users_on_record(&caller) {
                assert_eq!(user, expected, "{method}");
            }
        }
    }

    #[test]
    fn a_write_that_is_not_idempotent_is_retried_only_if_it_was_not_done() {
        let open = unknown("leadership was lost");
        assert!(is_safe_to_repeat(true, &open));
        assert!(!is_safe_to_repeat(false, &open));
        assert!(is_safe_to_repeat(false, &status::not_leader(None)));
        let refused = status::error(Code::NotFound, "UNKNOWN_JOB", "no such job", &[]);
        assert!(!is_safe_to_repeat(true, &refused));
    }

    fn failed(reason: &str, why: &str) -> Status {
        status::error(Code::Unavailable, reason, why, &[])
    }

    #[test]
    fn a_change_that_times_out_on_a_silent_replica_names_that_replica() {
        let over = || failed(UNKNOWN_OUTCOME, "the change is still in progress");
        let mut earlier = EarlierErrors::default();
        let returned = earlier.combine(over());
        assert_eq!(returned.message(), "the change is still in progress");
        let silent = failed(UNREACHABLE, "replica 4 does not answer");
        let returned = earlier.combine(silent);
        assert_eq!(returned.message(), "replica 4 does not answer");
        let returned = earlier.combine(over());
        assert_eq!(returned.message(), "replica 4 does not answer");
    }

    #[test]
    fn a_write_with_an_unknown_outcome_is_never_reported_as_not_done() {
        let mut earlier = EarlierErrors::default();
        let returned = earlier.combine(status::not_leader(None));
        assert_eq!(ErrorReport::of(&returned).reason, status::NOT_LEADER);
        earlier.combine(unknown("leadership was lost"));
        let returned = earlier.combine(status::not_leader(None));
        assert_eq!(ErrorReport::of(&returned).reason, UNKNOWN_OUTCOME);
        assert_eq!(returned.message(), "leadership was lost");
        let overloaded = || propose_status(ProposeError::Overloaded { limit: 1 });
        let returned = earlier.unless_unknown(overloaded());
        assert_eq!(ErrorReport::of(&returned).reason, UNKNOWN_OUTCOME);
        let returned = EarlierErrors::default().unless_unknown(overloaded());
        assert_eq!(ErrorReport::of(&returned).reason, OVERLOADED);
        let mut earlier = EarlierErrors::default();
        earlier.combine(unknown("leadership was lost"));
        let refused = status::error(Code::NotFound, "UNKNOWN_JOB", "no such job", &[]);
        let returned = earlier.unless_unknown(refused);
        assert_eq!(ErrorReport::of(&returned).reason, "UNKNOWN_JOB");
    }

    #[test]
    fn without_authentication_the_author_in_the_request_counts() {
        let cancel = v1::CancelJobRequest {
            author: "mallory".to_owned(),
            ..v1::CancelJobRequest::default()
        };
        assert_eq!(
            user_on_record(cancel.clone(), &Caller::AuthenticationOff),
            "mallory"
        );
        assert_eq!(user_on_record(cancel, &Caller::Replica), "a replica");
        let join = v1::UseJoinTokenRequest {
            id: "rack-7".to_owned(),
            ..v1::UseJoinTokenRequest::default()
        };
        assert_eq!(
            user_on_record(join, &Caller::Unauthenticated),
            "join token rack-7"
        );
    }
}
