//! Client of a task's control socket, for small programs that run inside a task: no runtime, no
//! configuration, only the task's environment.

use std::env::VarError;
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

use serde::de::DeserializeOwned;

use crate::link::protocol::{ControlAnswer, ControlNotice, ControlRequest};

/// Variable with the path of the task's control socket.
pub const SOCKET_VARIABLE: &str = "MUSTER_CTL_SOCK";
/// Variable with the epoch of the task's attempt.
pub const EPOCH_VARIABLE: &str = "MUSTER_EPOCH";
/// Timeout of an answer: a commit waits for the host's disk.
const ANSWER_MAX: Duration = Duration::from_secs(60);

/// Why a task's request failed.
#[derive(Debug, thiserror::Error)]
pub enum TaskSideError {
    /// A variable of the task's environment is missing.
    #[error("{0} is not set: this works inside a task only")]
    NotInTask(&'static str),
    /// A variable of the task's environment has a value that supervisors do not set.
    #[error("invalid {name} `{value}`: not set by a supervisor")]
    Variable {
        /// Name of the variable.
        name: &'static str,
        /// Value of the variable.
        value: String,
    },
    /// The supervisor does not listen.
    #[error("connecting to the task's supervisor at {} failed: {source}", path.display())]
    Connect {
        /// Path of the socket.
        path: PathBuf,
        /// Cause.
        source: io::Error,
    },
    /// The connection broke.
    #[error("lost the connection to the task's supervisor: {0}")]
    Talk(#[source] io::Error),
    /// The supervisor hung up: it is at its connection limit, or the task has ended.
    #[error("the task's supervisor closed the connection")]
    HungUp,
    /// The supervisor refused.
    #[error("{0}")]
    Refused(String),
}

/// Connection of a process in a task to the task's supervisor.
#[derive(Debug)]
pub struct TaskSide {
    stream: BufReader<UnixStream>,
}

/// Epoch of the attempt that this process belongs to.
///
/// # Errors
/// [`TaskSideError::NotInTask`] and [`TaskSideError::Variable`].
pub fn epoch() -> Result<u64, TaskSideError> {
    let text = variable(EPOCH_VARIABLE)?;
    text.parse().map_err(|_| TaskSideError::Variable {
        name: EPOCH_VARIABLE,
        value: text,
    })
}

/// A variable that every task has.
///
/// # Errors
/// [`TaskSideError::NotInTask`] and [`TaskSideError::Variable`].
pub fn variable(name: &'static str) -> Result<String, TaskSideError> {
    std::env::var(name).map_err(|error| match error {
        VarError::NotPresent => TaskSideError::NotInTask(name),
        VarError::NotUnicode(value) => TaskSideError::Variable {
            name,
            value: value.to_string_lossy().into_owned(),
        },
    })
}

impl TaskSide {
    /// Connects to the supervisor that the environment names.
    ///
    /// # Errors
    /// [`TaskSideError::NotInTask`], [`TaskSideError::Connect`].
    pub fn connect() -> Result<Self, TaskSideError> {
        let path = PathBuf::from(variable(SOCKET_VARIABLE)?);
        let stream = UnixStream::connect(&path).and_then(|stream| {
            stream.set_read_timeout(Some(ANSWER_MAX))?;
            Ok(BufReader::new(stream))
        });
        match stream {
            Ok(stream) => Ok(Self { stream }),
            Err(source) => Err(TaskSideError::Connect { path, source }),
        }
    }

    /// Sends a request, and waits until it is done. Returns the answer.
    ///
    /// # Errors
    /// [`TaskSideError::Refused`] with the supervisor's message; [`TaskSideError::Talk`],
    /// [`TaskSideError::HungUp`].
    pub fn ask(&mut self, request: &ControlRequest) -> Result<ControlAnswer, TaskSideError> {
        let mut line =
            serde_json::to_vec(request).map_err(|error| TaskSideError::Talk(error.into()))?;
        line.push(b'\n');
        let written = self.stream.get_mut().write_all(&line);
        written.map_err(TaskSideError::Talk)?;
        let answer: ControlAnswer = self.read()?;
        if answer.ok && answer.error.is_none() {
            return Ok(answer);
        }
        let error = answer.error;
        Err(TaskSideError::Refused(error.unwrap_or_else(|| {
            "refused by the supervisor without a reason".to_owned()
        })))
    }

    /// Waits until the task is asked to stop, or, if requested, until its gang's rendezvous moves: forever or
    /// for a limited time; `None` after that time.
    ///
    /// # Errors
    /// As [`Self::ask`].
    pub fn watch(
        &mut self,
        gang: bool,
        wait_max: Option<Duration>,
    ) -> Result<Option<ControlNotice>, TaskSideError> {
        self.ask(&ControlRequest::Watch { gang })?;
        let socket = self.stream.get_ref();
        socket
            .set_read_timeout(wait_max)
            .map_err(TaskSideError::Talk)?;
        match self.read() {
            Ok(notice) => Ok(Some(notice)),
            Err(TaskSideError::Talk(error)) if error.kind() == io::ErrorKind::WouldBlock => {
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    fn read<T: DeserializeOwned>(&mut self) -> Result<T, TaskSideError> {
        let mut line = String::new();
        match self.stream.read_line(&mut line) {
            Ok(0) => Err(TaskSideError::HungUp),
            Ok(_) => serde_json::from_str(&line).map_err(|error| TaskSideError::Talk(error.into())),
            Err(error) => Err(TaskSideError::Talk(error)),
        }
    }
}
