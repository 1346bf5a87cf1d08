//! What an engine is asked for about a command in a container.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use rustix::termios::Winsize;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::clock::boottime_ms;
use crate::container::engine::{ANSWER_MAX, Engine, EngineError, IdAnswer, granted, read};
use crate::container::http::{Exchange, Request, encoded};

/// How long an engine may take to answer while the command runs, in milliseconds.
const ANSWER_MS_MAX: u64 = 10_000;

const ASKING: &str = "asking for the command";
const RESIZING: &str = "resizing the terminal";

/// How a command in a container stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct ExecStanding {
    pub(super) running: bool,
    /// Its number on the host; 0 or none if it has none.
    #[serde(default)]
    pub(super) pid: Option<i32>,
    /// None before its end, from docker.
    #[serde(default)]
    pub(super) exit_code: Option<i32>,
}

/// A question to an engine that nobody waits for.
#[derive(Debug)]
pub(super) struct Errand {
    purpose: Purpose,
    exchange: Exchange,
    /// When it fails, in milliseconds of `CLOCK_BOOTTIME`.
    pub(super) until_ms: u64,
}

/// What an engine is asked while a command runs.
#[derive(Clone, Copy, Debug)]
pub(super) enum Purpose {
    /// How the command stands.
    Look,
    /// To give its terminal this size.
    Resize(Winsize),
}

/// What became of a question.
#[derive(Debug)]
pub(super) enum News {
    /// The command stands so.
    Stands(ExecStanding),
    /// The engine does not know the command, or its container, any more.
    Gone,
    /// The terminal has this size.
    Resized(Winsize),
    /// It was not done.
    Failed(Purpose),
}

impl Engine {
    /// Makes a command that can be started in a container; gives the engine's name for it. Nothing runs yet.
    pub(super) fn make_exec(&self, container: &str, body: &Value) -> Result<String, EngineError> {
        let operation = "making the command";
        let target = format!("/containers/{}/exec", encoded(container, false));
        let body = body.to_string();
        let reply = self.ask(operation, ("POST", &target), Some(body.as_bytes()))?;
        Ok(read::<IdAnswer>(operation, &reply)?.id)
    }

    /// Tells it to start a command; the connection becomes the command's stream once it answers.
    pub(super) fn start_exec(
        &self,
        exec: &str,
        is_terminal: bool,
        size: Option<Winsize>,
    ) -> Result<Exchange, EngineError> {
        let mut body = json!({"Detach": false, "Tty": is_terminal});
        if let Some(Winsize { ws_row, ws_col, .. }) = size.filter(is_some_size) {
            // Docker's word for it, and podman's.
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

/// A terminal that nobody has told its size has none.
pub(super) const fn is_some_size(size: &Winsize) -> bool {
    size.ws_row > 0 && size.ws_col > 0
}

impl Errand {
    /// Asks.
    pub(super) fn begin(
        engine: &Engine,
        exec: &str,
        purpose: Purpose,
    ) -> Result<Self, EngineError> {
        let exec = encoded(exec, false);
        let (method, target) = match purpose {
            Purpose::Look => ("GET", format!("/exec/{exec}/json")),
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
        { exchange.never_wait() }.map_err(EngineError::broken(purpose.operation()))?;
        Ok(Self {
            purpose,
            exchange,
            until_ms: boottime_ms() + ANSWER_MS_MAX,
        })
    }

    /// What became of it, if that is known by now.
    pub(super) fn news(&mut self) -> Option<News> {
        let operation = self.purpose.operation();
        let reply = match self.exchange.finished() {
            Ok(None) if boottime_ms() < self.until_ms => return None,
            Ok(None) => {
                let late = io::Error::new(io::ErrorKind::TimedOut, "it does not answer");
                Err(EngineError::broken(operation)(late))
            }
            Ok(Some(reply)) => granted(operation, reply),
            Err(error) => Err(EngineError::broken(operation)(error)),
        };
        let answered = reply.and_then(|reply| match self.purpose {
            Purpose::Look => read(operation, &reply).map(News::Stands),
            Purpose::Resize(size) => Ok(News::Resized(size)),
        });
        Some(match answered {
            Ok(news) => news,
            Err(EngineError::Refused { status: 404, .. })
                if matches!(self.purpose, Purpose::Look) =>
            {
                News::Gone
            }
            Err(_) => News::Failed(self.purpose),
        })
    }
}

impl Purpose {
    const fn operation(self) -> &'static str {
        match self {
            Self::Look => ASKING,
            Self::Resize(_) => RESIZING,
        }
    }
}

impl AsFd for Errand {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.exchange.as_fd()
    }
}
