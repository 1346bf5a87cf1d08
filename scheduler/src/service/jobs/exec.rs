//! Exec sessions in running tasks: the leader pairs the stream of a user with that of a worker; a follower
//! forwards the user's stream to the leader.
//!
//! Nothing is started before the user has a stream to receive its start on, so a failed call may be repeated.
//! Each stream is bounded, and a slow reader blocks only its own command.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task;
use std::time::Duration;

use futures::stream::{BoxStream, Stream, iter};
use futures::{StreamExt as _, future};
use metrics::{counter, gauge};
use muster_engine::rights::may_enter;
use muster_engine::state::State;
use muster_model::access::Role;
use muster_model::ids::{AttemptEpoch, HostId, JobId, TaskIndex};
use muster_model::lifecycle::TaskPhase;
use muster_proto::v1::exec_request::Kind as FromUser;
use muster_proto::v1::exec_response::Kind as ToUser;
use muster_proto::{status, v1};
use tokio::sync::{OwnedSemaphorePermit, mpsc, oneshot};
use tokio::time::timeout;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Status, Streaming};

use crate::audit_log::Record;
use crate::leader::ToWorker;
use crate::metrics::names;
use crate::service::context::Context;
use crate::service::gate::Caller;
use crate::service::jobs::exec_input::{Inputs, forward_to_worker, opening, program};
use crate::service::jobs::find as find_job;
use crate::service::jobs::log_source::{host_name, unit_of};
use crate::service::replies::unreachable;
use crate::service::watch::access_guard::{AccessCheck, while_allowed};

/// Concurrent commands on one replica.
pub(crate) const EXEC_SESSIONS_MAX: usize = 256;
/// Messages of one command buffered for a slow reader.
const MESSAGES_MAX: usize = 8;
/// Longest wait for a worker's first message.
const ORDER_MAX: Duration = Duration::from_secs(5);
/// Longest wait for a worker that was sent an order.
const ANSWER_MAX: Duration = Duration::from_secs(8);

/// Stream of answers to a user.
pub(crate) type Answers = Pin<Box<dyn Stream<Item = Result<v1::ExecResponse, Status>> + Send>>;
/// Stream of orders to a worker.
pub(crate) type Orders = Pin<Box<dyn Stream<Item = Result<v1::ExecRequest, Status>> + Send>>;

/// Worker streams awaited by users, by token.
#[derive(Debug, Default)]
pub(crate) struct PendingPairs {
    waiting: Mutex<BTreeMap<String, oneshot::Sender<WorkerSide>>>,
}

/// The stream of a worker.
#[derive(Debug)]
struct WorkerSide {
    messages: Streaming<v1::ExecUp>,
    orders: mpsc::Sender<Result<v1::ExecRequest, Status>>,
}

/// An awaited worker stream; dropping it cancels the wait, as when the user leaves first.
struct AwaitedWorker<'a> {
    pairings: &'a PendingPairs,
    token: String,
    answer: oneshot::Receiver<WorkerSide>,
}

impl Drop for AwaitedWorker<'_> {
    fn drop(&mut self) {
        self.pairings.take(&self.token);
    }
}

