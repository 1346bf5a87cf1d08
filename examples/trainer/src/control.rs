//! Reports of checkpoints and progress to the worker agent, over its socket.
//!
//! The agent may be away: tasks outlive it, and it finds committed checkpoints in the folder on its own. So
//! an unreachable agent is no error. Neither is one that refuses a commit: its own disk may be full, it may
//! know a newer checkpoint that turned out to be damaged, or a newer attempt may exist, in which case it
//! ends this one.

use std::io;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use crate::checkpoint::Committed;
use crate::line::{read_line, write_line};

/// Maximum time for the agent to answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// Message to the agent.
#[derive(Debug, Serialize)]
#[serde(tag = "op", rename_all = "snake_case")]
enum Notice<'a> {
    /// A checkpoint is about to be written.
    Begin { step: u64, path: &'a Path },
    /// A checkpoint is complete on disk.
    Commit {
        step: u64,
        path: &'a Path,
        size_bytes: u64,
        digest: &'a str,
    },
    /// Steps are done.
    Progress { step: u64 },
}

/// Answer of the agent.
#[derive(Debug, Deserialize)]
struct Answer {
    ok: bool,
    #[serde(default)]
    error: String,
}

/// Result of a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Delivery {
    /// The agent acknowledged it.
    Acknowledged,
    /// The agent refused it, with this reason.
    Refused(String),
    /// The agent could not be reached.
    Unreachable,
    /// There is no agent.
    NoAgent,
}

/// Connection to the worker agent.
#[derive(Debug)]
pub(crate) struct Control {
    socket: Option<PathBuf>,
}

impl Control {
    /// Connects to the agent at `socket`; without one, messages are dropped.
    pub(crate) fn new(socket: Option<PathBuf>) -> Self {
        Self { socket }
    }

    /// Announces a checkpoint.
    pub(crate) fn begin(&self, step: u64, path: &Path) -> Result<Delivery> {
        self.send(&Notice::Begin { step, path })
    }

    /// Reports a committed checkpoint.
    pub(crate) fn commit(&self, checkpoint: &Committed) -> Result<Delivery> {
        self.send(&Notice::Commit {
            step: checkpoint.step,
            path: &checkpoint.path,
            size_bytes: checkpoint.bytes,
            digest: &checkpoint.digest,
        })
    }

    /// Reports the steps done.
    pub(crate) fn progress(&self, step: u64) -> Result<Delivery> {
        self.send(&Notice::Progress { step })
    }

    /// Fails if the answer is malformed; an unreachable or refusing agent is no failure.
    fn send(&self, notice: &Notice<'_>) -> Result<Delivery> {
        let Some(socket) = &self.socket else {
            return Ok(Delivery::NoAgent);
        };
        let Ok(mut stream) = connect(socket) else {
            return Ok(Delivery::Unreachable);
        };
        let answer =
            write_line(&mut stream, notice).and_then(|()| read_line::<Answer>(&mut stream));
        match answer {
            Ok(Answer { ok: true, .. }) => Ok(Delivery::Acknowledged),
            Ok(Answer { error, .. }) => Ok(Delivery::Refused(error)),
            Err(error) if is_gone(&error) => Ok(Delivery::Unreachable),
            Err(error) => Err(error).context("talk to the agent"),
        }
    }
}

fn connect(socket: &Path) -> io::Result<UnixStream> {
    let stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(ANSWER_TIMEOUT))?;
    stream.set_write_timeout(Some(ANSWER_TIMEOUT))?;
    Ok(stream)
}

/// Whether the agent disconnected or hung during the exchange; only a malformed answer is an error.
fn is_gone(error: &anyhow::Error) -> bool {
    error.downcast_ref::<serde_json::Error>().is_none()
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use std::io::{BufRead, BufReader, Write};
    use std::os::unix::net::UnixListener;
    use std::thread;

    use super::*;

    /// Answers one message with `answer` (nothing if it is empty); returns the message.
    fn agent(socket: &Path, answer: &'static str) -> thread::JoinHandle<String> {
        let listener = UnixListener::bind(socket).unwrap();
        thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut line = String::new();
            BufReader::new(stream.try_clone().unwrap())
                .read_line(&mut line)
                .unwrap();
            stream.write_all(answer.as_bytes()).unwrap();
            line
        })
    }

    fn committed() -> Committed {
        Committed {
            step: 7,
            path: "/ckpt/step_7".into(),
            bytes: 3,
            digest: "crc32:00000001".into(),
        }
    }

    #[test]
    fn a_commit_is_sent_in_the_documented_format() {
        let home = tempfile::tempdir().unwrap();
        let socket = home.path().join("s");
        let agent = agent(&socket, "{\"ok\":true}\n");
        let delivery = Control::new(Some(socket)).commit(&committed()).unwrap();
        assert_eq!(delivery, Delivery::Acknowledged);
        assert_eq!(
            agent.join().unwrap(),
            "{\"op\":\"commit\",\"step\":7,\"path\":\"/ckpt/step_7\",\"size_bytes\":3,\"digest\":\"crc32:00000001\"}\n"
        );
    }

    #[test]
    fn a_refused_commit_has_the_agents_reason() {
        let home = tempfile::tempdir().unwrap();
        let socket = home.path().join("s");
        let agent = agent(&socket, "{\"ok\":false,\"error\":\"epoch 3 is over\"}\n");
        let delivery = Control::new(Some(socket)).commit(&committed()).unwrap();
        assert_eq!(delivery, Delivery::Refused("epoch 3 is over".to_owned()));
        agent.join().unwrap();
    }

    #[test]
    fn an_agent_that_is_absent_or_dies_within_a_message_is_no_error() {
        let home = tempfile::tempdir().unwrap();
        let socket = home.path().join("s");
        let control = Control::new(Some(socket.clone()));
        assert_eq!(control.progress(1).unwrap(), Delivery::Unreachable);
        let agent = agent(&socket, "");
        assert_eq!(
            control.begin(1, Path::new("/ckpt/step_1")).unwrap(),
            Delivery::Unreachable
        );
        agent.join().unwrap();
        assert_eq!(Control::new(None).progress(1).unwrap(), Delivery::NoAgent);
    }
}
