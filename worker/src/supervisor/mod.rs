//! One small process per task, which outlives the agent and alone holds the task's lease.
//!
//! Several threads, because disks may hang and one thing must not: the main thread watches the lease, the
//! processes and the sockets and touches no disk while the task lives; `output` copies what the task
//! prints; `checkpoints` records the task's process and commits and looks at the checkpoint directory;
//! `flag` writes the flag file when the task must stop.

mod cgroup;
mod checkpoints;
mod connections;
mod directory;
mod environment;
mod family;
mod flag;
mod lease;
mod lines;
mod output;
mod protocol;
mod spec;
mod supervise;
mod wake;

use std::path::Path;
use std::process::ExitCode;

pub(crate) use cgroup::Cgroup;
pub use cgroup::find_cgroup_root;
pub use directory::{ExitRecord, TaskDirectory};
pub use protocol::{AgentRequest, ControlAnswer, ControlRequest, PreemptFlag, SupervisorMessage};
pub use spec::{LogLimits, SPEC_FORMAT, TaskSpec};

/// The hidden subcommand `supervise <task directory>`: runs one task to its end.
///
/// Call it before any thread or runtime is started: a task's life is bound to the thread that started it.
/// What goes wrong is said on standard error, which the agent points to the task's directory.
#[must_use]
pub fn main(directory: &Path) -> ExitCode {
    match supervise::supervise(&TaskDirectory::new(directory)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            output::complain(&format!(
                "supervising {} failed: {error}",
                directory.display()
            ));
            ExitCode::FAILURE
        }
    }
}
