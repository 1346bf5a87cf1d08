//! A task's processes: its main process and whatever that started, however it hid.
//!
//! The supervisor is their subreaper, so a process whose parent died becomes its child. While any process
//! of the task lives, the supervisor has a child; when it has none, nothing of the task lives.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, WaitOptions, WaitStatus, getpid, pidfd_open, wait};

use crate::cgroup::Cgroup;
use crate::directory::TaskDirectory;
use crate::environment;
use crate::hostfile;
use crate::limits::KILL_RETRY;
use crate::process::{ProcessEntry, descendants, kill_pid, signal_group, signal_pid};
use crate::spec::TaskSpec;
use crate::sys;

/// Looks for processes that do not stand still yet, at a time: one that forks without end is caught by the next ones.
const SUSPEND_ROUNDS_MAX: usize = 8;

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

/// What a task needs beside its process.
#[derive(Debug)]
pub(crate) struct Ready {
    cgroup: Option<Cgroup>,
}

impl Ready {
    /// Removes it again: the task will not begin.
    pub(crate) fn remove(&self) {
        if let Some(cgroup) = &self.cgroup {
            cgroup.remove();
        }
    }

    /// Starts the main process.
    ///
    /// # Errors
    /// Why it could not be started, in words for the user.
    pub(crate) fn start(
        self,
        spec: &TaskSpec,
        directory: &TaskDirectory,
    ) -> Result<(Family, Outputs), String> {
        Family::start(self.cgroup, spec, directory)
    }
}

impl Family {
    /// Makes what the task needs, and finds what can be found wrong before its process is started.
    ///
    /// # Errors
    /// What is wrong, in words for the user.
    pub(crate) fn prepare(spec: &TaskSpec, directory: &TaskDirectory) -> Result<Ready, String> {
        working_directory(spec, directory)?;
        hostfile::write(&spec.assignment.gang_hosts, directory)?;
        let cgroup = cgroup(spec)?;
        Ok(Ready { cgroup })
    }

    fn start(
        cgroup: Option<Cgroup>,
        spec: &TaskSpec,
        directory: &TaskDirectory,
    ) -> Result<(Self, Outputs), String> {
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

    /// Collects those that ended. True: nothing of the task lives.
    pub(crate) fn reap(&mut self) -> bool {
        loop {
            match wait(WaitOptions::NOHANG) {
                Ok(Some((pid, status))) => {
                    if pid.as_raw_nonzero().get() == self.main {
                        self.status = Some(status);
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

    /// Stops every process of the task where it is, those that appear meanwhile too. Repeat it while the task is to
    /// stand still: somebody else may let one go on.
    pub(crate) fn suspend(&self) {
        for _ in 0..SUSPEND_ROUNDS_MAX {
            if !signal_descendants(Signal::STOP, |entry| !entry.is_stopped()) {
                return;
            }
        }
    }

    /// Lets every process of the task go on.
    pub(crate) fn resume(&self) {
        signal_descendants(Signal::CONT, |_| true);
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

/// Signals those descendants that are meant; true if there were any.
fn signal_descendants(signal: Signal, is_meant: impl Fn(&ProcessEntry) -> bool) -> bool {
    let me = getpid().as_raw_nonzero().get();
    // What cannot be listed now is tried again with the next look at the task.
    let entries = ProcessEntry::all().unwrap_or_default();
    let family = descendants(&entries, me);
    let meant = entries
        .iter()
        .filter(|entry| family.contains(&entry.pid) && is_meant(entry));
    let mut any = false;
    for entry in meant {
        any = true;
        signal_pid(entry.pid, signal);
    }
    any
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

/// Where the task begins.
fn working_directory(spec: &TaskSpec, directory: &TaskDirectory) -> Result<PathBuf, String> {
    let path = match &spec.assignment.working_directory {
        Some(path) => path.into(),
        None => directory.scratch(),
    };
    if path.is_dir() {
        return Ok(path);
    }
    Err(format!(
        "the working directory `{}` is not there",
        path.display()
    ))
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
    let working_directory = working_directory(spec, directory)?;
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
