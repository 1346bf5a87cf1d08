//! The one place with unsafe code: what must happen around `fork` and `exec`.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::process::{Signal, getpid, getppid, set_parent_process_death_signal, setsid};

/// Makes a command start in a session of its own and die with the process that starts it, in the cgroup whose list of
/// processes `door` is.
///
/// It enters the cgroup by itself before its first instruction: what it starts cannot escape it.
/// The session gives the task a process group that can be killed whole; the death signal ensures that no
/// task outlives its supervisor, which alone holds its lease.
pub(crate) fn in_own_session_dying_with_parent(command: &mut Command, door: Option<File>) {
    let parent = getpid();
    let prepare = move || {
        setsid()?;
        set_parent_process_death_signal(Some(Signal::KILL))?;
        if let Some(door) = &door {
            rustix::io::write(door, b"0")?;
        }
        // A parent that died before the line above sends no signal any more.
        if getppid() == Some(parent) {
            Ok(())
        } else {
            Err(io::Error::from(io::ErrorKind::BrokenPipe))
        }
    };
    // SAFETY: the closure makes five system calls at most and allocates nothing, so it is sound in the child of a
    // process whose other threads may hold locks.
    unsafe {
        command.pre_exec(prepare);
    }
}

/// Makes a command's standard input the terminal that controls its session, which must be its own by then.
pub(crate) fn with_controlling_terminal(command: &mut Command) {
    let prepare = || {
        // SAFETY: the child has a standard input, and keeps it.
        let terminal = unsafe { BorrowedFd::borrow_raw(libc::STDIN_FILENO) };
        Ok(rustix::process::ioctl_tiocsctty(terminal)?)
    };
    // SAFETY: the closure makes one system call and allocates nothing.
    unsafe {
        command.pre_exec(prepare);
    }
}

/// Closes every file that this process inherited beside its standard ones: a supervisor lives long, and a
/// lock or pipe of whoever started its agent must not live as long. Call it before anything is opened.
///
/// # Errors
/// What the kernel says.
pub(crate) fn close_inherited_files() -> io::Result<()> {
    // SAFETY: nothing was opened yet, so no open file has an owner in this process.
    if unsafe { libc::close_range(3, libc::c_uint::MAX, 0) } == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Forks. `None` in the child, which has all of the parent's memory but only the thread that called.
///
/// # Errors
/// What the kernel says.
pub(crate) fn fork() -> io::Result<Option<i32>> {
    // SAFETY: the caller, the server, has no other threads, so no lock is held by one that the child lacks.
    match unsafe { libc::fork() } {
        0 => Ok(None),
        pid if pid > 0 => Ok(Some(pid)),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Leaves children that end to the kernel, or to this process again.
///
/// # Errors
/// What the kernel says.
pub(crate) fn ignore_children(ignore: bool) -> io::Result<()> {
    let handler = if ignore { libc::SIG_IGN } else { libc::SIG_DFL };
    // SAFETY: neither handler is code of ours.
    if unsafe { libc::signal(libc::SIGCHLD, handler) } == libc::SIG_ERR {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}

/// Makes two files this process's standard input and standard error.
///
/// # Errors
/// What the kernel says.
pub(crate) fn become_standard_files(
    input: BorrowedFd<'_>,
    errors: BorrowedFd<'_>,
) -> io::Result<()> {
    for (file, number) in [(input, libc::STDIN_FILENO), (errors, libc::STDERR_FILENO)] {
        // SAFETY: both are open, and nobody owns the standard files.
        if unsafe { libc::dup2(file.as_raw_fd(), number) } < 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}
