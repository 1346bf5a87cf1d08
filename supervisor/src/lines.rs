//! One JSON value a line over a Unix socket, without ever waiting.

use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;

use serde::Serialize;

use crate::limits::{AGENT_LINE_BYTES_MAX, LINE_BYTES_MAX, UNREAD_BYTES_MAX};

/// One connection: what was read and is not yet a line, and what waits to be written.
#[derive(Debug)]
pub(crate) struct LineStream {
    stream: UnixStream,
    input: Vec<u8>,
    output: Vec<u8>,
    /// Bytes of the longest line that is read.
    line_bytes_max: usize,
}

impl LineStream {
    /// Takes over a connected socket of a task.
    pub(crate) fn of_task(stream: UnixStream) -> io::Result<Self> {
        Self::new(stream, LINE_BYTES_MAX)
    }

    /// Takes over a connected socket of an agent.
    pub(crate) fn of_agent(stream: UnixStream) -> io::Result<Self> {
        Self::new(stream, AGENT_LINE_BYTES_MAX)
    }

    fn new(stream: UnixStream, line_bytes_max: usize) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        Ok(Self {
            stream,
            input: Vec::new(),
            output: Vec::new(),
            line_bytes_max,
        })
    }

    /// Reads what is there. False: the other side hung up, or sends lines without end.
    pub(crate) fn fill(&mut self) -> bool {
        let mut buffer = [0u8; 4_096];
        loop {
            match self.stream.read(&mut buffer) {
                Ok(0) => return false,
                Ok(count) => self.input.extend_from_slice(&buffer[..count]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return true,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return false,
            }
            if self.input.len() > self.line_bytes_max && !self.input.contains(&b'\n') {
                return false;
            }
        }
    }

    /// Takes the next whole line.
    pub(crate) fn next_line(&mut self) -> Option<Vec<u8>> {
        let end = self.input.iter().position(|byte| *byte == b'\n')?;
        let mut line: Vec<u8> = self.input.drain(..=end).collect();
        line.pop();
        Some(line)
    }

    /// Queues a message and writes what the socket takes. False: the other side is gone or does not read.
    pub(crate) fn send(&mut self, message: &impl Serialize) -> bool {
        self.send_all(std::slice::from_ref(message))
    }

    /// The same for messages that the other side gets by one read.
    pub(crate) fn send_all(&mut self, messages: &[impl Serialize]) -> bool {
        for message in messages {
            if serde_json::to_writer(&mut self.output, message).is_err() {
                return false;
            }
            self.output.push(b'\n');
        }
        self.flush() && self.output.len() <= UNREAD_BYTES_MAX
    }

    /// Writes what the socket takes. False: the other side is gone.
    pub(crate) fn flush(&mut self) -> bool {
        while !self.output.is_empty() {
            match self.stream.write(&self.output) {
                Ok(0) => return false,
                Ok(count) => drop(self.output.drain(..count)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return true,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return false,
            }
        }
        true
    }

    /// Whether something waits to be written.
    pub(crate) fn has_output(&self) -> bool {
        !self.output.is_empty()
    }
}

impl AsFd for LineStream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}
