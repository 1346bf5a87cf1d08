//! A command's process in its container, seen from the host.

use std::fs;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open};

use crate::container::pipes::span;
use crate::process::{ProcessEntry, ProcessIdentity, signal_group, signal_pid};

/// A process that the engine started for a command.
#[derive(Debug)]
pub(super) struct ExecProcess {
    identity: ProcessIdentity,
    /// Readable once it has ended.
    ended: OwnedFd,
}

impl ExecProcess {
    /// Opens the process with this id if it is in the container whose first process is `first`: the engine's
    /// answer may be outdated and the id reused.
    pub(super) fn of(pid: i32, first: &ProcessIdentity) -> Option<Self> {
        let ended = pidfd_open(Pid::from_raw(pid)?, PidfdFlags::NONBLOCK).ok()?;
        let identity = ProcessIdentity::of(pid)?;
        let is_inside = first.is_alive() && namespace(pid)? == namespace(first.pid)?;
        is_inside.then_some(Self { identity, ended })
    }

    /// Whether it has ended.
    pub(super) fn has_ended(&self) -> bool {
        let mut polled = [PollFd::new(&self.ended, PollFlags::IN)];
        poll(&mut polled, Some(&span(0))).is_ok_and(|ready| ready > 0)
    }

    /// Sends a signal to the process and to its children in the same process group.
    pub(super) fn signal(&self, signal: Signal) {
        let pid = self.identity.pid;
        let Some(entry) = ProcessEntry::read(pid).filter(|_| self.identity.is_alive()) else {
            return;
        };
        if entry.group == pid {
            signal_group(pid, signal);
        } else {
            signal_pid(pid, signal);
        }
    }
}

impl AsFd for ExecProcess {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.ended.as_fd()
    }
}

/// Identifies the process's pid namespace.
fn namespace(pid: i32) -> Option<PathBuf> {
    fs::read_link(format!("/proc/{pid}/ns/pid")).ok()
}
