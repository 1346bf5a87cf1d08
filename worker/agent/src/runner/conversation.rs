//! A connection to a supervisor: one JSON value a line.

use std::io;

use muster_supervisor::{AgentRequest, SupervisorMessage};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};

/// A connection as it was made, or as it was used for a task before.
#[derive(Debug)]
pub(super) enum Connection {
    /// Nobody has said anything.
    New(std::os::unix::net::UnixStream),
    /// A supervisor was given another task by it.
    Open(Box<Conversation>),
}

impl Connection {
    /// Makes it usable on this runtime.
    ///
    /// # Errors
    /// What the kernel says.
    pub(super) fn open(self) -> io::Result<Conversation> {
        match self {
            Self::New(stream) => Conversation::new(stream),
            Self::Open(conversation) => Ok(*conversation),
        }
    }
}

/// Both directions of one.
#[derive(Debug)]
pub(super) struct Conversation {
    lines: Lines<BufReader<OwnedReadHalf>>,
    writer: OwnedWriteHalf,
}

impl Conversation {
    fn new(stream: std::os::unix::net::UnixStream) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        let (reader, writer) = UnixStream::from_std(stream)?.into_split();
        Ok(Self {
            lines: BufReader::new(reader).lines(),
            writer,
        })
    }

    /// The next line; none if the supervisor hung up. Nothing is lost if it is not waited for to the end.
    ///
    /// # Errors
    /// What the kernel says.
    pub(super) async fn next_line(&mut self) -> io::Result<Option<String>> {
        self.lines.next_line().await
    }

    /// Tells the supervisor.
    ///
    /// # Errors
    /// What the kernel says.
    pub(super) async fn say(&mut self, request: &AgentRequest) -> io::Result<()> {
        self.writer.write_all(&line(request)?).await
    }

    /// Tells it without waiting; false if the socket does not take all of it now.
    pub(super) fn say_now(&self, request: &AgentRequest) -> bool {
        line(request).is_ok_and(|line| {
            let written = self.writer.try_write(&line);
            written.is_ok_and(|count| count == line.len())
        })
    }

    /// Whether the supervisor has said, beside what was heard, that it is idle, and nothing more: then whether it keeps its
    /// task's cgroups. It says so by the same write as how its task ended: one that is not heard here will not be.
    pub(super) fn hears_idle(&mut self) -> Option<bool> {
        let reader = self.lines.get_mut();
        let rest = reader.buffer();
        let keeps_cgroups = match serde_json::from_slice(rest) {
            Ok(SupervisorMessage::Idle { keeps_cgroups }) => Some(keeps_cgroups),
            _ => None,
        };
        let count = rest.len();
        reader.consume(count);
        keeps_cgroups
    }
}

fn line(request: &AgentRequest) -> serde_json::Result<Vec<u8>> {
    let mut line = serde_json::to_vec(request)?;
    line.push(b'\n');
    Ok(line)
}
