//! Starts one supervisor.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};

use muster_core::desired::TaskAssignment;

use super::RunnerConfig;
use super::server::SupervisorServer;
use muster_supervisor::RunId;
use muster_supervisor::process::ProcessIdentity;
use muster_supervisor::{TaskDirectory, TaskSpec, format_of};

/// A supervisor that runs, or is about to.
#[derive(Debug)]
pub(super) struct Launched {
    /// The connection to it.
    pub(super) stream: UnixStream,
    /// Its process; unknown if it ended already.
    pub(super) supervisor: Option<ProcessIdentity>,
    /// To be waited for, if we are its parent.
    pub(super) child: Option<std::process::Child>,
}

/// Writes the task's directory and starts its supervisor, which is connected from the start through its
/// standard input.
pub(super) fn launch(
    config: &RunnerConfig,
    server: &SupervisorServer,
    assignment: TaskAssignment,
    deadline_boottime_ms: u64,
) -> io::Result<Launched> {
    let id = RunId::of(&assignment);
    let directory = TaskDirectory::below(&config.tasks, id);
    // Below its job, one directory per unit: the tasks of an array must not share one.
    let checkpoint_directory = config
        .checkpoints
        .join(assignment.key.job.to_string())
        .join(assignment.unit.to_string());
    let spec = TaskSpec {
        format: format_of(&assignment),
        assignment,
        deadline_boottime_ms,
        log_directory: config.logs.join(id.to_string()),
        log_limits: config.log_limits,
        checkpoint_directory,
        checkpoint_scan_ms: config.checkpoint_scan_ms,
        cgroup: config
            .cgroup_root
            .as_ref()
            .map(|root| root.join(id.to_string())),
        engine: { config.engine.borrow().as_ref() }.map(|engine| engine.access.clone()),
    };
    directory.create(&spec)?;
    let (ours, theirs) = UnixStream::pair()?;
    match server.fork(directory.path(), theirs.as_fd()) {
        Ok(pid) => {
            return Ok(Launched {
                stream: ours,
                supervisor: ProcessIdentity::of(pid),
                child: None,
            });
        }
        Err(error) => {
            tracing::warn!(%id, %error, "forking a supervisor failed: starting one as a program");
        }
    }
    let child = Command::new(&config.supervisor)
        .arg("supervise")
        .arg(directory.path())
        .stdin(Stdio::from(OwnedFd::from(theirs)))
        .stdout(Stdio::null())
        .stderr(Stdio::from(File::create(directory.supervisor_errors())?))
        .current_dir("/")
        .spawn()?;
    Ok(Launched {
        stream: ours,
        supervisor: ProcessIdentity::of(child.id().cast_signed()),
        child: Some(child),
    })
}
