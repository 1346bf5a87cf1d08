//! An exec session between its user and the supervisor.

use std::future::pending;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use muster_proto::v1;
use muster_proto::v1::exec_request::Kind as FromUser;
use muster_proto::v1::exec_response::Kind as ToUser;
use muster_proto::v1::worker_service_client::WorkerServiceClient;
use muster_supervisor::TaskDirectory;
use muster_supervisor::exec::{self, ExecAnswer, ExecRequest};
use muster_tls::Dialer;
use tokio::io::unix::AsyncFd;
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout};
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;
use tonic::Streaming;
use tonic::transport::Endpoint;

use crate::limits::{EXEC_CLOSE_MAX, EXEC_DRAIN_MAX, EXEC_MESSAGES_MAX, EXEC_OPEN_MAX};
use crate::tasks::exec::files::{self, AgentFiles, End};

/// Timeout of the connection to the leader.
const CONNECT_MAX: Duration = Duration::from_secs(2);
/// Interval of keep-alive probes on an idle connection, and their timeout.
const KEEP_ALIVE: Duration = Duration::from_secs(5);
/// Pause between attempts to reach a supervisor that opens its socket.
const RETRY: Duration = Duration::from_millis(5);
/// Message to the user of a command whose task ended first.
const LOST: &str = "the task ended, which ended the command";

/// The call to the leader that reaches the user.
#[derive(Debug)]
pub(super) struct Call {
    up: mpsc::Sender<v1::ExecUp>,
    down: Streaming<v1::ExecRequest>,
}

/// Calls the leader back for an order.
pub(super) async fn call(dialer: &Dialer, leader: &str, token: String) -> Result<Call, String> {
    let endpoint = Endpoint::from_shared(format!("http://{leader}"))
        .map_err(|error| format!("address `{leader}`: {error}"))?
        .connect_timeout(CONNECT_MAX)
        .tcp_nodelay(true)
        .http2_keep_alive_interval(KEEP_ALIVE)
        .keep_alive_timeout(KEEP_ALIVE);
    let channel = dialer
        .connect(&endpoint)
        .await
        .map_err(|error| format!("connecting to {leader} failed: {error}"))?;
    let (up, outgoing) = mpsc::channel(EXEC_MESSAGES_MAX);
    let first = v1::ExecUp {
        token,
        response: None,
    };
    up.try_send(first).map_err(|error| error.to_string())?;
    let mut client = WorkerServiceClient::new(channel);
    let answered = client.exec(ReceiverStream::new(outgoing));
    let down = answered
        .await
        .map_err(|status| status.message().to_owned())?;
    Ok(Call {
        up,
        down: down.into_inner(),
    })
}

/// A command that the supervisor has started or is about to start.
struct Command {
    supervisor: AsyncFd<OwnedFd>,
    files: AgentFiles,
}

impl Call {
    /// Reports why the command was not started.
    pub(super) async fn refuse(self, detail: String) {
        let Self { up, down } = self;
        send(&up, ToUser::Refused(v1::ExecRefusal { detail })).await;
        await_close(up, until_gone(down)).await;
    }

    /// Runs the command until it ends or its user is gone.
    pub(super) async fn run(self, directory: &TaskDirectory, open: v1::ExecOpen) {
        match start(directory, open).await {
            Ok(command) => self.carry(command).await,
            Err(detail) => self.refuse(detail).await,
        }
    }

    async fn carry(self, command: Command) {
        let Self { up, down } = self;
        let Command { supervisor, files } = command;
        let (output, errors) = (files.output.clone(), files.errors.clone());
        let user = execute_user_messages(down, files);
        tokio::pin!(user);
        let ending = tokio::select! {
            // Dropping the supervisor's socket ends the command.
            () = &mut user => return,
            () = up.closed() => return,
            ending = relay(&supervisor, &output, errors.as_deref(), &up) => ending,
        };
        send(&up, ending).await;
        await_close(up, user).await;
    }
}

/// Waits for the leader to close the call: dropping it earlier loses messages in transit.
async fn await_close(up: mpsc::Sender<v1::ExecUp>, closed: impl Future<Output = ()>) {
    drop(up);
    if timeout(EXEC_CLOSE_MAX, closed).await.is_err() {
        tracing::debug!("the leader does not close the call of an ended command");
    }
}

async fn until_gone(mut down: Streaming<v1::ExecRequest>) {
    while let Ok(Some(_)) = down.message().await {}
}

