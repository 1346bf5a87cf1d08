//! State that a read is answered from.

pub(super) mod export;
pub(super) mod page;
pub(super) mod past_state;

use std::time::Duration;

use muster_engine::state::State;
use muster_proto::status;
use muster_proto::v1::Consistency;
use muster_raft_store::ReadError;
use tokio::time::{Instant, sleep, timeout_at};
use tonic::{Code, Status};

use crate::service::context::Context;
use crate::service::write::leaders::Leaders;

/// Wait before a read position is asked for again.
const RETRY: Duration = Duration::from_millis(10);

/// A state of the requested consistency. On a follower the leader only returns the log position that this
/// replica must have applied, so reads do not load the leader further.
pub(crate) async fn state(
    context: &Context,
    consistency: i32,
    deadline: Instant,
) -> Result<State, Status> {
    let consistency = Consistency::try_from(consistency).map_err(|_| {
        status::error(
            Code::InvalidArgument,
            "INVALID_REQUEST",
            &format!("consistency: unknown value {consistency}"),
            &[],
        )
    })?;
    if consistency != Consistency::Stale {
        linearize(context, deadline).await?;
    }
    Ok(context.fork())
}

/// The state for a read: of the requested consistency, or at a past revision if that is not 0.
pub(crate) async fn shown(
    context: &Context,
    consistency: i32,
    at_revision: u64,
    deadline: Instant,
) -> Result<State, Status> {
    let reached = context.handle.with_state(|state| state.revision.get());
    if at_revision == 0 || at_revision > reached {
        let state = state(context, consistency, deadline).await?;
        if at_revision == 0 || at_revision == state.revision.get() {
            return Ok(state);
        }
    }
    past_state::state(context, at_revision, deadline).await
}

async fn linearize(context: &Context, deadline: Instant) -> Result<(), Status> {
    let leaders = Leaders::of(&context.handle);
    tokio::select! {
        biased;
        caught_up = catch_up(context, &leaders, deadline) => caught_up,
        () = leaders.isolated() => Err(status::not_leader(None)),
    }
}

/// Applies what was committed before the call.
async fn catch_up(context: &Context, leaders: &Leaders, deadline: Instant) -> Result<(), Status> {
    let mut before = None;
    loop {
        let leader = leaders.address();
        let read = async {
            tokio::select! {
                biased;
                read = context.handle.read_linearizable() => read,
                () = leaders.changed_from(leader.as_deref()) => Err(ReadError::NotLeader { leader: None }),
            }
        };
        let error = match timeout_at(deadline, read).await {
            Ok(Ok(())) => return Ok(()),
            Ok(Err(ReadError::Stopped)) => {
                return Err(read_status(&ReadError::Stopped));
            }
            Ok(Err(error)) => error,
            // The error of the last completed attempt is more informative than this timeout.
            Err(_) => before.take().unwrap_or_else(|| {
                ReadError::NoQuorum("the request's deadline has passed".to_owned())
            }),
        };
        if Instant::now() + RETRY >= deadline {
            return Err(read_status(&error));
        }
        before = Some(error);
        sleep(RETRY).await;
    }
}

fn read_status(error: &ReadError) -> Status {
    let message = error.to_string();
    match error {
        ReadError::NotLeader { leader } => {
            status::not_leader(leader.as_ref().map(|peer| peer.address.as_str()))
        }
        ReadError::NoQuorum(_) => {
            status::retryable(Code::Unavailable, "NO_QUORUM", &message, &[], 10 * RETRY)
        }
        ReadError::Stopped => status::retryable(Code::Unavailable, "STOPPED", &message, &[], RETRY),
    }
}
