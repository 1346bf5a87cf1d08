//! `muster job`.

mod attach;
mod cancel;
mod events;
mod exec;
mod explain;
mod get;
mod list;
mod logs;
pub(crate) mod submit;
mod suspend;
mod wait;

use clap::Subcommand;

use suspend::RequestedState;
pub(super) use wait::{Ended, Goal, wait_for};

use crate::connection::Options;
use crate::exit::Exit;
use crate::failure::Failure;

/// Commands of `muster job`.
#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Submit jobs, from flags or from files
    Submit(Box<submit::Submit>),
    /// Show jobs, newest first
    List(list::List),
    /// Show everything about a job
    Get(get::Get),
    /// Why a job waits, and what would let it run
    ///
    /// The planner's first blocker, the smallest tested change that is sufficient, its position, and its
    /// expected start. Looks ahead for 5 s at most. All reasons are described in docs/explain.md.
    Explain(explain::Explain),
    /// Cancel jobs
    Cancel(cancel::Cancel),
    /// Suspend jobs: pause them, or release their resources
    ///
    /// Nothing more of them is placed. Running tasks are paused in place and keep their resources, or save,
    /// stop and release them, as the job specifies (`lifecycle.suspend`). Leases are kept.
    Suspend(suspend::Suspend),
    /// Resume suspended jobs
    Resume(suspend::Suspend),
    /// Show a task's output
    Logs(logs::Logs),
    /// Follow a task's output from now on; ^C detaches, and the task continues
    Attach(attach::Attach),
    /// Run a command beside a running task
    Exec(exec::Exec),
    /// Wait until jobs have ended; the exit code shows how
    Wait(wait::Wait),
    /// Events of a job, or of the whole cluster
    Events(events::Events),
}

impl Verb {
    /// Runs the command.
    pub(crate) async fn run(self, options: &Options) -> Result<Exit, Failure> {
        match self {
            Self::Submit(submit) => submit.run(options).await,
            Self::List(list) => list.run(options).await,
            Self::Get(get) => get.run(options).await,
            Self::Explain(explain) => explain.run(options).await,
            Self::Cancel(cancel) => cancel.run(options).await,
            Self::Suspend(suspend) => suspend.run(RequestedState::Suspended, options).await,
            Self::Resume(suspend) => suspend.run(RequestedState::Resumed, options).await,
            Self::Logs(logs) => logs.run(options).await,
            Self::Attach(attach) => attach.run(options).await,
            Self::Exec(exec) => exec.run(options).await,
            Self::Wait(wait) => wait.run(options).await,
            Self::Events(events) => events.run(options).await,
        }
    }
}
