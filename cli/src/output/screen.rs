//! Output of a command: data on stdout, progress on stderr.

use std::io::{self, IsTerminal, Write};

use jiff::Timestamp;

use crate::failure::Failure;
use crate::output::Format;

/// Clears a terminal and puts the cursor at its top left.
const CLEAR: &str = "\u{1b}[2J\u{1b}[H";

/// Output destination and format of a command.
#[derive(Clone, Debug)]
pub(crate) struct Screen {
    /// Format of results.
    pub(crate) format: Format,
    /// Whether tables have a header line.
    pub(crate) headers: bool,
    /// Whether progress notes are suppressed.
    pub(crate) quiet: bool,
}

impl Screen {
    /// The current time, the reference of relative times.
    pub(crate) fn now(&self) -> Timestamp {
        Timestamp::now()
    }

    /// Whether results are tables.
    pub(crate) fn is_table(&self) -> bool {
        matches!(self.format, Format::Table | Format::Wide)
    }

    /// Writes requested data to stdout at once, without colours if stdout does not support them. After its
    /// reader has closed it, the command has nothing more to do, and fails with [`Failure::reader_gone`].
    pub(crate) fn data(&self, text: &str) -> Result<(), Failure> {
        let mut stdout = anstream::stdout().lock();
        let written = stdout.write_all(text.as_bytes());
        finish(written.and_then(|()| stdout.flush()))
    }

    /// Reports an action or outcome on stdout. A closed stdout is ignored: the command completes, and exits
    /// as if its output had been read.
    pub(crate) fn report(&self, text: &str) -> Result<(), Failure> {
        match self.data(text) {
            Err(failure) if failure.is_reader_gone() => Ok(()),
            other => other,
        }
    }

    /// Writes bytes to stdout exactly as they are.
    pub(crate) fn bytes(&self, bytes: &[u8]) -> Result<(), Failure> {
        let mut stdout = io::stdout().lock();
        let written = stdout.write_all(bytes);
        finish(written.and_then(|()| stdout.flush()))
    }

    /// Writes bytes to stderr exactly as they are; errors are ignored.
    pub(crate) fn error_bytes(&self, bytes: &[u8]) {
        let mut stderr = io::stderr().lock();
        drop(stderr.write_all(bytes).and_then(|()| stderr.flush()));
    }

    /// Writes the current view: it replaces the previous one on a terminal, else it is appended.
    pub(crate) fn redraw(&self, text: &str) -> Result<(), Failure> {
        if io::stdout().is_terminal() {
            self.data(&format!("{CLEAR}{text}"))
        } else {
            self.data(text)
        }
    }

    /// Reports progress on stderr.
    pub(crate) fn progress(&self, text: &str) {
        if !self.quiet {
            note(text);
        }
    }
}

/// Writes a line to stderr; errors are ignored.
pub(crate) fn note(text: &str) {
    let mut stderr = anstream::stderr().lock();
    drop(writeln!(stderr, "{text}"));
}

/// A closed reader (`| head`) is not a failure of the command.
fn finish(written: io::Result<()>) -> Result<(), Failure> {
    match written {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Err(Failure::reader_gone()),
        Err(error) => Err(Failure::new(format!("cannot write to stdout: {error}"))),
    }
}
