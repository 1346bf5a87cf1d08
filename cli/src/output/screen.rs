//! The two ends of a command's output: data on stdout, progress on stderr.

use std::io::{self, IsTerminal, Write};

use jiff::Timestamp;

use crate::failure::Failure;
use crate::output::Format;

/// Clears a terminal and puts the cursor at its top left.
const CLEAR: &str = "\u{1b}[2J\u{1b}[H";

/// Where a command writes, and how.
#[derive(Clone, Debug)]
pub(crate) struct Screen {
    /// The form of results.
    pub(crate) format: Format,
    /// Whether tables have a line of titles.
    pub(crate) headers: bool,
    /// Whether progress is told at all.
    pub(crate) quiet: bool,
}

impl Screen {
    /// What relative times refer to.
    pub(crate) fn now(&self) -> Timestamp {
        Timestamp::now()
    }

    /// Whether results are for people.
    pub(crate) fn is_table(&self) -> bool {
        matches!(self.format, Format::Table | Format::Wide)
    }

    /// Writes data that was asked for to stdout at once; colours are left out where they do not belong. Once its reader has gone away
    /// the command has nothing more to do, and fails with [`Failure::reader_gone`].
    pub(crate) fn data(&self, text: &str) -> Result<(), Failure> {
        let mut stdout = anstream::stdout().lock();
        let written = stdout.write_all(text.as_bytes());
        finish(written.and_then(|()| stdout.flush()))
    }

    /// Says on stdout what was done, or how something ended. A reader that went away changes nothing of that: the command does what
    /// is left to do, and ends as if it had been read.
    pub(crate) fn tell(&self, text: &str) -> Result<(), Failure> {
        match self.data(text) {
            Err(failure) if failure.is_reader_gone() => Ok(()),
            told => told,
        }
    }

    /// Writes bytes to stdout exactly as they are.
    pub(crate) fn bytes(&self, bytes: &[u8]) -> Result<(), Failure> {
        let mut stdout = io::stdout().lock();
        let written = stdout.write_all(bytes);
        finish(written.and_then(|()| stdout.flush()))
    }

    /// Writes bytes to stderr exactly as they are; if that is gone, nobody can be told.
    pub(crate) fn error_bytes(&self, bytes: &[u8]) {
        let mut stderr = io::stderr().lock();
        drop(stderr.write_all(bytes).and_then(|()| stderr.flush()));
    }

    /// Writes a picture of the moment: it replaces the one before on a terminal, else it follows it.
    pub(crate) fn redraw(&self, text: &str) -> Result<(), Failure> {
        if io::stdout().is_terminal() {
            self.data(&format!("{CLEAR}{text}"))
        } else {
            self.data(text)
        }
    }

    /// Tells what goes on, on stderr.
    pub(crate) fn progress(&self, text: &str) {
        if !self.quiet {
            note(text);
        }
    }
}

/// Writes a line to stderr; if that is gone, nobody can be told.
pub(crate) fn note(text: &str) {
    let mut stderr = anstream::stderr().lock();
    drop(writeln!(stderr, "{text}"));
}

/// A reader that went away (`| head`) is no failure of ours.
fn finish(written: io::Result<()>) -> Result<(), Failure> {
    match written {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Err(Failure::reader_gone()),
        Err(error) => Err(Failure::new(format!("cannot write to stdout: {error}"))),
    }
}
