//! Reuse of a supervisor for one task after another: after a plain task it is as good as a new one.
//! Forking a supervisor, and tearing it down with all memory that it has touched, costs more than its work
//! for a task that ends at once. Its agent keeps the connection to an idle supervisor and sends it the
//! directory of the next task: no other process is involved, and none is started. The claim still ensures
//! that only one supervisor has a task.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::ExitCode;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::process::{getpid, set_child_subreaper, setsid};

use crate::isolation::cgroup::ReusableCgroups;
use crate::lease::guard::GuardedState;
use crate::limits::TASKS_PER_SUPERVISOR_MAX;
use crate::link::lines::LineStream;
use crate::link::protocol::AgentRequest;
use crate::output::log_error;
use crate::process::ProcessIdentity;
use crate::supervise::{SuperviseError, during, supervise};
use crate::sys;
use crate::task::directory::TaskDirectory;

/// State of a supervisor that is independent of its tasks.
pub(crate) struct SupervisorContext {
    /// This process.
    pub(crate) me: ProcessIdentity,
    /// Shows a guard, if there is one, that this process is not frozen.
    pub(crate) pulse: Option<GuardedState>,
    /// The agent that assigns the next task; `None` if there will be none.
    pub(crate) agent: Option<LineStream>,
    /// Whether another task may follow this one.
    pub(crate) may_go_on: bool,
    /// Cgroups kept from the last task.
    pub(crate) cgroups: Option<ReusableCgroups>,
}

impl SupervisorContext {
    /// Makes this process a supervisor.
    fn begin(pulse: Option<GuardedState>) -> Result<Self, SuperviseError> {
        sys::close_inherited_files().map_err(during("closing inherited files"))?;
        // Fails if this process leads a process group already (started by a shell), which serves as well.
        let _ = setsid();
        set_child_subreaper(Some(getpid())).map_err(during("becoming the task's subreaper"))?;
        Ok(Self {
            me: own_identity().map_err(during("reading /proc/self/stat"))?,
            pulse,
            agent: inherited_agent(),
            may_go_on: false,
            cgroups: None,
        })
    }
}

fn own_identity() -> io::Result<ProcessIdentity> {
    ProcessIdentity::of(getpid().as_raw_nonzero().get())
        .ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))
}

/// Supervises a task, and further tasks that its agent assigns to this process.
pub(crate) fn supervise_all(first: TaskDirectory, pulse: Option<GuardedState>) -> ExitCode {
    let mut context = match SupervisorContext::begin(pulse) {
        Ok(context) => context,
        Err(error) => return failed(&first, &error),
    };
    let mut directory = first;
    for count in 1.. {
        context.may_go_on = count < TASKS_PER_SUPERVISOR_MAX && pulse.is_some();
        if let Err(error) = supervise(&directory, &mut context) {
            return failed(&directory, &error);
        }
        let Some(next) = context.agent.as_mut().and_then(next) else {
            break;
        };
        if let Err(error) = redirect_errors_to(&next) {
            return failed(&next, &error);
        }
        directory = next;
    }
    ExitCode::SUCCESS
}

fn failed(directory: &TaskDirectory, error: &dyn std::error::Error) -> ExitCode {
    let path = directory.path().display();
    log_error(&format!("supervising {path} failed: {error}"));
    ExitCode::FAILURE
}

/// Connection to the agent, the socket pair passed as standard input; `None` if an operator started this process.
fn inherited_agent() -> Option<LineStream> {
    let socket: OwnedFd = io::stdin().as_fd().try_clone_to_owned().ok()?;
    rustix::net::getsockname(&socket).ok()?;
    LineStream::of_agent(UnixStream::from(socket)).ok()
}

/// Waits for the directory of the next task; `None` if the agent hangs up.
fn next(agent: &mut LineStream) -> Option<TaskDirectory> {
    loop {
        while let Some(line) = agent.next_line() {
            // Other messages were meant for the last task.
            if let Ok(AgentRequest::Next { directory }) = serde_json::from_slice(&line) {
                return Some(TaskDirectory::new(directory));
            }
        }
        match poll(&mut [PollFd::new(&*agent, PollFlags::IN)], None) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(_) => return None,
        }
        // A line received together with the hang-up is obsolete.
        if !agent.fill() {
            return None;
        }
    }
}

/// Redirects error messages to the directory of this task.
fn redirect_errors_to(directory: &TaskDirectory) -> io::Result<()> {
    let errors = File::create(directory.supervisor_errors())?;
    sys::become_standard_files(None, errors.as_fd())
}
