//! Pause state of a task.

use crate::exec::Execs;
use crate::process::process_tree::ProcessTree;

/// Pause state of the task's processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PauseState {
    /// Running.
    Running,
    /// Paused.
    Paused,
    /// Paused, and to be resumed.
    Resuming,
}

impl PauseState {
    /// Resumes the processes if they are paused.
    pub(super) fn resume(&mut self) {
        if *self == Self::Paused {
            *self = Self::Resuming;
        }
    }

    /// Applies the state to all processes except commands beside the task; failures are retried with the next
    /// check.
    pub(super) fn apply(&mut self, tree: &ProcessTree, execs: &Execs) {
        match self {
            Self::Running => {}
            Self::Paused => {
                execs.with_running(|beside| tree.suspend(beside));
            }
            Self::Resuming => {
                if execs.with_running(|beside| tree.resume(beside)) {
                    *self = Self::Running;
                }
            }
        }
    }
}