/// Relays the start and the output of the command; returns how it ended once all output is relayed.
async fn relay(
    supervisor: &AsyncFd<OwnedFd>,
    output: &End,
    errors: Option<&End>,
    up: &mpsc::Sender<v1::ExecUp>,
) -> ToUser {
    let over = CancellationToken::new();
    let outputs = async {
        let errors = async {
            if let Some(errors) = errors {
                copy(errors, up, &over, |bytes| ToUser::Stderr(bytes.into())).await;
            }
        };
        let output = copy(output, up, &over, |bytes| ToUser::Stdout(bytes.into()));
        tokio::join!(output, errors);
    };
    let ending = async {
        let ending = relay_start_and_exit(supervisor, up).await;
        over.cancel();
        ending
    };
    let ((), ending) = tokio::join!(outputs, ending);
    ending
}

/// Sends the request to the supervisor, which may still be opening its socket.
async fn start(directory: &TaskDirectory, open: v1::ExecOpen) -> Result<Command, String> {
    let made = match open.window {
        Some(window) => files::terminal(window),
        None => files::pipes(),
    };
    let (theirs, ours) = made.map_err(|error| format!("creating its files failed: {error}"))?;
    let request = ExecRequest {
        terminal: open.window.map(|_| open.terminal),
        command: open.command,
    };
    let until = Instant::now() + EXEC_OPEN_MAX;
    let socket = loop {
        match exec::ask(directory, &request, theirs.all()) {
            Ok(socket) => break socket,
            Err(error) if is_passing(&error) && Instant::now() < until => {
                tokio::time::sleep(RETRY).await;
            }
            Err(error) if is_passing(&error) => {
                return Err(
                    "the task's supervisor accepts no commands: it is of an older version, it hangs, or \
                     the task has ended"
                        .to_owned(),
                );
            }
            Err(error) => {
                return Err(format!(
                    "the request to the task's supervisor failed: {error}"
                ));
            }
        }
    };
    let supervisor = files::watched(socket).map_err(|error| error.to_string())?;
    Ok(Command {
        supervisor,
        files: ours,
    })
}

fn is_passing(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionRefused, NotFound, WouldBlock};
    matches!(error.kind(), NotFound | ConnectionRefused | WouldBlock)
}

/// Relays that the command has started; returns how it ended.
async fn relay_start_and_exit(
    supervisor: &AsyncFd<OwnedFd>,
    up: &mpsc::Sender<v1::ExecUp>,
) -> ToUser {
    loop {
        let answer = match supervisor.readable().await {
            Ok(mut ready) => ready.try_io(|socket| exec::receive(socket.get_ref().as_fd())),
            Err(error) => Ok(Err(error)),
        };
        match answer {
            Err(_) => {}
            Ok(Ok(Some(ExecAnswer::Started))) => {
                send(up, ToUser::Begun(v1::ExecBegun::default())).await;
            }
            Ok(Ok(Some(ExecAnswer::Ended { code, signal }))) => {
                let lost = None;
                return ToUser::End(v1::ExecEnd { code, signal, lost });
            }
            Ok(Ok(Some(ExecAnswer::Refused { detail }))) => {
                return ToUser::Refused(v1::ExecRefusal { detail });
            }
            Ok(Ok(None) | Err(_)) => {
                return ToUser::End(v1::ExecEnd {
                    lost: Some(LOST.to_owned()),
                    ..v1::ExecEnd::default()
                });
            }
        }
    }
}

/// Executes the user's messages until the user is gone.
async fn execute_user_messages(mut down: Streaming<v1::ExecRequest>, mut files: AgentFiles) {
    loop {
        match down.message().await {
            Ok(Some(v1::ExecRequest { kind })) => match kind {
                Some(FromUser::Input(bytes)) => files.write(&bytes).await,
                Some(FromUser::InputEnd(_)) => files.end_input().await,
                Some(FromUser::Resized(window)) => files.resize(window),
                // Messages that only newer versions know are ignored.
                Some(FromUser::Open(_)) | None => {}
            },
            Ok(None) | Err(_) => return,
        }
    }
}

/// Copies an output until its end; a user who does not read delays it. Processes that an ended command left
/// running may hold it open: then it ends after a while without data.
async fn copy(
    output: &End,
    up: &mpsc::Sender<v1::ExecUp>,
    over: &CancellationToken,
    message: impl Fn(Vec<u8>) -> ToUser,
) {
    loop {
        let quiet = async {
            over.cancelled().await;
            tokio::time::sleep(EXEC_DRAIN_MAX).await;
        };
        let bytes = tokio::select! {
            biased;
            bytes = output.read() => bytes,
            () = quiet => return,
        };
        if bytes.is_empty() {
            return;
        }
        if !send(up, message(bytes)).await {
            // The command ends with its user.
            pending::<()>().await;
        }
    }
}

/// Returns false if the user is gone.
async fn send(up: &mpsc::Sender<v1::ExecUp>, kind: ToUser) -> bool {
    let message = v1::ExecUp {
        token: String::new(),
        response: Some(v1::ExecResponse { kind: Some(kind) }),
    };
    up.send(message).await.is_ok()
}
