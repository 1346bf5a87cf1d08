//! Execution of a client's write on the leader: a command in the log, or an order to a worker.

use muster_engine::apply::apply;
use muster_engine::state::{Answer, State};
use muster_model::command::Command;
use muster_model::ids::{JobId, Revision};
use muster_model::rejection::Rejection;
use muster_model::spec::{JobSpec, Violation, check_submission};
use muster_model::time::TimeMs;
use muster_proto::convert::{
    add_join_token_command, add_user_command, block_command, cancel_command,
    configure_queues_command, remove_user_command, reset_breaker_command, resume_command,
    revoke_join_token_command, rotate_token_command, set_queue_command, set_topology_command,
    submit_command, submit_pipeline_command, suspend_command, unblock_command,
    use_join_token_command,
};
use muster_proto::v1::write::Kind;
use muster_proto::v1::write_result::Kind as Outcome;
use muster_proto::{status, v1};
use muster_raft_store::MembershipError;
use muster_service::tracing::now_ns;
use tokio::time::Instant;
use tonic::{Code, Status};

use crate::leader::feature_level;
use crate::service::admin::replicas;
use crate::service::cluster::health::set_health_rules_command;
use crate::service::cluster::{configuration, health, impact};
use crate::service::context::Context;
use crate::service::jobs::pipelines;
use crate::service::replies::{inject, injected_gpu};
use crate::service::write::{UNREACHABLE, kept_answers, propose_status};
use crate::spans;

/// Checks everything that needs no state, so that a bad request is refused by the replica that received it.
pub(crate) fn check(write: &Kind) -> Result<(), Status> {
    match write.clone() {
        Kind::SubmitJob(request) => drop(command(submit_command(request))?),
        Kind::SubmitPipeline(request) => drop(command(submit_pipeline_command(request))?),
        Kind::CancelJob(request) => drop(command(cancel_command(request))?),
        Kind::SuspendJob(request) => drop(command(suspend_command(request))?),
        Kind::ResumeJob(request) => drop(command(resume_command(request))?),
        Kind::Block(request) => drop(command(block_command(request))?),
        Kind::Unblock(request) => drop(command(unblock_command(request))?),
        Kind::SetQueue(request) => drop(command(set_queue_command(request))?),
        Kind::ConfigureQueues(request) => drop(command(configure_queues_command(request))?),
        Kind::SetTopology(request) => drop(command(set_topology_command(request))?),
        Kind::SetHealthRules(request) => drop(command(set_health_rules_command(request))?),
        Kind::ResetBreaker(request) => drop(command(reset_breaker_command(request))?),
        Kind::AddUser(request) => drop(command(add_user_command(request))?),
        Kind::RemoveUser(request) => drop(command(remove_user_command(request))?),
        Kind::RotateUserToken(request) => drop(command(rotate_token_command(request))?),
        Kind::AddJoinToken(request) => drop(command(add_join_token_command(request))?),
        Kind::RevokeJoinToken(request) => drop(command(revoke_join_token_command(request))?),
        Kind::UseJoinToken(request) => drop(command(use_join_token_command(request))?),
        Kind::InjectFault(request) => drop(injected_gpu(&request)?),
        Kind::ChangeReplicas(request) => drop(replicas::change(&request)?),
        Kind::TransferLeader(_) => {}
    }
    Ok(())
}

/// Executes a write here; NOT_LEADER if this replica does not lead.
pub(crate) async fn execute(
    context: &Context,
    write: Kind,
    deadline: Instant,
) -> Result<Outcome, Status> {
    match write {
        Kind::SubmitJob(request) => submit(context, request).await.map(Outcome::SubmitJob),
        Kind::SubmitPipeline(request) => pipelines::submit(context, request)
            .await
            .map(Outcome::SubmitPipeline),
        Kind::CancelJob(request) => cancel(context, request).await.map(Outcome::CancelJob),
        Kind::SuspendJob(request) => {
            let (revision, _) = propose(context, command(suspend_command(request))?).await?;
            Ok(Outcome::SuspendJob(v1::SuspendJobResponse {
                revision: revision.get(),
            }))
        }
        Kind::ResumeJob(request) => {
            let (revision, _) = propose(context, command(resume_command(request))?).await?;
            Ok(Outcome::ResumeJob(v1::ResumeJobResponse {
                revision: revision.get(),
            }))
        }
        Kind::Block(request) => block(context, request).await.map(Outcome::Block),
        Kind::Unblock(request) => {
            let (revision, _) = propose(context, command(unblock_command(request))?).await?;
            Ok(Outcome::Unblock(v1::UnblockResponse {
                revision: revision.get(),
            }))
        }
        Kind::SetQueue(request) => {
            let (revision, _) = propose(context, command(set_queue_command(request))?).await?;
            Ok(Outcome::SetQueue(v1::SetQueueResponse {
                revision: revision.get(),
            }))
        }
        Kind::ConfigureQueues(request) => configuration::configure_queues(context, request)
            .await
            .map(Outcome::ConfigureQueues),
        Kind::SetTopology(request) => configuration::set_topology(context, request)
            .await
            .map(Outcome::SetTopology),
        Kind::SetHealthRules(request) => health::set_rules(context, request)
            .await
            .map(Outcome::SetHealthRules),
        Kind::ResetBreaker(request) => health::reset_breaker(context, request)
            .await
            .map(Outcome::ResetBreaker),
        write @ (Kind::AddUser(_)
        | Kind::RemoveUser(_)
        | Kind::RotateUserToken(_)
        | Kind::AddJoinToken(_)
        | Kind::RevokeJoinToken(_)
        | Kind::UseJoinToken(_)) => change_access(context, write).await,
        Kind::TransferLeader(request) => transfer(context, request)
            .await
            .map(Outcome::TransferLeader),
        Kind::ChangeReplicas(request) => replicas::change_here(context, request, deadline)
            .await
            .map(Outcome::ChangeReplicas),
        Kind::InjectFault(request) => inject(context, request, deadline)
            .await
            .map(Outcome::InjectFault),
    }
}

