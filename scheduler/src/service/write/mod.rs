//! Client writes, from any replica to the leader, with the retries that `request_id` makes safe.

pub(super) mod deadline;
pub(super) mod forward;
pub(super) mod kept_answers;
pub(super) mod leaders;
pub(super) mod local_write;
pub(super) mod unanswered;

use std::net::SocketAddr;
use std::pin::pin;
use std::time::Duration;

use muster_proto::status::{self, ErrorReport};
use muster_proto::v1;
use muster_proto::v1::write::Kind;
use muster_proto::v1::write_result::Kind as Outcome;
use muster_raft_store::{Leadership, ProposeError};
use muster_service::tracing::now_ns;
use tokio::time::{Instant, sleep_until, timeout_at};
use tonic::{Code, Status};

use crate::audit_log::Record;
use crate::leader::feature_level::FEATURE_NOT_YET;
use crate::service::context::Context;
use crate::service::gate::Caller;
use crate::service::peer::addressee::is_undone;
use crate::service::read;
use crate::service::write::forward::unknown;
use crate::service::write::leaders::Leaders;
use crate::spans;

/// Reason of a failure whose effect is unknown; repeating the request is safe.
pub(crate) const UNKNOWN_OUTCOME: &str = "UNKNOWN_OUTCOME";
/// Reason of a failure because a required replica does not answer.
pub(crate) const UNREACHABLE: &str = "UNREACHABLE";
/// Reason of a refusal for load.
const OVERLOADED: &str = "OVERLOADED";
/// Message if a leader has lost its majority meanwhile.
const NOBODY_LEADS: &str = "this replica lost contact to the leader during the write";
/// Message if a majority or another participant does not answer in time.
const NOT_DONE_YET: &str = "the write timed out and may still take effect";
/// Wait before a write is tried again.
const RETRY: Duration = Duration::from_millis(10);

/// Deadline, address and identity of a caller.
pub(crate) type Calling = (Instant, Option<SocketAddr>, Caller);

/// Executes a write: here if this replica leads, at the leader otherwise; waits for a leader for as long as
/// an election may take, and retries until the deadline. Write, caller and answer are recorded in the audit
/// log, also if the caller does not wait for the answer.
pub(crate) async fn write(
    context: &Context,
    mut write: Kind,
    (deadline, from, caller): Calling,
) -> Result<Outcome, Status> {
    caller.sign(&mut write);
    let unanswered = context.unanswered(record(name(&write), (&write, &caller), from));
    let result = match permit(context, &caller, &write, deadline).await {
        Ok(()) => attempts(context, write, deadline).await,
        Err(refusal) => Err(refusal),
    };
    unanswered.answer(|it| it.answered(&result)).await;
    result
}

/// Audit record of a write under the authenticated name: not every write has an author field, and a replica's
/// certificate proves none of the names that it may pass on.
fn record(name: &str, (write, caller): (&Kind, &Caller), from: Option<SocketAddr>) -> Record {
    let record = Record::of(name, write, from);
    Record {
        user: caller.on_record(record.user),
        ..record
    }
}

/// Refuses a write that the caller has no right to. A job unknown here may be known to the leader.
async fn permit(
    context: &Context,
    caller: &Caller,
    write: &Kind,
    deadline: Instant,
) -> Result<(), Status> {
    let checked = context
        .handle
        .with_state(|state| caller.check(state, write));
    match checked {
        Err(refusal) if refusal.code() == Code::NotFound => {
            let newest = v1::Consistency::Linearizable.into();
            let state = read::state(context, newest, deadline).await?;
            caller.check(&state, write)
        }
        checked => checked,
    }
}

async fn attempts(context: &Context, write: Kind, deadline: Instant) -> Result<Outcome, Status> {
    let mut leadership = context.handle.leadership();
    if !leadership.borrow().is_self {
        // The leader checks when it converts; here a bad request need not wait for a leader.
        local_write::check(&write)?;
    }
    let leaders = Leaders::of(&context.handle);
    let mut nobody = pin!(leaders.nobody());
    // A transfer of leadership is answered by the old leader.
    let hands_over = matches!(write, Kind::TransferLeader(_));
    let mut earlier = Earlier::default();
    loop {
        let now = leadership.borrow_and_update().clone();
        let (result, is_last) = tokio::select! {
            biased;
            result = attempt(context, &now, write.clone(), deadline) => (result, false),
            () = &mut nobody, if !hands_over => (Err(unknown(NOBODY_LEADS)), true),
        };
        let status = match result {
            Ok(outcome) => return Ok(outcome),
            Err(status) if is_safe_to_repeat(&write, &status) => earlier.weigh(status),
            Err(status) => return Err(earlier.unless_open(status)),
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
            () = &mut nobody => true,
            _ = timeout_at(limit, change) => Instant::now() >= deadline,
        };
        if is_over {
            return Err(status);
        }
    }
}

