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

use suspend::Wanted;
pub(super) use wait::{Ended, Goal, wait_for};

use crate::connection::Options;
use crate::exit::Exit;
use crate::failure::Failure;

/// What to do with jobs.
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
    /// The first thing that is in its way as the planner meets it, the smallest change that was tried and is enough, its
    /// position, and when it should start. Looks ahead for 5 s at most. All reasons are described in docs/explain.md.
    Explain(explain::Explain),
    /// End jobs
    Cancel(cancel::Cancel),
    /// Let jobs stand still, or give their resources back for a while
    ///
    /// Nothing more of them is placed. What runs stands still where it is and keeps its resources, or saves, stops and
    /// gives them back, as the job says (`lifecycle.suspend`). Leases go on.
    Suspend(suspend::Suspend),
    /// Let suspended jobs go on
    Resume(suspend::Suspend),
    /// Show a task's output
    Logs(logs::Logs),
    /// Follow what a task prints from now on; ^C detaches, and the task goes on
    Attach(attach::Attach),
    /// Run a command beside a running task
    Exec(exec::Exec),
    /// Wait until jobs have ended; the exit code tells how
    Wait(wait::Wait),
    /// What happened to a job, or to everything
    Events(events::Events),
}

impl Verb {
    /// Does it.
    pub(crate) async fn run(self, options: &Options) -> Result<Exit, Failure> {
        match self {
            Self::Submit(submit) => submit.run(options).await,
            Self::List(list) => list.run(options).await,
            Self::Get(get) => get.run(options).await,
            Self::Explain(explain) => explain.run(options).await,
            Self::Cancel(cancel) => cancel.run(options).await,
            Self::Suspend(suspend) => suspend.run(Wanted::Suspended, options).await,
            Self::Resume(suspend) => suspend.run(Wanted::Resumed, options).await,
            Self::Logs(logs) => logs.run(options).await,
            Self::Attach(attach) => attach.run(options).await,
            Self::Exec(exec) => exec.run(options).await,
            Self::Wait(wait) => wait.run(options).await,
            Self::Events(events) => events.run(options).await,
        }
    }
}
