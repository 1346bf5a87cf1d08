//! One process of a local cluster: started with its output in a file, ended by its own pid only.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tokio::time::Instant;

/// Interval between checks of an ending process.
const EXIT_POLL: Duration = Duration::from_millis(5);

/// A child process with its log file.
#[derive(Debug)]
pub struct ManagedProcess {
    child: Child,
    log: PathBuf,
}

impl ManagedProcess {
    /// Starts `command` with stdin closed and both outputs appended to `log`.
    ///
    /// # Errors
    /// If the log cannot be opened or the program cannot be started.
    pub fn start(command: &mut Command, log: &Path) -> io::Result<Self> {
        let output = File::options().create(true).append(true).open(log)?;
        let child = command
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output)
            .spawn()?;
        Ok(Self {
            child,
            log: log.to_owned(),
        })
    }

    /// Process id.
    #[must_use]
    pub fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// Path of its output.
    #[must_use]
    pub fn log(&self) -> &Path {
        &self.log
    }

    /// Whether it still runs.
    ///
    /// # Errors
    /// If the kernel does not know the child.
    pub fn is_running(&mut self) -> io::Result<bool> {
        Ok(self.child.try_wait()?.is_none())
    }

    /// Kills it at once (SIGKILL) and reaps it.
    ///
    /// # Errors
    /// If the kernel does not know the child.
    pub fn kill(&mut self) -> io::Result<ExitStatus> {
        self.child.kill()?;
        self.child.wait()
    }

    /// Sends SIGTERM and waits up to `wait_max`, then kills it.
    ///
    /// # Errors
    /// If the kernel does not know the child.
    #[expect(
        clippy::disallowed_methods,
        reason = "clean-up happens in destructors too, where nothing can be awaited"
    )]
    pub fn stop(&mut self, wait_max: Duration) -> io::Result<ExitStatus> {
        if self.is_running()? {
            kill_process(self.pid(), Signal::TERM)?;
        }
        let deadline = Instant::now() + wait_max;
        while Instant::now() < deadline {
            if let Some(status) = self.child.try_wait()? {
                return Ok(status);
            }
            std::thread::sleep(EXIT_POLL);
        }
        self.kill()
    }
}

impl Drop for ManagedProcess {
    fn drop(&mut self) {
        // Nothing to report: a process that has already ended is the goal.
        let _ended = self.kill();
    }
}
