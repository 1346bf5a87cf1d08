//! Debug information and log levels of a process: this replica, or a worker whose stream this leader serves.

use std::time::Duration;

use muster_model::rejection::Rejection;
use muster_model::time::TimeMs;
use muster_proto::status::{self, status_of};
use muster_proto::v1;
use muster_proto::v1::debug_answer::What as Answered;
use muster_proto::v1::debug_order::What as Asked;
use muster_proto::v1::debug_target::Process;
use muster_service::logging::{InvalidLevel, LevelChange, LogControl};
use tokio::time::{Instant, timeout_at};
use tonic::{Code, Status};

use crate::leader::ToWorker;
use crate::metrics;
use crate::service::context::Context;
use crate::service::peer::recipient::Recipient;
use crate::service::replies::{HOST_UNREACHABLE, unreachable};

/// Question to a process.
pub(crate) enum Question {
    SetLogLevel(v1::SetLogLevelRequest),
    Info,
}

/// Answer of a process.
pub(crate) enum Answer {
    LogLevel(v1::SetLogLevelResponse),
    Info(Box<v1::GetDebugInfoResponse>),
}

/// Error for an answer to another question.
pub(crate) fn mismatched() -> Status {
    Status::internal("unexpected kind of answer from a process")
}

/// Subject of a question, for the audit log.
pub(crate) fn subject(target: Option<&v1::DebugTarget>) -> String {
    match target.and_then(|target| target.process.as_ref()) {
        Some(Process::ReplicaId(replica)) => format!("replica {replica}"),
        Some(Process::Host(host)) => format!("worker of host {host}"),
        None => String::new(),
    }
}

/// Asks this replica or a worker.
pub(crate) async fn ask(
    context: &Context,
    target: Option<v1::DebugTarget>,
    question: Question,
    deadline: Instant,
) -> Result<Answer, Status> {
    match target.and_then(|target| target.process) {
        Some(Process::ReplicaId(replica)) => {
            let meant = Recipient {
                cluster_id: None,
                replica_id: Some(replica),
            };
            meant.check(&context.config.cluster_id, context.config.replica_id)?;
            match question {
                Question::SetLogLevel(request) => set_level(&request).map(Answer::LogLevel),
                Question::Info => Ok(Answer::Info(Box::new(info(context)?))),
            }
        }
        Some(Process::Host(host)) => ask_worker(context, host, question, deadline).await,
        None => Err(invalid("target: must name a replica or a host")),
    }
}

fn invalid(message: &str) -> Status {
    status::error(Code::InvalidArgument, "INVALID_REQUEST", message, &[])
}

/// Log control of this process; unavailable in tests.
fn control() -> Result<&'static LogControl, Status> {
    muster_service::logging::control().ok_or_else(|| {
        let message = "this process has no log control";
        status::error(Code::FailedPrecondition, "NO_LOG", message, &[])
    })
}

/// Checks a change before it is sent to a process.
pub(crate) fn check(request: &v1::SetLogLevelRequest) -> Result<LevelChange, Status> {
    let change: Result<LevelChange, InvalidLevel> = request.change.parse();
    change.map_err(|error| invalid(&format!("change: {error}")))
}

fn set_level(request: &v1::SetLogLevelRequest) -> Result<v1::SetLogLevelResponse, Status> {
    let change = check(request)?;
    let changed = control()?.change(&change, Duration::from_millis(request.for_ms));
    match changed {
        Ok(filter) => Ok(v1::SetLogLevelResponse { filter }),
        Err(error @ InvalidLevel::Duration { .. }) => Err(invalid(&format!("for_ms: {error}"))),
        Err(error) => {
            let reason = "LEVELS_FULL";
            let message = error.to_string();
            Err(status::error(
                Code::FailedPrecondition,
                reason,
                &message,
                &[],
            ))
        }
    }
}

fn info(context: &Context) -> Result<v1::GetDebugInfoResponse, Status> {
    let settings = serde_json::to_value(&*context.settings.borrow())
        .map_err(|error| Status::internal(format!("cannot serialize the settings: {error}")))?;
    let exporter = muster_service::exporter::install().map_err(Status::internal)?;
    let now = TimeMs(context.handle.now_ms());
    let page = exporter.render() + &metrics::lists(&context.handle.fork(), now);
    Ok(v1::GetDebugInfoResponse {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        settings: muster_service::logging::redact_value(settings).to_string(),
        log_filter: muster_service::logging::control().map_or_else(String::new, LogControl::filter),
        log_lines: muster_service::logging::recent_lines(),
        metrics: muster_service::logging::redact(&page),
    })
}

async fn ask_worker(
    context: &Context,
    host: String,
    question: Question,
    deadline: Instant,
) -> Result<Answer, Status> {
    let leadership = context.handle.leadership().borrow().clone();
    if !leadership.is_self {
        let leader = leadership.leader.as_ref().map(|peer| peer.address.as_str());
        return Err(status::not_leader(leader));
    }
    let what = match question {
        Question::SetLogLevel(request) => {
            check(&request)?;
            Asked::SetLogLevel(request)
        }
        Question::Info => Asked::Tell(v1::debug_order::Tell {}),
    };
    let id = context
        .handle
        .with_state(|state| state.host_by_name(&host).map(|host| host.id))
        .ok_or_else(|| status_of(&Rejection::UnknownHost(host.clone())))?;
    let (session, worker) = context
        .directory
        .find(id)
        .ok_or_else(|| unreachable(&host))?;
    let (awaited, answer) = context.replies().expect_debug(session);
    let order = v1::DebugOrder {
        id: awaited.id,
        what: Some(what),
    };
    if worker.try_send(ToWorker::Debug(Box::new(order))).is_err() {
        return Err(unreachable(&host));
    }
    let answered = timeout_at(deadline, answer).await;
    match answered {
        Ok(Ok(answer)) => of_worker(answer),
        Ok(Err(_)) => Err(unreachable(&host)),
        Err(_) => Err(status::error(
            Code::DeadlineExceeded,
            HOST_UNREACHABLE,
            &format!(
                "the worker of host `{host}` did not answer before the timeout; workers of older versions never answer"
            ),
            &[("host", host)],
        )),
    }
}

fn of_worker(answer: v1::DebugAnswer) -> Result<Answer, Status> {
    match answer.what {
        Some(Answered::LogLevel(level)) => Ok(Answer::LogLevel(level)),
        Some(Answered::Info(info)) => Ok(Answer::Info(Box::new(info))),
        Some(Answered::Error(error)) => Err(invalid(&error)),
        None => Err(mismatched()),
    }
}
