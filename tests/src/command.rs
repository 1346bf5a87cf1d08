//! Command line, run as a user does.

use std::process::Stdio;

use serde_json::Value;
use tokio::io::AsyncWriteExt;
use tokio::process::Command;
use tokio::time::timeout;

use crate::binary::muster_binary;
use crate::watchdog::TEST_LIMIT;

/// Result of a command.
#[derive(Clone, Debug)]
pub struct Run {
    /// Exit code; -1 if a signal ended it.
    pub code: i32,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
}

impl Run {
    /// Runs a command to its end; `input` is its standard input.
    ///
    /// # Panics
    /// If it cannot be started, its output is not UTF-8, or it exceeds the time limit of a test.
    pub async fn of(mut command: Command, input: &str) -> Self {
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        let mut child = command.spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        // A command that refuses its arguments reads nothing.
        let write = async move { drop(stdin.write_all(input.as_bytes()).await) };
        let run = async { tokio::join!(write, child.wait_with_output()).1 };
        let output = timeout(TEST_LIMIT, run).await;
        let output = output.unwrap_or_else(|_| panic!("{command:?} runs for {TEST_LIMIT:?}"));
        let output = output.unwrap();
        Self {
            code: output.status.code().unwrap_or(-1),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }

    /// Asserts that the command succeeded; returns its standard output.
    ///
    /// # Panics
    /// If it failed.
    #[must_use]
    pub fn ok(self) -> String {
        assert_eq!(self.code, 0, "{self:?}");
        self.stdout
    }

    /// Asserts that the command succeeded; parses its standard output as one JSON document.
    ///
    /// # Panics
    /// If it failed, or printed anything else.
    #[must_use]
    pub fn json(self) -> Value {
        serde_json::from_str(&self.ok()).unwrap()
    }

    /// Asserts how the command failed: exit code and complete stderr; nothing on stdout.
    ///
    /// # Panics
    /// If it ended differently.
    pub fn fails(&self, code: i32, stderr: &str) {
        assert_eq!((self.code, &*self.stderr), (code, stderr), "{self:?}");
        assert_eq!(self.stdout, "", "{self:?}");
    }
}

/// The command line, isolated from the environment of the test.
#[must_use]
pub fn muster(args: &[&str]) -> Command {
    let mut command = Command::new(muster_binary());
    command
        .args(args)
        .env_clear()
        .env("USER", "ada")
        .env("PATH", std::env::var_os("PATH").unwrap_or_default());
    command
}
