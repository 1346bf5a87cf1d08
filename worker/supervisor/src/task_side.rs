//! The task's side of its control socket, for small programs that run inside a task: no runtime, no configuration, only
//! the task's environment.

use std::env::VarError;
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

use serde::de::DeserializeOwned;
use std::time::Duration;

use crate::protocol::{ControlAnswer, ControlNotice, ControlRequest};

/// Names the task's control socket.
pub const SOCKET_VARIABLE: &str = "MUSTER_CTL_SOCK";
/// Names the task's attempt.
pub const EPOCH_VARIABLE: &str = "MUSTER_EPOCH";
/// How long an answer may take: a commit waits for the host's disk.
const ANSWER_MAX: Duration = Duration::from_secs(60);

/// Why a task's request was not done.
#[derive(Debug, thiserror::Error)]
pub enum TaskSideError {
    /// A variable of the task's environment is not there.
    #[error("{0} is not set: this works inside a task only")]
    NotInTask(&'static str),
    /// A variable of the task's environment is not what a supervisor sets.
    #[error("{name} is `{value}`, which no supervisor sets")]
    Variable {
        /// Which.
        name: &'static str,
        /// What it is.
        value: String,
    },
    /// The supervisor does not listen.
    #[error("reaching the task's supervisor at {} failed: {source}", path.display())]
    Connect {
        /// Where.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The conversation broke.
    #[error("talking to the task's supervisor failed: {0}")]
    Talk(#[source] io::Error),
    /// The supervisor hung up: it serves as many connections as it can, or the task is over.
    #[error("the task's supervisor hung up")]
    HungUp,
    /// The supervisor said no.
    #[error("{0}")]
    Refused(String),
}

/// A connection to the supervisor of the task that this process belongs to.
#[derive(Debug)]
pub struct TaskSide {
    stream: BufReader<UnixStream>,
}

/// The epoch of the attempt that this process belongs to.
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

    /// Asks for something, and waits until it is done. Gives what was answered beside that.
    ///
    /// # Errors
    /// [`TaskSideError::Refused`] with the supervisor's words; [`TaskSideError::Talk`], [`TaskSideError::HungUp`].
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
            "the supervisor refused and did not say why".to_owned()
        })))
    }

    /// Waits until the task is asked to stop, or, if that is asked for, until its gang meets elsewhere than its environment
    /// says: for ever or so long; none if the time is over.
    ///
    /// # Errors
    /// As [`Self::ask`].
    pub fn watch(
        &mut self,
        gang: bool,
        patience: Option<Duration>,
    ) -> Result<Option<ControlNotice>, TaskSideError> {
        self.ask(&ControlRequest::Watch { gang })?;
        let socket = self.stream.get_ref();
        socket
            .set_read_timeout(patience)
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
