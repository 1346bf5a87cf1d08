//! Supervisor of a task: one small process per task, which outlives the agent and alone holds the task's
//! lease.
//! It uses several threads, because disks may hang and the lease must not depend on them: the main thread
//! watches the lease, the processes and the sockets and touches no disk while the task lives; `output` copies
//! the task's output; `checkpoints` records the task's process and commits and scans the checkpoint
//! directory; `flag` writes the flag file when the task must stop; `exec` starts commands that users run
//! beside the task.

#![deny(unsafe_code)]

mod checkpoint;
pub mod container;
pub mod exec;
pub mod files;
pub mod isolation;
pub mod lease;
pub mod limits;
pub mod link;
pub mod output;
pub mod process;
pub mod supervise;
#[expect(unsafe_code, reason = "what a child must do between fork and exec")]
mod sys;
mod task;
#[doc(hidden)]
pub mod testing;

use std::ffi::OsString;
use std::process::ExitCode;

pub use isolation::account::{Account, acting_as_owner_of};
pub use isolation::cgroup::{CgroupHost, Cgroups, Controller, DeviceNumber};
pub use isolation::mount_table::mount_points;
pub use link::protocol::{
    AgentRequest, ControlAnswer, ControlNotice, ControlRequest, GangNotice, PreemptFlag,
    SupervisorMessage, UnkillableTask,
};
pub use output::shipped::Shipped;
pub use task::directory::{ExitRecord, KEPT, LogOwner, TaskDirectory};
pub use task::run_id::{InvalidRunId, RunId};
pub use task::spec::{
    AssignedCpus, Confinement, EngineAccess, LogLimits, SPEC_FORMAT, SecretFolders,
    SharedMemoryLocation, TaskIdentity, TaskSpec, format_of,
};

/// Runs the hidden `supervise ...` subcommands; returns `None` for other arguments. `supervise --serve
/// <directory of all tasks>` is a [`server`], which forks a supervisor for every request on its standard
/// input; the directory only identifies its cluster in the process list. `supervise container <action> <task
/// directory> [<request>]` is a part of [`container`].
/// Call it before any thread or runtime is started: a task's life is bound to the thread that started it.
/// Errors are written to standard error, which the agent redirects to the task's directory.
#[must_use]
pub fn run(arguments: &[OsString]) -> Option<ExitCode> {
    match arguments {
        [verb, directory] if verb == "supervise" => Some(supervise::reuse::supervise_all(
            TaskDirectory::new(directory),
            None,
        )),
        [verb, part, action, directory, rest @ ..]
            if verb == "supervise" && part == "container" && rest.len() <= 1 =>
        {
            let request = rest.first().map(OsString::as_os_str);
            container::act(action, &TaskDirectory::new(directory), request)
        }
        [verb, serve, _tasks] if verb == "supervise" && serve == "--serve" => {
            Some(supervise::server::serve())
        }
        _ => None,
    }
}
