//! Pause state of a task.

use crate::exec::Execs;
use crate::process::family::Family;

/// Pause state of the task's processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stance {
    /// Running.
    Goes,
    /// Paused.
    Still,
    /// Paused, and to be resumed.
    Rises,
}

impl Stance {
    /// Resumes the processes if they are paused.
    pub(super) fn resume(&mut self) {
        if *self == Self::Still {
            *self = Self::Rises;
        }
    }

    /// Applies the state to all processes except commands beside the task; failures are retried with the next
    /// check.
    pub(super) fn hold(&mut self, family: &Family, execs: &Execs) {
        match self {
            Self::Goes => {}
            Self::Still => {
                execs.knowing_all(|beside| family.suspend(beside));
            }
            Self::Rises => {
                if execs.knowing_all(|beside| family.resume(beside)) {
                    *self = Self::Goes;
                }
            }
        }
    }
}
