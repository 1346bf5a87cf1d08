//! A supervisor's care for a container whose runner was killed: a process of its own removes what is left.

use std::path::PathBuf;

use rustix::process::{WaitStatus, getpid};

use crate::child::ChildSetup;
use crate::container::record::ContainerRecord;
use crate::container::removal;
use crate::directory::TaskDirectory;
use crate::process::{ProcessEntry, ProcessIdentity, descendants};
use crate::sys;

/// The process that removes what is left of a container whose runner did not.
#[derive(Debug)]
pub(crate) struct Removal {
    directory: PathBuf,
    running: Option<i32>,
    is_done: bool,
}

impl Removal {
    /// For the task of a directory; nothing is to be removed yet.
    pub(crate) fn of(directory: &TaskDirectory) -> Self {
        Self {
            directory: directory.path().to_owned(),
            running: None,
            is_done: false,
        }
    }

    /// The processes of the container but for its first one, which hears all from its runner; none if nobody knows them.
    pub(crate) fn others_in_container(&self, entries: &[ProcessEntry]) -> Vec<i32> {
        let record = ContainerRecord::read(&TaskDirectory::new(self.directory.clone()));
        let first = record.ok().flatten().and_then(|record| record.init);
        let first = first.filter(ProcessIdentity::is_alive);
        first.map_or_else(Vec::new, |first| descendants(entries, first.pid))
    }

    /// The process, while it runs: it is none of the task's.
    pub(crate) const fn running(&self) -> Option<i32> {
        self.running
    }

    /// Takes note of a process that ended.
    pub(crate) fn note(&mut self, pid: i32, status: WaitStatus) {
        if self.running == Some(pid) {
            self.running = None;
            self.is_done = status.exit_status() == Some(0);
        }
    }

    /// Whether nothing of the container is left: its runner saw to that before it ended by itself. Otherwise the removal
    /// is begun; one that cannot be is begun again by the next look. Call it when this process has no children.
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