impl PendingPairs {
    fn expect(&self) -> AwaitedWorker<'_> {
        let token = uuid::Uuid::new_v4().to_string();
        let (sender, answer) = oneshot::channel();
        self.lock().insert(token.clone(), sender);
        AwaitedWorker {
            pairings: self,
            token,
            answer,
        }
    }

    fn take(&self, token: &str) -> Option<oneshot::Sender<WorkerSide>> {
        self.lock().remove(token)
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, oneshot::Sender<WorkerSide>>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Runs a user's command: here if this replica leads, through the leader otherwise.
pub(crate) async fn start(
    context: &Context,
    mut messages: Streaming<v1::ExecRequest>,
    from: Option<SocketAddr>,
    caller: Caller,
) -> Result<Answers, Status> {
    let mut open = opening(&mut messages).await?;
    open.author = caller.author(open.author);
    open.by_admin = context
        .handle
        .with_state(|state| caller.is_admin(state) == Some(true));
    // The command may contain secrets: the record shows only who enters which task.
    let subject = format!("job {}, task {}", open.job_id, open.task);
    let who = caller.on_record(open.author.clone());
    let unanswered = context.unanswered(Record::of_call("Exec", &who, subject, from));
    let check = access_check(context, caller, JobId(open.job_id));
    let inputs = while_allowed(messages, Arc::clone(&check));
    let leadership = context.handle.leadership().borrow().clone();
    let started = match leadership.leader {
        _ if leadership.is_self => run_here(context, open, inputs),
        Some(leader) => start_through_leader(context, &leader.address, open, inputs).await,
        None => Err(status::not_leader(None)),
    };
    let refusal = started.as_ref().err();
    unanswered.answer(|it| it.answered_with(refusal)).await;
    started.map(|answers| while_allowed(answers, check))
}

/// Check whether a caller that has entered a task of a job may stay in it.
fn access_check(context: &Context, caller: Caller, job: JobId) -> AccessCheck {
    let context = context.clone();
    Arc::new(move || {
        let now_ms = context.handle.now_ms();
        let enters = |state: &State| caller.require_exec_still(state, now_ms, job);
        context.handle.with_state(enters)
    })
}

/// A command forwarded by another replica; NOT_LEADER if this one does not lead.
pub(crate) async fn start_here(
    context: &Context,
    mut messages: Streaming<v1::ExecRequest>,
) -> Result<Answers, Status> {
    let open = opening(&mut messages).await?;
    let leadership = context.handle.leadership().borrow().clone();
    if !leadership.is_self {
        let leader = leadership.leader.as_ref().map(|peer| peer.address.as_str());
        return Err(status::not_leader(leader));
    }
    run_here(context, open, messages.boxed())
}

async fn start_through_leader(
    context: &Context,
    leader: &str,
    open: v1::ExecOpen,
    messages: Inputs,
) -> Result<Answers, Status> {
    let mut client = context.peers.dedicated_client(leader)?;
    let answers = client
        .forward_exec(UserMessages::all(open, messages))
        .await?;
    Ok(Box::pin(answers.into_inner()))
}

/// All messages of a user. A named type, because the compiler cannot prove of a boxed stream that a call with
/// it is `Send`.
struct UserMessages(BoxStream<'static, v1::ExecRequest>);

impl UserMessages {
    /// A broken stream of the user ends the stream to the leader.
    fn all(open: v1::ExecOpen, messages: Inputs) -> Self {
        let first = v1::ExecRequest {
            kind: Some(FromUser::Open(open)),
        };
        let rest = messages
            .take_while(|message| future::ready(message.is_ok()))
            .filter_map(|message| future::ready(message.ok()));
        Self(iter([first]).chain(rest).boxed())
    }
}

impl Stream for UserMessages {
    type Item = v1::ExecRequest;

    fn poll_next(
        mut self: Pin<&mut Self>,
        context: &mut task::Context<'_>,
    ) -> task::Poll<Option<Self::Item>> {
        self.0.poll_next_unpin(context)
    }
}

/// Location of a command.
struct ExecTarget {
    epoch: AttemptEpoch,
    attempt: u32,
    host: HostId,
    host_name: String,
}

fn run_here(context: &Context, open: v1::ExecOpen, messages: Inputs) -> Result<Answers, Status> {
    let permit = context.admit_exec()?;
    let target = find_target(context, &context.fork(), &open).inspect_err(|_| {
        counter!(names::EXECS_REFUSED_TOTAL).increment(1);
    })?;
    if context.directory.find(target.host).is_none() {
        return Err(unreachable(&target.host_name));
    }
    let (answers, receiver) = mpsc::channel(MESSAGES_MAX);
    let session = Session {
        context: context.clone(),
        open,
        target,
        answers,
        _permit: permit,
    };
    tokio::spawn(session.run(messages));
    Ok(Box::pin(ReceiverStream::new(receiver)))
}

fn find_target(
    context: &Context,
    state: &State,
    open: &v1::ExecOpen,
) -> Result<ExecTarget, Status> {
    let job = find_job(state, JobId(open.job_id))?;
    let task = TaskIndex(open.task);
    let unit = unit_of(job, task)?;
    if !may_enter(job, &open.author, &admins(context, state, open)) {
        let message = format!(
            "`{}` may not run commands beside tasks of job {}: only its user `{}` and the cluster's admins may",
            open.author, job.id, job.spec.user
        );
        tracing::warn!(job = %job.id, %task, author = open.author, "exec refused: not the user's task");
        let mut metadata = vec![("job", job.id.to_string()), ("user", job.spec.user.clone())];
        if !context.config.tls.is_on() {
            metadata.push((status::ADMINS_BY_SETTINGS, "true".to_owned()));
        }
        return Err(status::error(
            Code::PermissionDenied,
            "NOT_YOURS",
            &message,
            &metadata,
        ));
    }
    let attempt = job.unit(unit).and_then(|unit| unit.attempt.as_deref());
    let run = attempt.and_then(|attempt| {
        let run = attempt.tasks.iter().find(|run| run.task == task)?;
        Some((attempt, run))
    });
    match run {
        Some((attempt, run)) if run.phase == TaskPhase::Running => Ok(ExecTarget {
            epoch: attempt.epoch_of(task),
            attempt: attempt.number,
            host: run.host,
            host_name: host_name(state, run.host),
        }),
        _ => {
            let message = format!("task {task} of job {} is not running", job.id);
            let metadata = [("job", job.id.to_string()), ("task", task.to_string())];
            Err(status::error(
                Code::FailedPrecondition,
                "NOT_RUNNING",
                &message,
                &metadata,
            ))
        }
    }
}

/// Users who may enter the tasks of all users: those listed in the settings; with authentication, admins. For
/// the cluster's own users this replica knows the role; for federated users the replica that received the
/// call has verified it.
fn admins(context: &Context, state: &State, open: &v1::ExecOpen) -> BTreeSet<String> {
    if !context.config.tls.is_on() {
        return context.settings.borrow().admins.clone();
    }
    let is_admin = match state.users.get(open.author.as_str()) {
        Some(user) => user.role == Role::Admin,
        None => open.by_admin,
    };
    let author = is_admin.then(|| open.author.clone());
    author.into_iter().collect()
}

/// One command between its user and its worker.
struct Session {
    context: Context,
    open: v1::ExecOpen,
    target: ExecTarget,
    answers: mpsc::Sender<Result<v1::ExecResponse, Status>>,
    _permit: OwnedSemaphorePermit,
}

impl Session {
    async fn run(self, messages: Inputs) {
        let stop = self.context.stop.clone();
        let (job, task, author) = (self.open.job_id, self.open.task, &*self.open.author);
        let (host, program) = (&*self.target.host_name, program(&self.open));
        tracing::info!(job, task, epoch = %self.target.epoch, author, host, program, "exec started");
        counter!(names::EXECS_TOTAL).increment(1);
        gauge!(names::EXECS).increment(1.0);
        let outcome = tokio::select! {
            biased;
            () = stop.cancelled() => Err(Status::unavailable("this replica is stopping")),
            () = self.answers.closed() => Ok(()),
            outcome = self.relay(messages) => outcome,
        };
        gauge!(names::EXECS).decrement(1.0);
        let refusal = outcome.as_ref().err().map(Status::message);
        tracing::info!(job, task, author, host, refusal, "exec ended");
        if let Err(status) = outcome {
            // The user may be gone and needs no error.
            drop(self.answers.send(Err(status)).await);
        }
    }

    async fn relay(&self, messages: Inputs) -> Result<(), Status> {
        let WorkerSide {
            messages: up,
            orders,
        } = self.call_worker().await?;
        tokio::select! {
            ended = self.forward_to_user(up) => ended,
            // The user has gone, or is disconnected.
            gone = forward_to_worker(messages, orders) => gone,
        }
    }

    async fn call_worker(&self) -> Result<WorkerSide, Status> {
        let ExecTarget {
            host, host_name, ..
        } = &self.target;
        let (_, worker) = self
            .context
            .directory
            .find(*host)
            .ok_or_else(|| unreachable(host_name))?;
        let mut expected = self.context.pairings().expect();
        let order = v1::ExecOrder {
            token: expected.token.clone(),
            epoch: self.target.epoch.get(),
            open: Some(self.open.clone()),
        };
        if worker.try_send(ToWorker::Exec(Box::new(order))).is_err() {
            return Err(unreachable(host_name));
        }
        let answered = timeout(ANSWER_MAX, &mut expected.answer).await;
        match answered {
            Ok(Ok(side)) => Ok(side),
            _ => {
                let message = format!(
                    "the worker of host `{host_name}` did not answer before the timeout: it is slow, or \
                     its version does not support exec"
                );
                let metadata = [("host", host_name.clone())];
                Err(status::error(
                    Code::Unavailable,
                    crate::service::replies::HOST_UNREACHABLE,
                    &message,
                    &metadata,
                ))
            }
        }
    }

    /// Forwards the worker's messages to the user until the command has ended.
    async fn forward_to_user(&self, mut up: Streaming<v1::ExecUp>) -> Result<(), Status> {
        loop {
            let message = up
                .message()
                .await
                .map_err(|_| unreachable(&self.target.host_name))?;
            let Some(message) = message else {
                return Err(unreachable(&self.target.host_name));
            };
            let Some(kind) = message.response.and_then(|response| response.kind) else {
                continue;
            };
            let kind = match kind {
                ToUser::Begun(_) => ToUser::Begun(v1::ExecBegun {
                    attempt: self.target.attempt,
                    host: self.target.host_name.clone(),
                }),
                ToUser::Refused(refusal) => return Err(refused(&self.open, &refusal.detail)),
                other => other,
            };
            let is_last = matches!(kind, ToUser::End(_));
            let response = v1::ExecResponse { kind: Some(kind) };
            if self.answers.send(Ok(response)).await.is_err() || is_last {
                return Ok(());
            }
        }
    }
}

fn refused(open: &v1::ExecOpen, detail: &str) -> Status {
    let message = format!(
        "the command was not started beside task {} of job {}: {detail}",
        open.task, open.job_id
    );
    let metadata = [
        ("job", open.job_id.to_string()),
        ("task", open.task.to_string()),
    ];
    status::error(
        Code::FailedPrecondition,
        "EXEC_REFUSED",
        &message,
        &metadata,
    )
}

/// Handles a worker's answer to an order.
pub(crate) async fn answered(
    context: &Context,
    mut messages: Streaming<v1::ExecUp>,
) -> Result<Orders, Status> {
    let first = timeout(ORDER_MAX, messages.message())
        .await
        .map_err(|_| Status::deadline_exceeded("no order received before the timeout"))??;
    let token = first.map(|message| message.token).unwrap_or_default();
    let unknown = || {
        let message = "this command is no longer awaited";
        status::error(Code::NotFound, "UNKNOWN_EXEC", message, &[])
    };
    let waiting = context.pairings().take(&token).ok_or_else(unknown)?;
    let (orders, receiver) = mpsc::channel(MESSAGES_MAX);
    let side = WorkerSide { messages, orders };
    waiting.send(side).map_err(|_| unknown())?;
    Ok(Box::pin(ReceiverStream::new(receiver)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_exec_pairing_is_dropped_when_its_user_has_gone() {
        let pairings = PendingPairs::default();
        let (left, stays) = (pairings.expect(), pairings.expect());
        let token = left.token.clone();
        drop(left);
        assert!(pairings.take(&token).is_none());
        assert!(pairings.take(&stays.token).is_some());
        drop(stays);
        assert!(pairings.lock().is_empty());
    }
}
