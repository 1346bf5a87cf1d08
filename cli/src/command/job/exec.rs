//! `muster job exec`.

use std::io::{self, Read};

use clap::Args;
use muster_client::{Exec as Running, ExecInput, ExecOptions, ExecUpdate};
use muster_model::ids::{JobId, TaskIndex};
use muster_proto::v1;
use tokio::sync::mpsc;

use crate::connection::{Options, current_user};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::Screen;
use crate::platform::{RawTerminal, WindowChanges, window_size};

/// Bytes of input read at a time.
const INPUT_BYTES: usize = 16 << 10;
/// Pieces of input that may be queued.
const INPUTS_MAX: usize = 4;
/// Terminal size if ours is unknown.
const WINDOW: v1::WindowSize = v1::WindowSize {
    columns: 80,
    rows: 24,
};
/// Added by a shell to the number of the signal that ended a command.
const SIGNALLED: i32 = 128;
/// Exit code of a command whose reader closed its output, as in shells: by SIGPIPE.
const READER_GONE: u8 = 128 + 13;

/// `muster job exec`
///
/// The command runs on the task's host, in its environment, its working directory and its cgroup, and ends
/// with the task. Its exit code is passed on; 128 and more stand for signals.
#[derive(Debug, Args)]
pub(crate) struct Exec {
    /// The job, by id
    job: u64,
    /// The task
    #[arg(long, default_value = "0")]
    task: u32,
    /// Give the command a terminal of the size of this one
    #[arg(short, long)]
    tty: bool,
    /// Give the command no input
    #[arg(short = 'n', long)]
    no_stdin: bool,
    /// Program and arguments
    #[arg(required = true, last = true)]
    command: Vec<String>,
}

impl Exec {
    /// Runs the command.
    pub(crate) async fn run(self, options: &Options) -> Result<Exit, Failure> {
        let screen = options.screen();
        let client = options.connect_to_follow().await?;
        let request = ExecOptions {
            job: JobId(self.job),
            task: TaskIndex(self.task),
            author: current_user(),
            command: self.command,
            window: self.tty.then(window),
            terminal: std::env::var("TERM").unwrap_or_default(),
        };
        let running = client.exec(request).await?;
        let _raw = (self.tty && !self.no_stdin)
            .then(RawTerminal::enter)
            .flatten();
        let input = running.input();
        if self.no_stdin {
            input.end().await;
        } else {
            tokio::spawn(copy_input(input.clone()));
        }
        if self.tty {
            tokio::spawn(copy_sizes(input));
        }
        copy_output(running, &screen).await
    }
}

async fn copy_output(mut running: Running, screen: &Screen) -> Result<Exit, Failure> {
    while let Some(update) = running.next().await? {
        match update {
            ExecUpdate::Begun { attempt, host } => {
                tracing::debug!(attempt, host, "command started");
            }
            ExecUpdate::Stdout(bytes) => screen.bytes(&bytes).map_err(abandoned)?,
            ExecUpdate::Stderr(bytes) => screen.error_bytes(&bytes),
            ExecUpdate::Ended { code, signal } => return Ok(exit(code, signal)),
            ExecUpdate::Lost { why } => return Err(Failure::new(why)),
        }
    }
    Err(Failure::new(
        "the connection closed before the command ended",
    ))
}

/// A remote command whose output is no longer read is abandoned before its end. Like a local one, it then exits
/// with `READER_GONE`, not with success.
fn abandoned(failure: Failure) -> Failure {
    match failure.is_reader_gone() {
        true => failure.exiting(Exit::Passed(READER_GONE)),
        false => failure,
    }
}

fn exit(code: Option<i32>, signal: Option<i32>) -> Exit {
    let code = code.or(signal.map(|signal| SIGNALLED + signal));
    let code = code.and_then(|code| u8::try_from(code).ok());
    code.map_or(Exit::Error, Exit::Passed)
}

/// Forwards our input. A separate thread reads it, since a read may block forever.
async fn copy_input(input: ExecInput) {
    let (sender, mut pieces) = mpsc::channel::<Vec<u8>>(INPUTS_MAX);
    std::thread::spawn(move || {
        let mut buffer = vec![0u8; INPUT_BYTES];
        while let Ok(count @ 1..) = io::stdin().lock().read(&mut buffer) {
            if sender.blocking_send(buffer[..count].to_vec()).is_err() {
                return;
            }
        }
    });
    while let Some(piece) = pieces.recv().await {
        if !input.write(piece.into()).await {
            return;
        }
    }
    input.end().await;
}

/// Forwards every change of our terminal's size.
async fn copy_sizes(input: ExecInput) {
    let Some(mut changes) = WindowChanges::listen() else {
        tracing::debug!("cannot observe changes of the terminal's size");
        return;
    };
    while changes.next().await {
        if !input.resize(window()).await {
            return;
        }
    }
}

fn window() -> v1::WindowSize {
    window_size().map_or(WINDOW, |(columns, rows)| v1::WindowSize { columns, rows })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exit_codes_are_passed_on_and_signals_shown_as_shells_do() {
        assert_eq!(exit(Some(0), None), Exit::Passed(0));
        assert_eq!(exit(Some(7), None), Exit::Passed(7));
        assert_eq!(exit(None, Some(9)), Exit::Passed(137));
        assert_eq!(exit(None, None), Exit::Error);
    }
}
