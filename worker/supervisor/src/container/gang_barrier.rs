//! Gangs in containers: a member reports that it is prepared only after its image is on its host.

use std::process::Child;

use muster_model::command::Exit;
use rustix::process::{Pid, PidfdFlags, getpid, pidfd_open};

use crate::container::{ContainerEnd, preparation};
use crate::supervise::{Supervisor, not_started};
use crate::sys;
use crate::task::child::ChildSetup;

impl Supervisor<'_> {
    /// Fetches the image of the task's container to this host, if the task runs in one. A slow image delays
    /// its gang, of which no member has begun.
    ///
    /// # Errors
    /// The exit of the task if its image is unavailable, it was stopped meanwhile, or its lease expired.
    pub(crate) fn fetch_image(&mut self) -> Result<(), Exit> {
        if self.spec.assignment.execution.container.is_none() {
            return Ok(());
        }
        let mut command = preparation(self.directory);
        sys::set_up_in_child(&mut command, ChildSetup::helper(getpid()));
        let failed = |error: &dyn std::fmt::Display| {
            not_started(&format!("pulling the image failed: {error}"))
        };
        let mut child = command.spawn().map_err(|error| failed(&error))?;
        let pid = Pid::from_child(&child);
        let ended = pidfd_open(pid, PidfdFlags::NONBLOCK).map_err(|error| failed(&error))?;
        loop {
            match child.try_wait() {
                Ok(Some(status)) if status.success() => return Ok(()),
                Ok(Some(_)) => return Err(self.unprepared()),
                Ok(None) => {}
                Err(error) => return Err(failed(&error)),
            }
            // The gang cannot be released before this member has reported that it is prepared.
            if let Err(exit) = self.hold_on(&[&ended]) {
                end(&mut child);
                return Err(exit);
            }
        }
    }

    fn unprepared(&self) -> Exit {
        let start_error = ContainerEnd::read(self.directory).start_error;
        not_started(
            &start_error.unwrap_or_else(|| "pulling the image failed without a message".to_owned()),
        )
    }
}

/// Ends the child: the only errors are that it has ended.
fn end(child: &mut Child) {
    drop(child.kill());
    drop(child.wait());
}
