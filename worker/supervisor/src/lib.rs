//! Supervisor of a task: one small process per task, which outlives the agent and alone holds the task's
//! lease.
//! It uses several threads, because disks may hang and the lease must not depend on them: the main thread
//! watches the lease, the processes and the sockets and touches no disk while the task lives; `output` copies
//! the task's output; `checkpoints` records the task's process and commits and scans the checkpoint
//! directory; `flag` writes the flag file when the task must stop; `exec` starts commands that users run
//! beside the task.

#![deny(unsafe_code)]

mod account;
mod alarm;
pub mod arrivals;
#[expect(unsafe_code, reason = "the standard library lacks this system call")]
mod bpf;
mod cgroup;
mod checkpoint_folder;
mod checkpoints;
mod child;
pub mod clock;
mod connections;
pub mod container;
mod control;
mod directory;
mod environment;
mod evidence;
pub mod exec;
mod family;
pub mod files;
mod flag;
mod guard;
mod hold;
mod hostfile;
mod kernel_limits;
mod lease;
pub mod limits;
mod lines;
mod marker;
mod mount_table;
mod output;
mod port;
pub mod process;
mod program;
mod protocol;
mod ready;
mod rounds;
mod run_id;
mod said;
mod secret_folder;
mod secrets;
pub mod segments;
pub mod server;
pub mod shared_memory;
mod shipped;
mod spec;
mod start;
mod stopping;
mod succession;
mod supervise;
#[expect(unsafe_code, reason = "what a child must do between fork and exec")]
mod sys;
mod tail;
pub mod task_side;
#[doc(hidden)]
pub mod testing;
mod wake;

use std::ffi::OsString;
use std::process::ExitCode;

pub use account::{Account, acting_as_owner_of};
pub use cgroup::{CgroupHost, Cgroups, Controller, DeviceNumber};
pub use directory::{ExitRecord, KEPT, LogOwner, TaskDirectory};
pub use mount_table::mount_points;
pub use protocol::{
    AgentRequest, ControlAnswer, ControlNotice, ControlRequest, GangNotice, PreemptFlag, Stuck,
    SupervisorMessage,
};
pub use run_id::{InvalidRunId, RunId};
pub use shipped::Shipped;
pub use spec::{
    Confinement, CpuPlace, EngineAccess, LogLimits, SPEC_FORMAT, SecretFolders, SharedMemoryPlace,
    TaskIdentity, TaskSpec, format_of,
};

/// Runs the hidden `supervise ...` subcommands; returns `None` for other arguments. `supervise --serve
/// <directory of all tasks>` is a [`server`], which forks a supervisor for every request on its standard
/// input; the directory only identifies its cluster in the process list. `supervise container <action> <task
/// directory> [<request>]` is a part of [`container`].
/// Call it before any thread or runtime is started: a task's life is bound to the thread that started it.
/// Errors are written to standard error, which the agent redirects to the task's directory.
#[must_use]
pub fn run(words: &[OsString]) -> Option<ExitCode> {
    match words {
        [verb, directory] if verb == "supervise" => Some(succession::supervise_all(
            TaskDirectory::new(directory),
            None,
        )),
        [verb, word, action, directory, rest @ ..]
            if verb == "supervise" && word == "container" && rest.len() <= 1 =>
        {
            let request = rest.first().map(OsString::as_os_str);
            container::act(action, &TaskDirectory::new(directory), request)
        }
        [verb, serve, _tasks] if verb == "supervise" && serve == "--serve" => Some(server::serve()),
        _ => None,
    }
}
