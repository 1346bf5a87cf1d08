//! Connection to a supervisor: one JSON value per line.

use std::io;

use muster_supervisor::{AgentRequest, SupervisorMessage};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};

/// A new connection, or one that was used for an earlier task.
#[derive(Debug)]
pub(super) enum Connection {
    /// No messages were exchanged yet.
    New(std::os::unix::net::UnixStream),
    /// A supervisor was given another task through it.
    Open(Box<SupervisorConnection>),
}

impl Connection {
    /// Registers it with this runtime.
    ///
    /// # Errors
    /// Of the kernel.
    pub(super) fn open(self) -> io::Result<SupervisorConnection> {
        match self {
            Self::New(stream) => SupervisorConnection::new(stream),
            Self::Open(connection) => Ok(*connection),
        }
    }
}

/// Both directions of a connection.
#[derive(Debug)]
pub(super) struct SupervisorConnection {
    lines: Lines<BufReader<OwnedReadHalf>>,
    writer: OwnedWriteHalf,
}

impl SupervisorConnection {
    fn new(stream: std::os::unix::net::UnixStream) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        let (reader, writer) = UnixStream::from_std(stream)?.into_split();
        Ok(Self {
            lines: BufReader::new(reader).lines(),
            writer,
        })
    }

    /// The next line; none if the supervisor closed the connection. Cancel safe.
    ///
    /// # Errors
    /// Of the kernel.
    pub(super) async fn next_line(&mut self) -> io::Result<Option<String>> {
        self.lines.next_line().await
    }

    /// Sends a request.
    ///
    /// # Errors
    /// Of the kernel.
    pub(super) async fn send(&mut self, request: &AgentRequest) -> io::Result<()> {
        self.writer.write_all(&line(request)?).await
    }

    /// Sends without waiting; false if the socket does not accept all of it now.
    pub(super) fn try_send(&self, request: &AgentRequest) -> bool {
        line(request).is_ok_and(|line| {
            let written = self.writer.try_write(&line);
            written.is_ok_and(|count| count == line.len())
        })
    }

    /// Whether the supervisor has sent exactly one more message, that it is idle; the value is whether it
    /// keeps its task's cgroups. It sends this in the same write as the exit: if it has not arrived by now,
    /// it will not.
    pub(super) fn reported_idle(&mut self) -> Option<bool> {
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