/// Changes users and their roles.
async fn change_access(context: &Context, write: Kind) -> Result<Outcome, Status> {
    match write {
        Kind::AddUser(request) => {
            let (revision, _) = propose(context, command(add_user_command(request))?).await?;
            let revision = revision.get();
            Ok(Outcome::AddUser(v1::AddUserResponse { revision }))
        }
        Kind::RemoveUser(request) => {
            let (revision, _) = propose(context, command(remove_user_command(request))?).await?;
            let revision = revision.get();
            Ok(Outcome::RemoveUser(v1::RemoveUserResponse { revision }))
        }
        Kind::RotateUserToken(request) => {
            let (revision, _) = propose(context, command(rotate_token_command(request))?).await?;
            let revision = revision.get();
            Ok(Outcome::RotateUserToken(v1::RotateUserTokenResponse {
                revision,
            }))
        }
        other => change_join_tokens(context, other).await,
    }
}

/// Changes join tokens.
async fn change_join_tokens(context: &Context, write: Kind) -> Result<Outcome, Status> {
    let at = async |converted| {
        let (revision, _) = propose(context, command(converted)?).await?;
        Ok::<u64, Status>(revision.get())
    };
    match write {
        Kind::AddJoinToken(request) => {
            let revision = at(add_join_token_command(request)).await?;
            Ok(Outcome::AddJoinToken(v1::AddJoinTokenResponse { revision }))
        }
        Kind::RevokeJoinToken(request) => {
            let revision = at(revoke_join_token_command(request)).await?;
            let response = v1::RevokeJoinTokenResponse { revision };
            Ok(Outcome::RevokeJoinToken(response))
        }
        Kind::UseJoinToken(request) => {
            let revision = at(use_join_token_command(request)).await?;
            Ok(Outcome::UseJoinToken(v1::UseJoinTokenResponse { revision }))
        }
        _ => Err(Status::internal("unexpected write kind")),
    }
}

pub(crate) fn command(
    converted: Result<Command, muster_model::rejection::Rejection>,
) -> Result<Command, Status> {
    converted.map_err(|rejection| status::status_of(&rejection))
}

/// The state before and after a command; refuses what would be refused now.
pub(crate) fn rehearse(context: &Context, command: &Command) -> Result<(State, State), Status> {
    let before = context.fork();
    let mut after = before.clone();
    let time = TimeMs(context.handle.now_ms());
    apply(&mut after, time, command)
        .result
        .map_err(|rejection| status::status_of(&rejection))?;
    Ok((before, after))
}

/// Rules for new jobs beyond those of `apply`. The heartbeat interval of this cluster is too long for a
/// shorter lease: every attempt would be fenced at once.
pub(crate) fn check_specs(context: &Context, command: &Command) -> Result<(), Status> {
    let timings = context.config.timings;
    let least_ms = timings.partition_grace_ms_min();
    let specs: Vec<(String, &JobSpec)> = match command {
        Command::SubmitJob { spec, .. } => vec![(String::new(), spec.as_ref())],
        Command::SubmitPipeline { pipeline, .. } => {
            let jobs = pipeline.jobs.iter().enumerate();
            jobs.map(|(position, job)| (format!("jobs[{position}]."), job.spec.as_ref()))
                .collect()
        }
        _ => Vec::new(),
    };
    let mut violations = Vec::new();
    for (at, spec) in specs {
        let mut of_job = check_submission(spec);
        if spec.partition_grace_ms < least_ms {
            of_job.push(Violation {
                field: "partition_grace_ms".to_owned(),
                rule: format!(
                    "must be at least {least_ms} in this cluster with a heartbeat interval of {} ms",
                    timings.beat_ms
                ),
            });
        }
        violations.extend(of_job.into_iter().map(|rule| Violation {
            field: format!("{at}{}", rule.field),
            ..rule
        }));
    }
    if violations.is_empty() {
        return Ok(());
    }
    Err(status::status_of(&Rejection::InvalidSpec(violations)))
}

