//! Commands that a user runs in the container of a task (exec sessions).
//! Only the engine can start a process in the container. To handle such commands like those of plain
//! processes, a small proxy process runs as the supervisor's child: with the user's files as its own, it lets
//! the engine start the command, copies input and output, forwards the terminal size, ends the command when
//! it is asked to end, and exits the same way as the command.

mod calls;
mod exec_process;
mod files;
mod relay;

use std::ffi::OsStr;
use std::fmt::Display;
use std::io;
use std::process::{Command, ExitCode};

use relay::{Relay, Session};
use rustix::process::Signal;
use rustix::termios::{OptionalActions, tcgetattr, tcgetwinsize, tcsetattr};
use serde_json::{Value, json};

use crate::container::engine::Engine;
use crate::container::exit::{FAILED, end_like};
use crate::container::record::{ContainerRecord, container_name};
use crate::exec::ExecRequest;
use crate::output::log_error;
use crate::process::CONTROL_VARIABLE;
use crate::sys;
use crate::task::directory::TaskDirectory;

/// Asks a proxy to end its command. SIGHUP is forwarded to the command, as it is outside containers.
pub(crate) const END_NOW: Signal = Signal::TERM;

/// Detach keys for docker, which requires some: a sequence that users do not type. Docker's default would
/// hold back a shell's Ctrl-P.
const DETACH_KEYS: &str = "ctrl-_,ctrl-^,ctrl-_,ctrl-^,ctrl-_";

/// Why a command was not run to its end; shown to the user.
#[derive(Debug, thiserror::Error)]
enum ContainerExecError {
    /// The container does not exist yet, or has ended.
    #[error("container not running: its image may still be loading, or it has ended")]
    NoContainer,
    /// A paused container starts no command.
    #[error("the task is suspended")]
    Suspended,
    /// The system or the engine did not start it.
    #[error("{0}")]
    NotStarted(String),
    /// The exit status cannot be determined.
    #[error("exit status unknown: {0}")]
    Lost(String),
}

fn not_started(why: impl Display) -> ContainerExecError {
    ContainerExecError::NotStarted(why.to_string())
}

/// Returns the proxy process for a command in a task's container; the caller sets its files.
///
/// # Errors
/// The request cannot be encoded as JSON.
pub(crate) fn proxy_command(
    directory: &TaskDirectory,
    request: &ExecRequest,
) -> io::Result<Command> {
    let mut command = super::action("exec", directory.path());
    // The variable identifies the process as one of the task's.
    command
        .arg(serde_json::to_string(request)?)
        .env_clear()
        .env(CONTROL_VARIABLE, directory.control());
    Ok(command)
}

/// Runs the proxy that [`stand_in`] started; `None` if the request is invalid.
pub(super) fn run(directory: &TaskDirectory, request: &OsStr) -> Option<ExitCode> {
    let request: ExecRequest = serde_json::from_slice(request.as_encoded_bytes()).ok()?;
    let (program, container) = (
        request.command.first()?,
        container_name(directory.run_id()?),
    );
    let error = match enter(directory, &request).and_then(Relay::run_to_end) {
        Ok(code) => return Some(end_like(code)),
        Err(error) => error,
    };
    let about = match error {
        ContainerExecError::Lost(_) => format!("`{program}` in the container {container}"),
        _ => format!("starting `{program}` in the container {container} failed"),
    };
    // On a raw terminal, nothing else returns the carriage.
    let line_end = request.terminal.as_ref().map_or("", |_| "\r");
    log_error(&format!("{about}: {error}{line_end}"));
    Some(ExitCode::from(FAILED))
}

/// Starts the command. Until the engine is asked to start it, signals end this process: nothing is left
/// behind.
fn enter(directory: &TaskDirectory, request: &ExecRequest) -> Result<Relay, ContainerExecError> {
    let is_terminal = request.terminal.is_some();
    if is_terminal {
        make_raw().map_err(|error| not_started(format!("setting up the terminal: {error}")))?;
    }
    let record = ContainerRecord::read(directory)
        .map_err(not_started)?
        .ok_or(ContainerExecError::NoContainer)?;
    let first = record.init.ok_or(ContainerExecError::NoContainer)?;
    let engine = Engine::at(&record.socket);
    check(&engine, &record)?;
    let exec = engine
        .make_exec(&record.name, &body(request))
        // A state change in the meantime explains more than the engine's refusal.
        .or_else(|error| check(&engine, &record).and(Err(not_started(error))))?;
    let handled = [
        libc::SIGHUP,
        libc::SIGTERM,
        libc::SIGINT,
        libc::SIGQUIT,
        libc::SIGWINCH,
    ];
    let signals = sys::take_signals(handled.into_iter())
        .map_err(|error| not_started(format!("blocking signals: {error}")))?;
    let size = is_terminal
        .then(|| tcgetwinsize(io::stdin()).ok())
        .flatten();
    let stream = engine
        .start_exec(&exec, is_terminal, size)
        .map_err(not_started)?;
    let session = Session {
        engine,
        exec,
        first,
        is_terminal,
    };
    Relay::new(session, signals, stream).map_err(not_started)
}

/// Checks that a command can be started in a container now.
fn check(engine: &Engine, record: &ContainerRecord) -> Result<(), ContainerExecError> {
    let state = engine.inspect(&record.name).map_err(not_started)?;
    // Another cluster on the same host may have a container of the same name.
    match state.filter(|it| it.worker.as_ref() == Some(&record.worker)) {
        Some(state) if state.is_paused => Err(ContainerExecError::Suspended),
        Some(state) if state.is_running => Ok(()),
        _ => Err(ContainerExecError::NoContainer),
    }
}

/// Body of the request: by default, an engine gives a command its container's environment, user and working
/// directory.
fn body(request: &ExecRequest) -> Value {
    let mut body = json!({
        "AttachStdin": true,
        "AttachStdout": true,
        "AttachStderr": true,
        "Tty": request.terminal.is_some(),
        "Cmd": request.command,
    });
    if let Some(terminal) = &request.terminal {
        body["Env"] = json!([format!("TERM={terminal}")]);
        body["DetachKeys"] = json!(DETACH_KEYS);
    }
    body
}

/// Puts the user's terminal into raw mode: the one inside the container interprets its input.
fn make_raw() -> io::Result<()> {
    let terminal = io::stdin();
    let mut attributes = tcgetattr(&terminal)?;
    attributes.make_raw();
    Ok(tcsetattr(terminal, OptionalActions::Now, &attributes)?)
}
