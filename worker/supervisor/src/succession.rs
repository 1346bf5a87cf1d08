//! One task after the other: a supervisor whose task needed nothing but itself is as good as a new one.
//!
//! To fork a supervisor, and to take it down with all that it has touched, costs more than what it does for a task that ends at
//! once. Its agent holds the connection to one that is idle and gives it the directory of the next task there: no other
//! process is asked, and none is started. A claim still lets one supervisor alone have a task.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::ExitCode;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::process::{getpid, set_child_subreaper, setsid};

use crate::cgroup::KeptCgroups;
use crate::directory::TaskDirectory;
use crate::guard::Pulse;
use crate::limits::TASKS_PER_SUPERVISOR_MAX;
use crate::lines::LineStream;
use crate::output::complain;
use crate::process::ProcessIdentity;
use crate::protocol::AgentRequest;
use crate::supervise::{SuperviseError, during, supervise};
use crate::sys;

/// What a supervisor has whichever task it supervises.
pub(crate) struct Tenure {
    /// This process.
    pub(crate) me: ProcessIdentity,
    /// By which a guard, if there is one, sees that this process is not frozen.
    pub(crate) pulse: Option<Pulse>,
    /// The agent that gives it the next task; none: there will be none.
    pub(crate) agent: Option<LineStream>,
    /// Whether it may have another task after this one.
    pub(crate) may_go_on: bool,
    /// The cgroups of the last task.
    pub(crate) cgroups: Option<KeptCgroups>,
}

impl Tenure {
    /// Makes this process a supervisor.
    fn begin(pulse: Option<Pulse>) -> Result<Self, SuperviseError> {
        sys::close_inherited_files().map_err(during("closing inherited files"))?;
        // Fails if we lead a process group already (a shell started us), which serves as well.
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

/// Supervises a task, and those that its agent gives to this process afterwards.
pub(crate) fn supervise_all(first: TaskDirectory, pulse: Option<Pulse>) -> ExitCode {
    let mut tenure = match Tenure::begin(pulse) {
        Ok(tenure) => tenure,
        Err(error) => return failed(&first, &error),
    };
    let mut directory = first;
    for count in 1.. {
        tenure.may_go_on = count < TASKS_PER_SUPERVISOR_MAX && pulse.is_some();
        if let Err(error) = supervise(&directory, &mut tenure) {
            return failed(&directory, &error);
        }
        let Some(next) = tenure.agent.as_mut().and_then(next) else {
            break;
        };
        if let Err(error) = complain_in(&next) {
            return failed(&next, &error);
        }
        directory = next;
    }
    ExitCode::SUCCESS
}

fn failed(directory: &TaskDirectory, error: &dyn std::error::Error) -> ExitCode {
    let path = directory.path().display();
    complain(&format!("supervising {path} failed: {error}"));
    ExitCode::FAILURE
}

/// The agent's end of the socket pair that it gave us as standard input; none if a person started us.
fn inherited_agent() -> Option<LineStream> {
    let socket: OwnedFd = io::stdin().as_fd().try_clone_to_owned().ok()?;
    rustix::net::getsockname(&socket).ok()?;
    LineStream::of_agent(UnixStream::from(socket)).ok()
}

/// Waits for the directory of the next task; none if the agent hangs up.
fn next(agent: &mut LineStream) -> Option<TaskDirectory> {
    loop {
        while let Some(line) = agent.next_line() {
            // What else comes was meant for the last task.
            if let Ok(AgentRequest::Next { directory }) = serde_json::from_slice(&line) {
                return Some(TaskDirectory::new(directory));
            }
        }
        match poll(&mut [PollFd::new(&*agent, PollFlags::IN)], None) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(_) => return None,
        }
        // A line that came with the end of the connection is nobody's wish any more.
        if !agent.fill() {
            return None;
        }
    }
}

/// From here on, what goes wrong is said in the directory of this task.
fn complain_in(directory: &TaskDirectory) -> io::Result<()> {
    let errors = File::create(directory.supervisor_errors())?;
    sys::become_standard_files(None, errors.as_fd())
}