/// Refuses a command that a replica of an older build could not read.
pub(crate) fn check_level(context: &Context, command: &Command) -> Result<(), Status> {
    let level = context.shadows.lock().command_format();
    feature_level::check(command, level)
}

/// Proposes one command and returns its revision and answer.
pub(crate) async fn propose(
    context: &Context,
    command: Command,
) -> Result<(Revision, Answer), Status> {
    check_level(context, &command)?;
    context
        .handle
        .with_state(|state| kept_answers::check(state, &command))
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

async fn cancel(
    context: &Context,
    request: v1::CancelJobRequest,
) -> Result<v1::CancelJobResponse, Status> {
    let command = command(cancel_command(request))?;
    let done = context
        .handle
        .with_state(|state| kept_answers::is_done(state, &command).then_some(state.revision));
    let revision = match done {
        Some(revision) => revision,
        None => propose(context, command).await?.0,
    };
    Ok(v1::CancelJobResponse {
        revision: revision.get(),
    })
}

async fn submit(
    context: &Context,
    request: v1::SubmitJobRequest,
) -> Result<v1::SubmitJobResponse, Status> {
    let is_rehearsal = request.validate_only;
    let command = command(submit_command(request))?;
    check_specs(context, &command)?;
    check_level(context, &command)?;
    if is_rehearsal {
        let (state, _) = rehearse(context, &command)?;
        return Ok(v1::SubmitJobResponse {
            job_id: 0,
            revision: state.revision.get(),
            repeated: false,
        });
    }
    let began_ns = now_ns();
    let (revision, answer) = propose(context, command).await?;
    let Answer::Job(JobId(job_id)) = answer else {
        return Err(Status::internal("unexpected outcome of a submission"));
    };
    // A job's id is the revision of its submission.
    let repeated = job_id != revision.get();
    let response = v1::SubmitJobResponse {
        job_id,
        revision: revision.get(),
        repeated,
    };
    spans::proposed(began_ns, context.config.replica_id, &response);
    Ok(response)
}

async fn block(context: &Context, request: v1::BlockRequest) -> Result<v1::BlockResponse, Status> {
    let is_rehearsal = request.dry_run;
    let command = command(block_command(request))?;
    let Command::Block { target, block, .. } = &command else {
        return Err(Status::internal("unexpected block command"));
    };
    let state = context.fork();
    let impact = impact::of_block(&state, target, block.planned.is_some());
    let impact = impact.map_err(|error| status::status_of(&error))?;
    if is_rehearsal {
        return Ok(v1::BlockResponse {
            revision: state.revision.get(),
            impact: Some(impact),
        });
    }
    let (revision, _) = propose(context, command).await?;
    Ok(v1::BlockResponse {
        revision: revision.get(),
        impact: Some(impact),
    })
}

async fn transfer(
    context: &Context,
    request: v1::TransferLeaderRequest,
) -> Result<v1::TransferLeaderResponse, Status> {
    let to = match request.to_replica_id {
        0 => context.handle.successor().ok_or_else(|| {
            status::error(
                Code::FailedPrecondition,
                "NO_OTHER_REPLICA",
                "no other voter is reachable and up to date",
                &[],
            )
        })?,
        named => named,
    };
    context
        .handle
        .transfer_leader(to)
        .await
        .map_err(|error| membership_status(&error))?;
    Ok(v1::TransferLeaderResponse { to_replica_id: to })
}

/// Converts a failed change of leadership or membership for the caller.
pub(crate) fn membership_status(error: &MembershipError) -> Status {
    let message = error.to_string();
    match error {
        MembershipError::NotLeader { leader } => {
            status::not_leader(leader.as_ref().map(|peer| peer.address.as_str()))
        }
        MembershipError::Unreachable { .. } => {
            status::error(Code::Unavailable, "REPLICA_UNREACHABLE", &message, &[])
        }
        MembershipError::NotTaken { .. } | MembershipError::Unknown | MembershipError::Stopped => {
            status::error(Code::Unavailable, UNREACHABLE, &message, &[])
        }
        // A new leader has no contact to some voters yet: a retry may help.
        MembershipError::VotersSilent { .. } => {
            status::error(Code::Unavailable, "NO_QUORUM", &message, &[])
        }
        MembershipError::LearnerSilent { .. } | MembershipError::LearnerLags { .. } => {
            status::error(Code::FailedPrecondition, "NOT_LEVEL", &message, &[])
        }
        MembershipError::AlreadyInitialized
        | MembershipError::PeerHasGroup { .. }
        | MembershipError::UnknownMember { .. }
        | MembershipError::SuccessorSilent { .. }
        | MembershipError::SuccessorLags { .. }
        | MembershipError::Stranger { .. }
        | MembershipError::Refused(_) => {
            status::error(Code::FailedPrecondition, "REFUSED", &message, &[])
        }
    }
}
