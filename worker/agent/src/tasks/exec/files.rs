//! The input and output of a command: pipes, or a terminal.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use muster_proto::v1;
use rustix::fs::{Mode, OFlags, fcntl_getfl, fcntl_setfl};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};
use tokio::io::unix::AsyncFd;

use crate::limits::EXEC_CHUNK_BYTES;

/// The command's ends.
#[derive(Debug)]
pub(super) struct CommandFiles {
    input: OwnedFd,
    output: OwnedFd,
    errors: OwnedFd,
}

impl CommandFiles {
    pub(super) fn all(&self) -> [BorrowedFd<'_>; 3] {
        [self.input.as_fd(), self.output.as_fd(), self.errors.as_fd()]
    }
}

/// The agent's ends.
#[derive(Debug)]
pub(super) struct AgentFiles {
    /// None after the end of input.
    input: Option<Arc<End>>,
    pub(super) output: Arc<End>,
    /// None for a terminal, which has only one output.
    pub(super) errors: Option<Arc<End>>,
    is_terminal: bool,
}

/// A non-blocking end.
#[derive(Debug)]
pub(super) struct End(AsyncFd<OwnedFd>);

/// Pipes for input, output and errors.
pub(super) fn pipes() -> io::Result<(CommandFiles, AgentFiles)> {
    let (their_input, input) = io::pipe()?;
    let (output, their_output) = io::pipe()?;
    let (errors, their_errors) = io::pipe()?;
    let theirs = CommandFiles {
        input: their_input.into(),
        output: their_output.into(),
        errors: their_errors.into(),
    };
    let ours = AgentFiles {
        input: Some(End::new(input.into())?),
        output: End::new(output.into())?,
        errors: Some(End::new(errors.into())?),
        is_terminal: false,
    };
    Ok((theirs, ours))
}

/// Opens a terminal of a given size.
pub(super) fn terminal(window: v1::WindowSize) -> io::Result<(CommandFiles, AgentFiles)> {
    let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)?;
    grantpt(&ours)?;
    unlockpt(&ours)?;
    tcsetwinsize(&ours, size(window))?;
    let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
    let theirs = rustix::fs::open(ptsname(&ours, Vec::new())?, flags, Mode::empty())?;
    let files = CommandFiles {
        output: theirs.try_clone()?,
        errors: theirs.try_clone()?,
        input: theirs,
    };
    let end = End::new(ours)?;
    let ours = AgentFiles {
        input: Some(Arc::clone(&end)),
        output: end,
        errors: None,
        is_terminal: true,
    };
    Ok((files, ours))
}

fn size(window: v1::WindowSize) -> Winsize {
    let short = |number| u16::try_from(number).unwrap_or(u16::MAX);
    Winsize {
        ws_row: short(window.rows),
        ws_col: short(window.columns),
        ws_xpixel: 0,
        ws_ypixel: 0,
    }
}

impl AgentFiles {
    /// Writes input. Bytes that the command no longer reads are dropped.
    pub(super) async fn write(&mut self, bytes: &[u8]) {
        let Some(input) = &self.input else { return };
        if let Err(error) = input.write_all(bytes).await {
            tracing::debug!(%error, "a command no longer reads its input");
            self.input = None;
        }
    }

    /// Ends the input. On a terminal, sends the end-of-file character.
    pub(super) async fn end_input(&mut self) {
        const END_OF_TRANSMISSION: &[u8] = &[4];
        if self.is_terminal {
            self.write(END_OF_TRANSMISSION).await;
        }
        self.input = None;
    }

    /// Resizes the terminal.
    pub(super) fn resize(&self, window: v1::WindowSize) {
        if self.is_terminal
            && let Err(error) = tcsetwinsize(self.output.0.get_ref(), size(window))
        {
            tracing::debug!(%error, "resizing a terminal failed");
        }
    }
}

/// A non-blocking file with readiness notification.
#[expect(
    deprecated,
    reason = "its replacement is unsafe for files that other code may close; this one is owned"
)]
pub(super) fn watched(file: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    fcntl_setfl(&file, fcntl_getfl(&file)? | OFlags::NONBLOCK)?;
    AsyncFd::new(file)
}

impl End {
    fn new(file: OwnedFd) -> io::Result<Arc<Self>> {
        Ok(Arc::new(Self(watched(file)?)))
    }

    /// The next bytes; empty at the end.
    pub(super) async fn read(&self) -> Vec<u8> {
        let mut bytes = vec![0u8; EXEC_CHUNK_BYTES];
        loop {
            let Ok(mut ready) = self.0.readable().await else {
                return Vec::new();
            };
            let read = ready.try_io(|file| Ok(rustix::io::read(file.get_ref(), &mut bytes)?));
            match read {
                Ok(Ok(count)) => {
                    bytes.truncate(count);
                    return bytes;
                }
                // A terminal whose other end is closed returns EIO.
                Ok(Err(error)) if error.kind() != io::ErrorKind::Interrupted => return Vec::new(),
                Ok(Err(_)) | Err(_) => {}
            }
        }
    }

    async fn write_all(&self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            let mut ready = self.0.writable().await?;
            let written = ready.try_io(|file| Ok(rustix::io::write(file.get_ref(), bytes)?));
            match written {
                Ok(Ok(count)) => bytes = &bytes[count..],
                Ok(Err(error)) if error.kind() != io::ErrorKind::Interrupted => return Err(error),
                Ok(Err(_)) | Err(_) => {}
            }
        }
        Ok(())
    }
}
