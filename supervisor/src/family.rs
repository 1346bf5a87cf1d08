//! A task's processes: its main process and whatever that started, however it hid.
//!
//! The supervisor is their subreaper, so a process whose parent died becomes its child. While any process
//! of the task lives, the supervisor has a child; when it has none, nothing of the task lives.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::process::{Child, Command, Stdio};

use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, WaitOptions, WaitStatus, getpid, pidfd_open, wait};

use crate::cgroup::Cgroup;
use crate::directory::TaskDirectory;
use crate::environment;
use crate::limits::KILL_RETRY;
use crate::process::{ProcessEntry, descendants, kill_pid, signal_group};
use crate::spec::TaskSpec;
use crate::sys;

/// The processes of one task.
#[derive(Debug)]
pub(crate) struct Family {
    main: i32,
    /// Readable once the main process has ended.
    main_ended: OwnedFd,
    status: Option<WaitStatus>,
    cgroup: Option<Cgroup>,
}

/// The ends of the task's output that we read.
#[derive(Debug)]
pub(crate) struct Outputs {
    pub(crate) stdout: OwnedFd,
    pub(crate) stderr: OwnedFd,
}

impl Family {
    /// Starts the main process.
    ///
    /// # Errors
    /// Why it could not be started, in words for the user.
    pub(crate) fn start(
        spec: &TaskSpec,
        directory: &TaskDirectory,
    ) -> Result<(Self, Outputs), String> {
        let cgroup = cgroup(spec)?;
        let mut command = command(spec, directory, cgroup.as_ref())?;
        let mut child = command.spawn().map_err(|error| {
            format!("starting `{}` failed: {error}", spec.assignment.command[0])
        })?;
        let outputs = child.stdout.take().zip(child.stderr.take());
        let (stdout, stderr) = outputs.ok_or("the task has no output pipes")?;
        let outputs = Outputs {
            stdout: stdout.into(),
            stderr: stderr.into(),
        };
        let family = Self::of(&child, cgroup).map_err(|error| {
            kill_pid(child.id().cast_signed());
            format!("watching the task failed: {error}")
        })?;
        Ok((family, outputs))
    }

    fn of(child: &Child, cgroup: Option<Cgroup>) -> io::Result<Self> {
        let main = child.id().cast_signed();
        let pid = Pid::from_raw(main).ok_or(Errno::SRCH)?;
        let main_ended = pidfd_open(pid, PidfdFlags::NONBLOCK)?;
        Ok(Self {
            main,
            main_ended,
            status: None,
            cgroup,
        })
    }

    /// The main process's number.
    pub(crate) const fn main(&self) -> i32 {
        self.main
    }

    /// How the main process ended, if it did.
    pub(crate) const fn status(&self) -> Option<WaitStatus> {
        self.status
    }

    /// Whether a memory limit ended any of them.
    pub(crate) fn ran_out_of_memory(&self) -> bool {
        self.cgroup.as_ref().is_some_and(Cgroup::ran_out_of_memory)
    }

    /// Collects those that ended, and tells of all but the main process. True: nothing of the task lives.
    pub(crate) fn reap(&mut self, tell: impl Fn(i32, WaitStatus)) -> bool {
        loop {
            match wait(WaitOptions::NOHANG) {
                Ok(Some((pid, status))) => {
                    let pid = pid.as_raw_nonzero().get();
                    if pid == self.main {
                        self.status = Some(status);
                    } else {
                        tell(pid, status);
                    }
                }
                Ok(None) => return false,
                Err(Errno::INTR) => {}
                // The only other error is that there are no children.
                Err(_) => return true,
            }
        }
    }

    /// Asks the task's process group to end: a shell in front of the program passes nothing on.
    pub(crate) fn terminate(&self) {
        signal_group(self.main, Signal::TERM);
        // A stopped process acts on no other signal.
        signal_group(self.main, Signal::CONT);
    }

    /// Kills every process of the task that can be found now. Repeat it until [`Self::reap`] says that none
    /// is left: a process may fork while we look.
    pub(crate) fn kill(&self) {
        signal_group(self.main, Signal::KILL);
        if let Some(cgroup) = &self.cgroup {
            cgroup.kill();
        }
        kill_descendants();
    }

    /// Lets the cgroup go once nothing lives in it.
    pub(crate) fn close(self) {
        if let Some(cgroup) = self.cgroup {
            cgroup.remove();
        }
    }
}

/// Kills all that this process has started, also when its start failed half-way, and waits until it is dead.
pub(crate) fn end_all() {
    loop {
        match wait(WaitOptions::NOHANG) {
            Ok(Some(_)) | Err(Errno::INTR) => {}
            Ok(None) => {
                kill_descendants();
                std::thread::park_timeout(KILL_RETRY);
            }
            // The only other error is that there are no children.
            Err(_) => return,
        }
    }
}

/// Whoever cannot be seen now is seen in the next round: while any of them lives, there is one.
fn kill_descendants() {
    let me = getpid().as_raw_nonzero().get();
    for pid in descendants(&ProcessEntry::all().unwrap_or_default(), me) {
        kill_pid(pid);
    }
}

impl AsFd for Family {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.main_ended.as_fd()
    }
}

/// The task's cgroup with its limit in force. None if there can be none: it is only a second way to find the task's
/// processes, and no reason not to run.
fn cgroup(spec: &TaskSpec) -> Result<Option<Cgroup>, String> {
    let Some(cgroup) = spec
        .cgroup
        .as_deref()
        .and_then(|path| Cgroup::create(path).ok())
    else {
        return Ok(None);
    };
    let memory_mib = spec.assignment.memory_mib;
    cgroup.limit_memory(memory_mib).map_err(|error| {
        cgroup.remove();
        format!("limiting its memory to {memory_mib} MiB failed: {error}")
    })?;
    Ok(Some(cgroup))
}

fn command(
    spec: &TaskSpec,
    directory: &TaskDirectory,
    cgroup: Option<&Cgroup>,
) -> Result<Command, String> {
    let assignment = &spec.assignment;
    let (program, arguments) = assignment
        .command
        .split_first()
        .ok_or("the command is empty")?;
    let working_directory = match &assignment.working_directory {
        Some(path) => path.into(),
        None => directory.scratch(),
    };
    if !working_directory.is_dir() {
        return Err(format!(
            "the working directory `{}` is not there",
            working_directory.display()
        ));
    }
    let mut command = Command::new(program);
    command
        .args(arguments)
        .env_clear()
        .envs(environment::of_task(spec, directory))
        .current_dir(working_directory)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let door = cgroup.map(Cgroup::door).transpose();
    let door = door.map_err(|error| format!("opening its cgroup failed: {error}"))?;
    sys::in_own_session_dying_with_parent(&mut command, door);
    Ok(command)
}
