//! Runner for programs that may hang: with a time limit, after which all their processes are killed.

use std::os::unix::process::ExitStatusExt;
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use muster_health::checks::CheckEnd;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::Command;
use tokio::time::timeout;

use crate::limits::{PROGRAM_DRAIN_MAX, PROGRAM_OUTPUT_BYTES_MAX};
use crate::process_group;

/// Exit of a program and its output.
#[derive(Debug)]
pub(super) struct ProgramResult {
    pub(super) end: CheckEnd,
    pub(super) output: String,
}

impl ProgramResult {
    /// Whether it exited with 0.
    pub(super) const fn succeeded(&self) -> bool {
        matches!(self.end, CheckEnd::Exited(0))
    }

    /// Description of the exit, with the last line of output.
    pub(super) fn evidence(&self, program: &str) -> String {
        let end = match self.end {
            CheckEnd::Exited(code) => format!("ended with {code}"),
            CheckEnd::Killed(signal) => format!("was ended by signal {signal}"),
            CheckEnd::TimedOut => "did not end in time".to_owned(),
            CheckEnd::NotStarted => "could not be started".to_owned(),
        };
        let mut lines = self.output.lines().map(str::trim);
        match lines.rfind(|line| !line.is_empty()) {
            Some(line) => format!("`{program}` {end}: {line}"),
            None => format!("`{program}` {end}"),
        }
    }
}

/// Runs a program in its own process group, which is killed at the time limit.
pub(super) async fn run(command: &[String], limit: Duration) -> ProgramResult {
    let not_started = |output: String| ProgramResult {
        end: CheckEnd::NotStarted,
        output,
    };
    let Some((program, arguments)) = command.split_first() else {
        return not_started("no program is configured".to_owned());
    };
    let spawned = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .kill_on_drop(true)
        .spawn();
    let mut child = match spawned {
        Ok(child) => child,
        Err(error) => return not_started(format!("{program}: {error}")),
    };
    let printed = CapturedOutput::default();
    let reading = tokio::spawn({
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        let printed = printed.clone();
        async move { tokio::join!(printed.take(stdout), printed.take(stderr)) }
    });
    let end = match timeout(limit, child.wait()).await {
        Ok(Ok(status)) => match status.code() {
            Some(code) => CheckEnd::Exited(code),
            None => CheckEnd::Killed(status.signal().unwrap_or(0)),
        },
        Ok(Err(error)) => {
            tracing::warn!(program, %error, "the exit of a program is unknown");
            CheckEnd::NotStarted
        }
        Err(_) => {
            process_group::kill(&mut child).await;
            CheckEnd::TimedOut
        }
    };
    // Processes that it left running may hold its output open.
    let abort = reading.abort_handle();
    if timeout(PROGRAM_DRAIN_MAX, reading).await.is_err() {
        abort.abort();
    }
    ProgramResult {
        end,
        output: printed.text(),
    }
}

/// The output of a program, up to a maximum of bytes.
#[derive(Clone, Debug, Default)]
struct CapturedOutput(Arc<Mutex<Vec<u8>>>);

impl CapturedOutput {
    /// Reads a pipe to its end; bytes beyond the maximum are dropped, so that the program never blocks on
    /// output.
    async fn take(&self, pipe: Option<impl AsyncRead + Unpin>) {
        let Some(mut pipe) = pipe else { return };
        let mut buffer = vec![0; 4 << 10];
        while let Ok(bytes) = pipe.read(&mut buffer).await {
            if bytes == 0 {
                return;
            }
            let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            let room = PROGRAM_OUTPUT_BYTES_MAX.saturating_sub(all.len());
            all.extend_from_slice(&buffer[..bytes.min(room)]);
        }
    }

    fn text(&self) -> String {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(&all).into_owned()
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a failed test should panic")]
mod tests {
    use super::*;

    fn script(text: &str) -> Vec<String> {
        ["sh", "-c", text].map(str::to_owned).to_vec()
    }

    #[tokio::test]
    async fn a_program_result_has_its_end_and_its_output() {
        let limit = Duration::from_secs(20);
        let ran = run(&script("echo fine; echo why >&2; exit 3"), limit).await;
        assert_eq!(ran.end, CheckEnd::Exited(3));
        assert!(ran.output.contains("fine") && ran.output.contains("why"));
        let ran = run(&script("kill -9 $$"), limit).await;
        assert_eq!(ran.end, CheckEnd::Killed(9));
        let ran = run(&["/nonexistent/check".to_owned()], limit).await;
        assert_eq!(ran.end, CheckEnd::NotStarted);
    }

    #[tokio::test]
    async fn one_that_hangs_is_killed_with_all_that_it_started() {
        let home = tempfile::tempdir().unwrap();
        let pid = home.path().join("pid");
        let text = format!("sleep 1000 & echo $! > {}; wait", pid.display());
        let ran = run(&script(&text), Duration::from_secs(5)).await;
        assert_eq!(ran.end, CheckEnd::TimedOut);
        let pid = std::fs::read_to_string(pid).unwrap();
        let stat = format!("/proc/{}/stat", pid.trim());
        let is_over = || {
            let stat = std::fs::read_to_string(&stat).unwrap_or_default();
            stat.is_empty() || stat.contains(") Z ")
        };
        let over = timeout(Duration::from_secs(20), async {
            while !is_over() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        });
        over.await.unwrap();
    }
}
