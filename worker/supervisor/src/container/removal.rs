//! Removal of a container whose runner was killed, by a separate process of its supervisor.

use std::path::PathBuf;

use rustix::process::{WaitStatus, getpid};

use crate::container::record::ContainerRecord;
use crate::container::removal;
use crate::process::{ProcessEntry, ProcessIdentity, descendants};
use crate::sys;
use crate::task::child::ChildSetup;
use crate::task::directory::TaskDirectory;

/// State of the removal process.
#[derive(Debug)]
pub(crate) struct Removal {
    directory: PathBuf,
    running: Option<i32>,
    is_done: bool,
}

impl Removal {
    /// Creates the state for the task of a directory; nothing is to be removed yet.
    pub(crate) fn of(directory: &TaskDirectory) -> Self {
        Self {
            directory: directory.path().to_owned(),
            running: None,
            is_done: false,
        }
    }

    /// Processes of the container except its first one, which its runner signals; empty if they are unknown.
    pub(crate) fn others_in_container(&self, entries: &[ProcessEntry]) -> Vec<i32> {
        let record = ContainerRecord::read(&TaskDirectory::new(self.directory.clone()));
        let first = record
            .ok()
            .flatten()
            .and_then(|record| record.init)
            .filter(ProcessIdentity::is_alive);
        first.map_or_else(Vec::new, |first| descendants(entries, first.pid))
    }

    /// Process id of the removal process while it runs: it is not part of the task.
    pub(crate) const fn running(&self) -> Option<i32> {
        self.running
    }

    /// Handles a reaped child.
    pub(crate) fn note(&mut self, pid: i32, status: WaitStatus) {
        if self.running == Some(pid) {
            self.running = None;
            self.is_done = status.exit_status() == Some(0);
        }
    }

    /// Whether nothing of the container is left: its runner removed it before it exited by itself. Otherwise
    /// starts the removal; if that fails, the next call tries again. Call it when this process has no
    /// children.
    pub(crate) fn is_over(&mut self, runner: Option<WaitStatus>) -> bool {
        let ended_by_itself = runner.is_some_and(|status| status.exit_status().is_some());
        if self.is_done || ended_by_itself {
            return true;
        }
        let mut command = removal(&self.directory);
        sys::set_up_in_child(&mut command, ChildSetup::helper(getpid()));
        self.running = command.spawn().ok().map(|child| child.id().cast_signed());
        false
    }
}
