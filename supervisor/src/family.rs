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
use crate::container;
use crate::directory::TaskDirectory;
use crate::environment;
use crate::limits::KILL_RETRY;
use crate::process::{ProcessEntry, descendants, kill_pid, signal_group};
use crate::spec::TaskSpec;
use crate::sys;

/// The cgroup of a container's runner, within the task's.
const RUNNER_CGROUP: &str = "runner";

/// The processes of one task.
#[derive(Debug)]
pub(crate) struct Family {
    main: i32,
    /// Readable once the main process has ended.
    main_ended: OwnedFd,
    status: Option<WaitStatus>,
    cgroup: Option<Cgroup>,
    /// What sees to the end of the task's container, if it runs in one.
    removal: Option<Removal>,
}

/// The process that removes what is left of a container whose runner did not.
#[derive(Debug)]
struct Removal {
    directory: PathBuf,
    running: Option<i32>,
    is_done: bool,
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
            let program = command.get_program().display();
            format!("starting `{program}` failed: {error}")
        })?;
        let outputs = child.stdout.take().zip(child.stderr.take());
        let (stdout, stderr) = outputs.ok_or("the task has no output pipes")?;
        let outputs = Outputs {
            stdout: stdout.into(),
            stderr: stderr.into(),
        };
        let mut family = Self::of(&child, cgroup).map_err(|error| {
            kill_pid(child.id().cast_signed());
            format!("watching the task failed: {error}")
        })?;
        let container = spec.assignment.execution.container.as_ref();
        family.removal = container.map(|_| Removal {
            directory: directory.path().to_owned(),
            running: None,
            is_done: false,
        });
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
            removal: None,
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
                    let pid = pid.as_raw_nonzero().get();
                    if pid == self.main {
                        self.status = Some(status);
                    }
                    if let Some(removal) = &mut self.removal {
                        removal.note(pid, status);
                    }
                }
                Ok(None) => return false,
                Err(Errno::INTR) => {}
                // The only other error is that there are no children.
                Err(_) => {
                    let removal = self.removal.as_mut();
                    return removal.is_none_or(|removal| removal.is_over(self.status));
                }
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
        kill_descendants(self.removal.as_ref().and_then(|removal| removal.running));
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
                kill_descendants(None);
                std::thread::park_timeout(KILL_RETRY);
            }
            // The only other error is that there are no children.
            Err(_) => return,
        }
    }
}

/// Whoever cannot be seen now is seen in the next round: while any of them lives, there is one.
fn kill_descendants(but: Option<i32>) {
    let me = getpid().as_raw_nonzero().get();
    for pid in descendants(&ProcessEntry::all().unwrap_or_default(), me) {
        if Some(pid) != but {
            kill_pid(pid);
        }
    }
}

impl Removal {
    /// Takes note of a process that ended.
    fn note(&mut self, pid: i32, status: WaitStatus) {
        if self.running == Some(pid) {
            self.running = None;
            self.is_done = status.exit_status() == Some(0);
        }
    }

    /// Whether nothing of the container is left: its runner saw to that before it ended by itself. Otherwise the removal
    /// is begun; one that cannot be is begun again by the next look.
    fn is_over(&mut self, runner: Option<WaitStatus>) -> bool {
        let ended_by_itself = runner.is_some_and(|status| status.exit_status().is_some());
        if self.is_done || ended_by_itself {
            return true;
        }
        let mut command = container::removal(&self.directory);
        sys::in_own_session_dying_with_parent(&mut command, None);
        self.running = command.spawn().ok().map(|child| child.id().cast_signed());
        false
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
    let mut command = match &spec.assignment.execution.container {
        Some(_) => container::runner(directory, &environment::of_task(spec, directory)),
        None => process(spec, directory)?,
    };
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    // On version 2, a cgroup that holds others holds no processes itself.
    let inner = match &spec.assignment.execution.container {
        Some(_) => cgroup
            .map(|cgroup| cgroup.within(RUNNER_CGROUP))
            .transpose(),
        None => Ok(cgroup.cloned()),
    };
    let inner = inner.map_err(|error| format!("making its cgroup failed: {error}"))?;
    let door = inner.as_ref().map(Cgroup::door).transpose();
    let door = door.map_err(|error| format!("opening its cgroup failed: {error}"))?;
    sys::in_own_session_dying_with_parent(&mut command, door);
    Ok(command)
}

/// The command of a task that is a process of the host.
fn process(spec: &TaskSpec, directory: &TaskDirectory) -> Result<Command, String> {
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
        .current_dir(working_directory);
    Ok(command)
}
