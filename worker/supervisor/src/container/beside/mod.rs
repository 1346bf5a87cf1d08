//! A command that a user runs beside a task in a container.
//!
//! The engine alone can start it where the task is. So that all else stays as it is for commands beside processes, a small
//! process stands in for it as the supervisor's child: with the user's files as its own it has the engine start the
//! command, copies input and output, passes the terminal's size on, ends the command when it is asked to end itself, and
//! ends the same way.

mod calls;
mod files;
mod inside;
mod relay;

use std::ffi::OsStr;
use std::fmt::Display;
use std::io;
use std::process::{Command, ExitCode};

use relay::{Relay, Session};
use rustix::process::Signal;
use rustix::termios::{OptionalActions, tcgetattr, tcgetwinsize, tcsetattr};
use serde_json::{Value, json};

use crate::container::ending::{FAILED, end_like};
use crate::container::engine::Engine;
use crate::container::record::{ContainerRecord, container_name};
use crate::directory::TaskDirectory;
use crate::exec::ExecRequest;
use crate::output::complain;
use crate::process::CONTROL_VARIABLE;
use crate::sys;

/// Asks a stand-in to end its command, for good. SIGHUP is passed on, as a command beside a process hears it.
pub(crate) const END_NOW: Signal = Signal::TERM;

/// Keys by which docker lets a user leave a command that goes on: it insists on some, and these nobody types. Its own would
/// hold back a shell's Ctrl-P.
const DETACH_KEYS: &str = "ctrl-_,ctrl-^,ctrl-_,ctrl-^,ctrl-_";

/// Why a command was not seen to its end, in words for its user.
#[derive(Debug, thiserror::Error)]
enum BesideError {
    /// There is none yet, or no more.
    #[error("there is no such container now: its image may still be on its way, or it has ended")]
    NoContainer,
    /// What stands still takes nothing new.
    #[error("it stands still, for its task is suspended")]
    Suspended,
    /// The system or the engine did not start it.
    #[error("{0}")]
    NotStarted(String),
    /// Nobody can tell how it ended.
    #[error("how it ended is not known: {0}")]
    Lost(String),
}

fn not_started(why: impl Display) -> BesideError {
    BesideError::NotStarted(why.to_string())
}

/// The process that stands in for a command in a task's container; its files are still to be given.
///
/// # Errors
/// What JSON cannot say.
pub(crate) fn stand_in(directory: &TaskDirectory, request: &ExecRequest) -> io::Result<Command> {
    let mut command = super::action("exec", directory.path());
    // By the variable it is found as one of the task's processes.
    command
        .arg(serde_json::to_string(request)?)
        .env_clear()
        .env(CONTROL_VARIABLE, directory.control());
    Ok(command)
}

/// Stands in for a command, as [`stand_in`] asks for it; none if what is asked for means nothing.
pub(super) fn run(directory: &TaskDirectory, request: &OsStr) -> Option<ExitCode> {
    let request: ExecRequest = serde_json::from_slice(request.as_encoded_bytes()).ok()?;
    let (program, container) = (
        request.command.first()?,
        container_name(directory.run_id()?),
    );
    let error = match enter(directory, &request).and_then(Relay::see_to_its_end) {
        Ok(code) => return Some(end_like(code)),
        Err(error) => error,
    };
    let about = match error {
        BesideError::Lost(_) => format!("`{program}` in the container {container}"),
        _ => format!("starting `{program}` in the container {container} failed"),
    };
    // Where the terminal is raw, nobody else returns the carriage.
    let line_end = request.terminal.as_ref().map_or("", |_| "\r");
    complain(&format!("{about}: {error}{line_end}"));
    Some(ExitCode::from(FAILED))
}

/// Has the command started. Until the engine was told to, signals end this process: nothing is left behind.
fn enter(directory: &TaskDirectory, request: &ExecRequest) -> Result<Relay, BesideError> {
    let is_terminal = request.terminal.is_some();
    if is_terminal {
        make_raw().map_err(|error| not_started(format!("setting its terminal up: {error}")))?;
    }
    let record = ContainerRecord::read(directory).map_err(not_started)?;
    let record = record.ok_or(BesideError::NoContainer)?;
    let first = record.init.ok_or(BesideError::NoContainer)?;
    let engine = Engine::at(&record.socket);
    check(&engine, &record)?;
    let exec = engine.make_exec(&record.name, &body(request));
    // What has changed meanwhile says more than a refusal.
    let exec = exec.or_else(|error| check(&engine, &record).and(Err(not_started(error))))?;
    let heard = [
        libc::SIGHUP,
        libc::SIGTERM,
        libc::SIGINT,
        libc::SIGQUIT,
        libc::SIGWINCH,
    ];
    let signals = sys::take_signals(heard.into_iter())
        .map_err(|error| not_started(format!("taking signals over: {error}")))?;
    let size = is_terminal
        .then(|| tcgetwinsize(io::stdin()).ok())
        .flatten();
    let stream = { engine.start_exec(&exec, is_terminal, size) }.map_err(not_started)?;
    let session = Session {
        engine,
        exec,
        first,
        is_terminal,
    };
    Relay::new(session, signals, stream).map_err(not_started)
}

/// Sees that a command can be started in a container now.
fn check(engine: &Engine, record: &ContainerRecord) -> Result<(), BesideError> {
    let standing = engine.inspect(&record.name).map_err(not_started)?;
    // Another cluster on the same host may have one of the same name.
    match standing.filter(|it| it.worker.as_ref() == Some(&record.worker)) {
        Some(standing) if standing.is_paused => Err(BesideError::Suspended),
        Some(standing) if standing.is_running => Ok(()),
        _ => Err(BesideError::NoContainer),
    }
}

/// What the engine is asked for: by itself, it gives a command its container's environment, user and working directory.
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

/// Lets everything pass the user's terminal as it is: the one inside the container understands it.
fn make_raw() -> io::Result<()> {
    let terminal = io::stdin();
    let mut attributes = tcgetattr(&terminal)?;
    attributes.make_raw();
    Ok(tcsetattr(terminal, OptionalActions::Now, &attributes)?)
}
