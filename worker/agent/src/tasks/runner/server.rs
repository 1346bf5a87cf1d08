//! The agent's side of the process that forks its supervisors: see `muster_supervisor::supervise::server`.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};

use muster_supervisor::supervise::server;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

use crate::limits::FORK_MAX;

/// Forks supervisors in a process that has loaded their program already.
#[derive(Debug)]
pub(super) struct SupervisorServer {
    program: PathBuf,
    /// The parent of all task directories.
    tasks: PathBuf,
    process: Mutex<Option<Process>>,
}

#[derive(Debug)]
struct Process {
    socket: OwnedFd,
    child: Child,
}

impl SupervisorServer {
    /// No process is started before the first supervisor is needed.
    pub(super) const fn new(program: PathBuf, tasks: PathBuf) -> Self {
        Self {
            program,
            tasks,
            process: Mutex::new(None),
        }
    }

    /// Forks a supervisor for a task directory, with `agent` as its standard input; returns its process id.
    ///
    /// After an error it is unknown whether a supervisor was forked: a caller that starts another one
    /// relies on the claim, which only one of them gets.
    ///
    /// # Errors
    /// Of the kernel. The next call starts a new server.
    pub(super) fn fork(&self, directory: &Path, agent: BorrowedFd<'_>) -> io::Result<i32> {
        let mut process = self.process.lock().unwrap_or_else(PoisonError::into_inner);
        let running = match process.take() {
            Some(running) => running,
            None => Process::start(&self.program, &self.tasks)?,
        };
        let pid = server::ask(running.socket.as_fd(), directory, agent)?;
        *process = Some(running);
        Ok(pid)
    }
}

impl Process {
    fn start(program: &Path, tasks: &Path) -> io::Result<Self> {
        let (ours, theirs) = socketpair(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::CLOEXEC,
            None,
        )?;
        for timeout in [Timeout::Recv, Timeout::Send] {
            set_socket_timeout(&ours, timeout, Some(FORK_MAX))?;
        }
        let child = Command::new(program)
            .args(["supervise", "--serve"])
            .arg(tasks)
            .stdin(Stdio::from(theirs))
            .stdout(Stdio::null())
            .current_dir("/")
            .spawn()?;
        Ok(Self {
            socket: ours,
            child,
        })
    }
}

impl Drop for Process {
    /// Closes the socket. The process ends after its last supervisor, which it continues to guard.
    fn drop(&mut self) {
        // If it is still running, it is reaped when this process ends.
        drop(self.child.try_wait());
    }
}
