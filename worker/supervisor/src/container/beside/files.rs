//! The user's side of a command: input on its way to the engine, output on its way from it.

use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, OwnedFd};

use crate::container::frames::Frames;
use crate::container::http::Exchange;
use crate::container::pipes::own;
use crate::segments::OutputStream;

/// Bytes of input that are read at a time, and wait for the engine to take them.
const READ_BYTES: usize = 16 << 10;

/// What the user types or pipes.
#[derive(Debug)]
pub(super) struct Input {
    /// None at its end.
    file: Option<OwnedFd>,
    pending: Vec<u8>,
    end_is_told: bool,
}

impl Input {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self {
            file: Some(own(io::stdin().as_fd())?),
            pending: Vec::new(),
            end_is_told: false,
        })
    }

    /// The file, if more is to be read from it now.
    pub(super) fn wanted(&self) -> Option<&OwnedFd> {
        self.file.as_ref().filter(|_| self.pending.is_empty())
    }

    /// Whether something waits for the engine to take it.
    pub(super) const fn waits(&self) -> bool {
        !self.pending.is_empty()
    }

    /// Reads what there is. True: that was the end.
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
            // A terminal that nobody holds any more says so by an error.
            Ok(_) | Err(_) => {
                self.file = None;
                true
            }
        }
    }

    /// Hands on what was read, and then that it was all. A command that takes no more gets no more.
    pub(super) fn hand_on(&mut self, stream: &mut Exchange) {
        while !self.pending.is_empty() {
            match stream.write(&self.pending) {
                Ok(count) => drop(self.pending.drain(..count)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => self.close(),
            }
        }
        if self.file.is_none() && !self.end_is_told {
            self.end_is_told = true;
            // The only error is that the other side is gone.
            drop(stream.end_input());
        }
    }

    /// Nobody takes any more.
    pub(super) fn close(&mut self) {
        self.file = None;
        self.pending.clear();
    }
}

/// What the command prints.
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

    /// The file that takes nothing more now, if there is one: nothing more is to be read from the engine before it does.
    pub(super) fn blocked(&self) -> Option<&OwnedFd> {
        let [stdout, stderr] = &self.pipes;
        self.blocked.map(|stream| match stream {
            OutputStream::Stdout => stdout,
            OutputStream::Stderr => stderr,
        })
    }

    /// Takes what came from the engine.
    pub(super) fn push(&mut self, bytes: &[u8]) {
        if !self.is_unread {
            self.frames.push(bytes);
        }
    }

    /// Writes what can be written. False: its reader is gone, and the rest is dropped.
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
