//! The one place with unsafe code: what must happen between `fork` and `exec`.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::process::{Signal, getpid, getppid, set_parent_process_death_signal, setsid};

/// Makes a command start in a session of its own and die with the process that starts it.
///
/// The session gives the task a process group that can be killed whole; the death signal ensures that no
/// task outlives its supervisor, which alone holds its lease.
pub(crate) fn in_own_session_dying_with_parent(command: &mut Command) {
    let parent = getpid();
    let prepare = move || {
        setsid()?;
        set_parent_process_death_signal(Some(Signal::KILL))?;
        // A parent that died before the line above sends no signal any more.
        if getppid() == Some(parent) {
            Ok(())
        } else {
            Err(io::Error::from(io::ErrorKind::BrokenPipe))
        }
    };
    // SAFETY: the closure makes four system calls and allocates nothing, so it is sound in the child of a
    // process whose other threads may hold locks.
    unsafe {
        command.pre_exec(prepare);
    }
}