/// One attempt, at the current leader.
async fn attempt(
    context: &Context,
    now: &Leadership,
    write: Kind,
    deadline: Instant,
) -> Result<Outcome, Status> {
    match &now.leader {
        _ if now.is_self => {
            let executed = local_write::execute(context, write, deadline);
            let executed = timeout_at(deadline, executed).await;
            executed.unwrap_or_else(|_| Err(unknown(NOT_DONE_YET)))
        }
        Some(leader) if leader.id != context.config.replica_id.get() => {
            let began_ns = now_ns();
            let forwarded = context
                .forwarder
                .forward(leader.clone(), write, deadline)
                .await;
            let ids = (context.config.replica_id, leader.id);
            spans::forwarded(began_ns, ids, &forwarded);
            forwarded
        }
        _ => Err(status::not_leader(None)),
    }
}

/// More informative errors of earlier attempts.
#[derive(Default)]
struct Earlier {
    /// A replica required for a membership change is silent.
    silent: Option<Status>,
    /// The write may have taken effect.
    open: Option<Status>,
}

impl Earlier {
    /// The status to return if this attempt is the last: a membership change that times out while it asks a
    /// silent replica again reports that replica. Once any attempt had an unknown outcome, the write is never
    /// reported as certainly not done.
    fn weigh(&mut self, status: Status) -> Status {
        let reason = ErrorReport::of(&status).reason;
        let told = match &*reason {
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
        told.unwrap_or(status)
    }

    /// The status to end with: a refusal for load, or because of an older replica, does not exclude that an
    /// earlier attempt took effect.
    fn unless_open(self, status: Status) -> Status {
        let reason = ErrorReport::of(&status).reason;
        let is_before_the_log = [OVERLOADED, FEATURE_NOT_YET].contains(&&*reason);
        self.open.filter(|_| is_before_the_log).unwrap_or(status)
    }
}

/// True if nothing was done, or if a repetition gets the same answer.
fn is_safe_to_repeat(write: &Kind, status: &Status) -> bool {
    if status.code() != Code::Unavailable {
        return false;
    }
    let has_request_id = match write {
        Kind::SubmitJob(_)
        | Kind::SubmitPipeline(_)
        | Kind::CancelJob(_)
        | Kind::SuspendJob(_)
        | Kind::ResumeJob(_)
        | Kind::Block(_)
        | Kind::Unblock(_)
        | Kind::SetQueue(_)
        | Kind::ConfigureQueues(_)
        | Kind::SetTopology(_)
        | Kind::SetHealthRules(_)
        | Kind::ResetBreaker(_)
        | Kind::AddUser(_)
        | Kind::RemoveUser(_)
        | Kind::RotateUserToken(_)
        | Kind::AddJoinToken(_)
        | Kind::RevokeJoinToken(_)
        | Kind::UseJoinToken(_)
        // A repetition finds it done.
        | Kind::ChangeReplicas(_) => true,
        Kind::TransferLeader(_) | Kind::InjectFault(_) => false,
    };
    has_request_id || is_undone(&ErrorReport::of(status).reason)
}

/// Converts a failed proposal for the caller.
#[must_use]
pub fn propose_status(error: ProposeError) -> Status {
    let message = error.to_string();
    match error {
        ProposeError::NotLeader { leader } => {
            status::not_leader(leader.as_ref().map(|peer| peer.address.as_str()))
        }
        ProposeError::Unknown | ProposeError::Stopped => {
            status::retryable(Code::Unavailable, UNKNOWN_OUTCOME, &message, &[], RETRY)
        }
        ProposeError::Overloaded { .. } => status::retryable(
            Code::ResourceExhausted,
            OVERLOADED,
            &message,
            &[],
            10 * RETRY,
        ),
        ProposeError::TooLarge { .. } | ProposeError::TooMany { .. } => {
            status::error(Code::InvalidArgument, "TOO_LARGE", &message, &[])
        }
    }
}

const fn name(write: &Kind) -> &'static str {
    match write {
        Kind::SubmitJob(_) => "SubmitJob",
        Kind::SubmitPipeline(_) => "SubmitPipeline",
        Kind::CancelJob(_) => "CancelJob",
        Kind::SuspendJob(_) => "SuspendJob",
        Kind::ResumeJob(_) => "ResumeJob",
        Kind::Block(_) => "Block",
        Kind::Unblock(_) => "Unblock",
        Kind::SetQueue(_) => "SetQueue",
        Kind::ConfigureQueues(_) => "ConfigureQueues",
        Kind::SetTopology(_) => "SetTopology",
        Kind::SetHealthRules(_) => "SetHealthRules",
        Kind::ResetBreaker(_) => "ResetBreaker",
        Kind::AddUser(_) => "AddUser",
        Kind::RemoveUser(_) => "RemoveUser",
        Kind::RotateUserToken(_) => "RotateUserToken",
        Kind::AddJoinToken(_) => "AddJoinToken",
        Kind::RevokeJoinToken(_) => "RevokeJoinToken",
        Kind::UseJoinToken(_) => "Join",
        Kind::TransferLeader(_) => "TransferLeader",
        Kind::ChangeReplicas(_) => "ChangeReplicas",
        Kind::InjectFault(_) => "InjectFault",
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail by panicking")]
mod tests {
    use muster_proto::FILE_DESCRIPTOR_SET;
    use prost::Message as _;
    use prost_types::FileDescriptorSet;

    use super::*;

    /// Wire type in the key of a message field.
    const LENGTH_DELIMITED: usize = 2;

    /// One empty write of every kind in the schema.
    fn writes() -> Vec<Kind> {
        let set = FileDescriptorSet::decode(FILE_DESCRIPTOR_SET).unwrap();
        let mut files = { set.file.iter() }.filter(|file| file.package() == "muster.v1");
        let write = files.find_map(|file| {
            let mut messages = file.message_type.iter();
            messages.find(|message| message.name() == "Write")
        });
        let read = |number: i32| {
            let mut bytes = Vec::new();
            let key = (usize::try_from(number).unwrap() << 3) | LENGTH_DELIMITED;
            prost::encode_length_delimiter(key, &mut bytes).unwrap();
            bytes.push(0);
            v1::Write::decode(&*bytes).unwrap().kind.unwrap()
        };
        let fields = &write.unwrap().field;
        fields.iter().map(|field| read(field.number())).collect()
    }

    fn user_on_record(write: &Kind, caller: &Caller) -> String {
        record(name(write), (write, caller), None).user
    }

    #[test]
    fn every_write_is_on_record_under_what_its_caller_has_proven() {
        let ada = Caller::User("ada".to_owned());
        let worker = Caller::Worker("gpu-1".to_owned());
        let writes = writes();
        assert!(writes.iter().any(|it| name(it) == "SetQueue"));
        for mut write in writes {
            ada.sign(&mut write);
            for (caller, user) in [
                (&ada, "ada"),
                (&worker, "worker gpu-1"),
                (&Caller::Replica, "a replica"),
            ] {
                let found = user_on_record(&write, caller);
                assert_eq!(found, user, "{}", name(&write));
            }
        }
    }

    fn failed(reason: &str, why: &str) -> Status {
        status::error(Code::Unavailable, reason, why, &[])
    }

    #[test]
    fn a_change_that_waits_for_a_silent_replica_says_so_when_its_time_is_over() {
        let over = || failed(UNKNOWN_OUTCOME, "the change is still in progress");
        let mut earlier = Earlier::default();
        let told = earlier.weigh(over());
        assert_eq!(told.message(), "the change is still in progress");
        let silent = failed(UNREACHABLE, "replica 4 does not answer");
        let told = earlier.weigh(silent);
        assert_eq!(told.message(), "replica 4 does not answer");
        let told = earlier.weigh(over());
        assert_eq!(told.message(), "replica 4 does not answer");
    }

    #[test]
    fn a_write_that_may_have_been_done_is_not_called_undone() {
        let mut earlier = Earlier::default();
        let told = earlier.weigh(status::not_leader(None));
        assert_eq!(ErrorReport::of(&told).reason, status::NOT_LEADER);
        earlier.weigh(unknown("leadership was lost"));
        let told = earlier.weigh(status::not_leader(None));
        assert_eq!(ErrorReport::of(&told).reason, UNKNOWN_OUTCOME);
        assert_eq!(told.message(), "leadership was lost");
        let overloaded = || propose_status(ProposeError::Overloaded { limit: 1 });
        let told = earlier.unless_open(overloaded());
        assert_eq!(ErrorReport::of(&told).reason, UNKNOWN_OUTCOME);
        let told = Earlier::default().unless_open(overloaded());
        assert_eq!(ErrorReport::of(&told).reason, OVERLOADED);
        let mut earlier = Earlier::default();
        earlier.weigh(unknown("leadership was lost"));
        let refused = status::error(Code::NotFound, "UNKNOWN_JOB", "no such job", &[]);
        let told = earlier.unless_open(refused);
        assert_eq!(ErrorReport::of(&told).reason, "UNKNOWN_JOB");
    }

    #[test]
    fn what_a_call_says_counts_where_nobody_proves_anything() {
        let cancel = Kind::CancelJob(v1::CancelJobRequest {
            author: "mallory".to_owned(),
            ..v1::CancelJobRequest::default()
        });
        assert_eq!(user_on_record(&cancel, &Caller::Open), "mallory");
        assert_eq!(user_on_record(&cancel, &Caller::Replica), "a replica");
        let join = Kind::UseJoinToken(v1::UseJoinTokenRequest {
            id: "rack-7".to_owned(),
            ..v1::UseJoinTokenRequest::default()
        });
        assert_eq!(user_on_record(&join, &Caller::Nobody), "join token rack-7");
    }
}
