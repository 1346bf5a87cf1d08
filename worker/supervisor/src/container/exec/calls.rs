//! Engine API calls for a command in a container.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use rustix::termios::Winsize;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::container::engine::{ANSWER_MAX, Engine, EngineError, IdAnswer, granted, read};
use crate::container::http::{Exchange, Request, encoded};
use crate::lease::clock::boottime_ms;

/// Maximum time that an engine may take to answer while the command runs, in milliseconds.
const ANSWER_MS_MAX: u64 = 10_000;

const ASKING: &str = "asking for the command";
const RESIZING: &str = "resizing the terminal";

/// State of a command in a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct ExecState {
    pub(super) running: bool,
    /// Process id on the host; 0 or `None` if it has none.
    #[serde(default)]
    pub(super) pid: Option<i32>,
    /// `None` before its end, from docker.
    #[serde(default)]
    pub(super) exit_code: Option<i32>,
}

/// An asynchronous request to an engine.
#[derive(Debug)]
pub(super) struct EngineCall {
    purpose: Purpose,
    exchange: Exchange,
    /// Deadline, in milliseconds of `CLOCK_BOOTTIME`.
    pub(super) until_ms: u64,
}

/// Kind of request while a command runs.
#[derive(Clone, Copy, Debug)]
pub(super) enum Purpose {
    /// Queries the state of the command.
    Query,
    /// Sets the size of its terminal.
    Resize(Winsize),
}

/// Outcome of a request.
#[derive(Debug)]
pub(super) enum CallOutcome {
    /// Current state of the command.
    State(ExecState),
    /// The engine no longer knows the command or its container.
    Gone,
    /// The terminal has this size.
    Resized(Winsize),
    /// The request failed.
    Failed(Purpose),
}

impl Engine {
    /// Creates a command that can be started in a container, without starting it; returns the engine's id for
    /// it.
    pub(super) fn make_exec(&self, container: &str, body: &Value) -> Result<String, EngineError> {
        let operation = "creating the command";
        let target = format!("/containers/{}/exec", encoded(container, false));
        let body = body.to_string();
        let reply = self.ask(operation, "POST", &target, Some(body.as_bytes()))?;
        Ok(read::<IdAnswer>(operation, &reply)?.id)
    }

    /// Asks the engine to start a command; the connection becomes the command's stream once it answers.
    pub(super) fn start_exec(
        &self,
        exec: &str,
        is_terminal: bool,
        size: Option<Winsize>,
    ) -> Result<Exchange, EngineError> {
        let mut body = json!({"Detach": false, "Tty": is_terminal});
        if let Some(Winsize { ws_row, ws_col, .. }) = size.filter(is_some_size) {
            // Understood by docker and podman.
            body["ConsoleSize"] = json!([ws_row, ws_col]);
            body["h"] = json!(ws_row);
            body["w"] = json!(ws_col);
        }
        let body = body.to_string();
        let request = Request {
            method: "POST",
            target: &format!("/exec/{}/start", encoded(exec, false)),
            body: Some(body.as_bytes()),
            upgrade: true,
            login: None,
        };
        self.send("starting the command", &request, ANSWER_MAX)
    }
}

/// Whether a size is known: a terminal whose size was never set has none.
pub(super) const fn is_some_size(size: &Winsize) -> bool {
    size.ws_row > 0 && size.ws_col > 0
}

impl EngineCall {
    /// Sends the request.
    pub(super) fn begin(
        engine: &Engine,
        exec: &str,
        purpose: Purpose,
    ) -> Result<Self, EngineError> {
        let exec = encoded(exec, false);
        let (method, target) = match purpose {
            Purpose::Query => ("GET", format!("/exec/{exec}/json")),
            Purpose::Resize(Winsize { ws_row, ws_col, .. }) => {
                ("POST", format!("/exec/{exec}/resize?h={ws_row}&w={ws_col}"))
            }
        };
        let request = Request {
            method,
            target: &target,
            body: None,
            upgrade: false,
            login: None,
        };
        let mut exchange = engine.send(purpose.operation(), &request, ANSWER_MAX)?;
        exchange
            .never_wait()
            .map_err(EngineError::broken(purpose.operation()))?;
        Ok(Self {
            purpose,
            exchange,
            until_ms: boottime_ms() + ANSWER_MS_MAX,
        })
    }

    /// Outcome of the request, if it is known by now.
    pub(super) fn take_outcome(&mut self) -> Option<CallOutcome> {
        let operation = self.purpose.operation();
        let reply = match self.exchange.finished() {
            Ok(None) if boottime_ms() < self.until_ms => return None,
            Ok(None) => {
                let late = io::Error::new(io::ErrorKind::TimedOut, "no answer in time");
                Err(EngineError::broken(operation)(late))
            }
            Ok(Some(reply)) => granted(operation, reply),
            Err(error) => Err(EngineError::broken(operation)(error)),
        };
        let answered = reply.and_then(|reply| match self.purpose {
            Purpose::Query => read(operation, &reply).map(CallOutcome::State),
            Purpose::Resize(size) => Ok(CallOutcome::Resized(size)),
        });
        Some(match answered {
            Ok(outcome) => outcome,
            Err(EngineError::Refused { status: 404, .. })
                if matches!(self.purpose, Purpose::Query) =>
            {
                CallOutcome::Gone
            }
            Err(_) => CallOutcome::Failed(self.purpose),
        })
    }
}

impl Purpose {
    const fn operation(self) -> &'static str {
        match self {
            Self::Query => ASKING,
            Self::Resize(_) => RESIZING,
        }
    }
}

impl AsFd for EngineCall {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.exchange.as_fd()
    }
}
