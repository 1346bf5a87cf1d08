//! Proposals of commands, on the leader.

use muster_engine::apply::apply;
use muster_engine::state::{Answer, State};
use muster_model::command::Command;
use muster_model::ids::Revision;
use muster_model::rejection::Rejection;
use muster_model::time::TimeMs;
use muster_proto::status;
use muster_raft_store::ProposeError;
use tonic::{Code, Status};

use crate::leader::feature_level;
use crate::service::context::Context;
use crate::service::write::{OVERLOADED, RETRY, UNKNOWN_OUTCOME, answer_limit};

/// A command that is proposed, or only rehearsed for a dry run.
pub(crate) struct Proposal {
    pub(super) command: Command,
    pub(super) is_dry_run: bool,
}

impl Proposal {
    /// The proposal of a converted request.
    pub(super) fn new(
        is_dry_run: bool,
        converted: Result<Command, Rejection>,
    ) -> Result<Self, Status> {
        checked(converted).map(|command| Self {
            command,
            is_dry_run,
        })
    }
}

/// A command that was carried out.
pub(super) struct CarriedOut {
    /// The state at which the command was rehearsed.
    pub(super) before: State,
    /// The rehearsed state.
    pub(super) after: State,
    /// Revision at which the command took effect, or at which it was rehearsed for a dry run.
    pub(super) revision: u64,
}

/// The converted request, or the status of its refusal.
pub(super) fn checked(converted: Result<Command, Rejection>) -> Result<Command, Status> {
    converted.map_err(|rejection| status::status_of(&rejection))
}

/// The state before and after a command; refuses what would be refused now.
pub(super) fn rehearse(context: &Context, command: &Command) -> Result<(State, State), Status> {
    let before = context.fork();
    let mut after = before.clone();
    let time = TimeMs(context.handle.now_ms());
    apply(&mut after, time, command)
        .result
        .map_err(|rejection| status::status_of(&rejection))?;
    Ok((before, after))
}

/// Rehearses a command and, unless it is a dry run, proposes it.
pub(super) async fn carry_out(context: &Context, proposal: Proposal) -> Result<CarriedOut, Status> {
    let (before, after) = rehearse(context, &proposal.command)?;
    let revision = if proposal.is_dry_run {
        before.revision.get()
    } else {
        commit(context, proposal.command).await?
    };
    Ok(CarriedOut {
        before,
        after,
        revision,
    })
}

/// Refuses a command that a replica of an older build could not read.
pub(super) fn check_level(context: &Context, command: &Command) -> Result<(), Status> {
    let level = context.heartbeats.lock().command_format();
    feature_level::check(command, level)
}

/// Proposes one command and returns its revision; a command that is done already is not proposed.
pub(super) async fn commit(context: &Context, command: Command) -> Result<u64, Status> {
    let done = context
        .handle
        .with_state(|state| answer_limit::is_done(state, &command).then_some(state.revision));
    let revision = match done {
        Some(revision) => revision,
        None => propose(context, command).await?.0,
    };
    Ok(revision.get())
}

/// Proposes one command and returns its revision and answer.
pub(super) async fn propose(
    context: &Context,
    command: Command,
) -> Result<(Revision, Answer), Status> {
    check_level(context, &command)?;
    context
        .handle
        .with_state(|state| answer_limit::check(state, &command))
        .map_err(|rejection| status::status_of(&rejection))?;
    let outcomes = context
        .handle
        .propose(vec![command])
        .await
        .map_err(propose_status)?;
    let applied = outcomes
        .into_iter()
        .next()
        .ok_or_else(|| Status::internal("a proposal of one command has no outcome"))?;
    let answer = applied
        .result
        .map_err(|rejection| status::status_of(&rejection))?;
    Ok((applied.revision, answer))
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
