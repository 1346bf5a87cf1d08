//! Non-blocking stream of JSON lines over a Unix socket.

use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;

use serde::Serialize;

use crate::limits::{
    AGENT_LINE_BYTES_MAX, LINE_BYTES_MAX, READ_AT_ONCE_BYTES_MAX, UNREAD_BYTES_MAX,
};

/// One connection: received bytes that are not yet a line, and output that waits to be written.
#[derive(Debug)]
pub(crate) struct LineStream {
    stream: UnixStream,
    input: Vec<u8>,
    /// Bytes of `input` that were taken as lines.
    taken: usize,
    /// Bytes of `input` already searched for a line end.
    searched: usize,
    output: Vec<u8>,
    /// Maximum bytes of a line.
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
            taken: 0,
            searched: 0,
            output: Vec::new(),
            line_bytes_max,
        })
    }

    /// Reads available data, up to the bound per round, unless a complete line waits to be taken. False if
    /// the other side hung up or sends an endless line.
    pub(crate) fn fill(&mut self) -> bool {
        if self.has_line() {
            return true;
        }
        self.input.drain(..self.taken);
        self.searched -= self.taken;
        self.taken = 0;
        let mut buffer = [0u8; 4_096];
        let mut room = READ_AT_ONCE_BYTES_MAX;
        while room > 0 {
            match self.stream.read(&mut buffer) {
                Ok(0) => return false,
                Ok(count) => {
                    self.input.extend_from_slice(&buffer[..count]);
                    room = room.saturating_sub(count);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return true,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return false,
            }
            if self.input.len() > self.line_bytes_max && !self.has_line() {
                return false;
            }
        }
        true
    }

    /// Whether a complete line waits to be taken.
    pub(crate) fn has_line(&mut self) -> bool {
        self.line_end().is_some()
    }

    /// Takes the next complete line.
    pub(crate) fn next_line(&mut self) -> Option<Vec<u8>> {
        let end = self.line_end()?;
        let line = self.input[self.taken..end].to_vec();
        self.taken = end + 1;
        self.searched = self.taken;
        Some(line)
    }

    /// Position of the next line end. No byte is searched twice, however slowly a line arrives.
    fn line_end(&mut self) -> Option<usize> {
        let unsearched = self.input.get(self.searched..).unwrap_or_default();
        let index = unsearched.iter().position(|byte| *byte == b'\n');
        self.searched += index.unwrap_or(unsearched.len());
        index.map(|_| self.searched)
    }

    /// Queues a message and writes what the socket accepts. False if the other side is gone or does not read.
    pub(crate) fn send(&mut self, message: &impl Serialize) -> bool {
        self.send_all(std::slice::from_ref(message))
    }

    /// Like `send`, for messages that the other side receives by one read.
    pub(crate) fn send_all(&mut self, messages: &[impl Serialize]) -> bool {
        for message in messages {
            if serde_json::to_writer(&mut self.output, message).is_err() {
                return false;
            }
            self.output.push(b'\n');
        }
        self.flush() && !self.has_excess_output()
    }

    /// Whether the other side has left so much unread that it is to be disconnected.
    pub(crate) fn has_excess_output(&self) -> bool {
        self.output.len() > UNREAD_BYTES_MAX
    }

    /// Writes what the socket accepts. False if the other side is gone.
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

    /// Whether output is buffered.
    pub(crate) fn has_output(&self) -> bool {
        !self.output.is_empty()
    }
}

impl AsFd for LineStream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a failed test should panic")]
mod tests {
    use super::*;

    fn pair() -> (LineStream, UnixStream) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        (LineStream::of_task(ours).unwrap(), theirs)
    }

    /// Writes until the socket accepts no more; returns the number of bytes.
    fn flood(theirs: &mut UnixStream, bytes: &[u8]) -> usize {
        theirs.set_nonblocking(true).unwrap();
        std::iter::from_fn(|| theirs.write(bytes).ok()).sum()
    }

    fn lines(stream: &mut LineStream) -> Vec<String> {
        let lines = std::iter::from_fn(|| stream.next_line());
        lines.map(|line| String::from_utf8(line).unwrap()).collect()
    }

    #[test]
    fn lines_come_whole_in_whatever_pieces_they_were_sent() {
        let (mut stream, mut theirs) = pair();
        let pieces: [(&str, &[&str]); 4] = [
            ("on", &[]),
            ("e\ntwo\nth", &["one", "two"]),
            ("", &[]),
            ("ree\n\n", &["three", ""]),
        ];
        for (piece, expected) in pieces {
            theirs.write_all(piece.as_bytes()).unwrap();
            assert!(stream.fill());
            assert_eq!(stream.has_line(), !expected.is_empty(), "{piece:?}");
            assert_eq!(lines(&mut stream), expected, "{piece:?}");
        }
        theirs.write_all(b"last\nhalf").unwrap();
        drop(theirs);
        assert!(!stream.fill(), "it hung up");
        assert_eq!(lines(&mut stream), ["last"]);
    }

    #[test]
    fn endless_output_is_read_a_piece_at_a_time() {
        let (mut stream, mut theirs) = pair();
        let sent = flood(&mut theirs, &[b'\n'; 16 << 10]);
        assert!(sent > READ_AT_ONCE_BYTES_MAX, "{sent}");
        assert!(stream.fill());
        assert_eq!(stream.input.len(), READ_AT_ONCE_BYTES_MAX);
        // Nothing more is read before all buffered lines were taken.
        assert!(stream.next_line().is_some() && stream.fill());
        assert_eq!(stream.input.len(), READ_AT_ONCE_BYTES_MAX);
        let mut taken = 1;
        loop {
            taken += lines(&mut stream).len();
            assert!(stream.fill() && stream.input.len() <= READ_AT_ONCE_BYTES_MAX);
            if !stream.has_line() {
                break;
            }
        }
        assert_eq!(taken, sent);
    }

    #[test]
    fn a_peer_that_sends_an_endless_line_is_disconnected() {
        let (mut stream, mut theirs) = pair();
        let sent = flood(&mut theirs, &[b'x'; 16 << 10]);
        assert!(sent > LINE_BYTES_MAX, "{sent}");
        assert!(stream.fill() && !stream.has_line());
        assert!(!stream.fill());
    }
}
