//! The user's side of a command: input to the engine, output from it.

use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, OwnedFd};

use crate::container::frames::Frames;
use crate::container::http::Exchange;
use crate::container::pipes::own;
use crate::output::segments::OutputStream;

/// Bytes of input read at a time and buffered for the engine.
const READ_BYTES: usize = 16 << 10;

/// Input that the user types or pipes.
#[derive(Debug)]
pub(super) struct Input {
    /// `None` at end of file.
    file: Option<OwnedFd>,
    pending: Vec<u8>,
    end_is_sent: bool,
}

impl Input {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self {
            file: Some(own(io::stdin().as_fd())?),
            pending: Vec::new(),
            end_is_sent: false,
        })
    }

    /// The input file, if more is to be read from it now.
    pub(super) fn wanted(&self) -> Option<&OwnedFd> {
        self.file.as_ref().filter(|_| self.pending.is_empty())
    }

    /// Whether input is buffered for the engine.
    pub(super) const fn waits(&self) -> bool {
        !self.pending.is_empty()
    }

    /// Reads available input. True at end of file.
    pub(super) fn read(&mut self) -> bool {
        let Some(file) = self.wanted() else {
            return false;
        };
        let mut bytes = vec![0u8; READ_BYTES];
        match rustix::io::read(file, &mut bytes).map_err(io::Error::from) {
            Ok(count) if count > 0 => {
                bytes.truncate(count);
                self.pending = bytes;
                false
            }
            Err(error)
                if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) =>
            {
                false
            }
            // A terminal whose other side is closed reports it by an error.
            Ok(_) | Err(_) => {
                self.file = None;
                true
            }
        }
    }

    /// Forwards buffered input, and then its end. Input after the command closed its side is dropped.
    pub(super) fn forward(&mut self, stream: &mut Exchange) {
        while !self.pending.is_empty() {
            match stream.write(&self.pending) {
                Ok(count) => drop(self.pending.drain(..count)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => self.close(),
            }
        }
        if self.file.is_none() && !self.end_is_sent {
            self.end_is_sent = true;
            // The only error is that the other side is gone.
            drop(stream.end_input());
        }
    }

    /// Stops reading: the command takes no more input.
    pub(super) fn close(&mut self) {
        self.file = None;
        self.pending.clear();
    }
}

/// Output of the command.
#[derive(Debug)]
pub(super) struct Output {
    frames: Frames,
    pipes: [OwnedFd; 2],
    blocked: Option<OutputStream>,
    /// Whether its reader is gone.
    is_unread: bool,
}

impl Output {
    pub(super) fn new(is_terminal: bool) -> io::Result<Self> {
        Ok(Self {
            frames: match is_terminal {
                true => Frames::bare(),
                false => Frames::default(),
            },
            pipes: [own(io::stdout().as_fd())?, own(io::stderr().as_fd())?],
            blocked: None,
            is_unread: false,
        })
    }

    /// The file that blocks at the moment, if any: nothing more may be read from the engine before it accepts
    /// data.
    pub(super) fn blocked(&self) -> Option<&OwnedFd> {
        let [stdout, stderr] = &self.pipes;
        self.blocked.map(|stream| match stream {
            OutputStream::Stdout => stdout,
            OutputStream::Stderr => stderr,
        })
    }

    /// Buffers data from the engine.
    pub(super) fn push(&mut self, bytes: &[u8]) {
        if !self.is_unread {
            self.frames.push(bytes);
        }
    }

    /// Writes what the files accept. False if the reader is gone; the rest is dropped.
    pub(super) fn write(&mut self) -> bool {
        if self.is_unread {
            return true;
        }
        let [stdout, stderr] = &self.pipes;
        let written = self.frames.write(|stream, bytes| {
            let pipe = match stream {
                OutputStream::Stdout => stdout,
                OutputStream::Stderr => stderr,
            };
            rustix::io::write(pipe, bytes).map_err(io::Error::from)
        });
        self.is_unread = written.is_err();
        self.blocked = written.ok().flatten();
        !self.is_unread
    }
}
