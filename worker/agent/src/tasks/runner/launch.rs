//! Start of a supervisor.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use muster_model::desired::TaskAssignment;
use muster_model::ids::UnitId;
use muster_supervisor::process::ProcessIdentity;
use muster_supervisor::{
    AssignedCpus, Confinement, Controller, DeviceNumber, RunId, SecretFolders, TaskDirectory,
    TaskIdentity, TaskSpec, UnkillableTask, format_of,
};
use rustix::fs::statvfs;
use rustix::io::Errno;

use crate::tasks::runner::RunnerConfig;
use crate::tasks::runner::connection::Connection;
use crate::tasks::runner::idle::IdleSupervisors;
use crate::tasks::runner::scratch::ScratchFolders;
use crate::tasks::runner::server::SupervisorServer;

/// A supervisor that runs or is about to.
#[derive(Debug)]
pub(super) struct Launched {
    /// The connection to it.
    pub(super) connection: Connection,
    /// Its process; unknown if it ended already.
    pub(super) supervisor: Option<ProcessIdentity>,
    /// The child to reap, if this process is the parent.
    pub(super) child: Option<std::process::Child>,
    /// Its earlier report of a task that it cannot kill.
    pub(super) stuck: Option<UnkillableTask>,
}

/// Lease of a task, for its new supervisor.
#[derive(Clone, Copy, Debug)]
pub(super) struct LeaseTerms {
    /// End of the lease, in milliseconds of `CLOCK_BOOTTIME`.
    pub(super) deadline_boottime_ms: u64,
    /// Milliseconds before its end at which the task is asked to stop; 0: it is not asked.
    pub(super) warning_ms: u64,
}

/// The specification for a supervisor to run a task, with its CPUs if it is bound.
pub(super) fn spec(
    config: &RunnerConfig,
    assignment: TaskAssignment,
    identity: TaskIdentity,
    lease: LeaseTerms,
    cpus: Option<AssignedCpus>,
) -> TaskSpec {
    let id = RunId::of(&assignment);
    let checkpoint_directory =
        checkpoint_directory(config, UnitId::new(assignment.key.job, assignment.unit));
    let names_secrets = !assignment.execution.secrets.is_empty();
    let engine = config.engine.borrow().clone();
    TaskSpec {
        format: format_of(&assignment, &identity),
        confinement: confinement(config, &assignment, cpus),
        secrets: SecretFolders {
            source: config.secrets.clone().filter(|_| names_secrets),
            target: names_secrets.then(|| config.run.join(id.to_string())),
        },
        assignment,
        deadline_boottime_ms: lease.deadline_boottime_ms,
        log_directory: config.logs.join(id.to_string()),
        log_limits: config.log_limits,
        checkpoint_directory,
        checkpoint_directory_is_new: false,
        checkpoint_scan_ms: config.checkpoint_scan_ms,
        cgroup: None,
        lease_warning_ms: lease.warning_ms,
        engine: engine.map(|engine| engine.access),
        identity,
    }
}

/// Limits for a task: cgroups only for resources that it was given.
fn confinement(
    config: &RunnerConfig,
    assignment: &TaskAssignment,
    cpus: Option<AssignedCpus>,
) -> Confinement {
    // A container has only its own devices anyway, and engines cannot work below a cgroup that hides some.
    let is_process = assignment.execution.container.is_none();
    let devices = config
        .hardware
        .devices
        .iter()
        .filter(|(gpu, _)| is_process && !assignment.gpus.contains(gpu))
        .map(|(_, device)| *device);
    let devices_denied: Vec<DeviceNumber> = devices.collect();
    let wanted: Vec<Controller> = [
        (Controller::Memory, assignment.memory_mib > 0),
        (Controller::Cpu, assignment.cpus_milli > 0),
        (Controller::Pids, assignment.execution.pids_max.is_some()),
        (Controller::Cpuset, cpus.is_some()),
        (Controller::Devices, !devices_denied.is_empty()),
    ]
    .into_iter()
    .filter(|(_, is_wanted)| *is_wanted)
    .map(|(controller, _)| controller)
    .collect();
    let name = RunId::of(assignment).to_string();
    let host = config.cgroups.as_ref();
    Confinement {
        cgroups: host
            .map(|host| host.paths(&name, &wanted))
            .unwrap_or_default(),
        cpu_quota: config.cpu_quota,
        devices_denied,
        cpus,
        shared_memory: config
            .shared_memory
            .as_ref()
            .and_then(|host| host.place(assignment)),
    }
}

/// Writes the task's directory and assigns it to an idle supervisor, or starts one, which is connected from
/// the start through its standard input.
pub(super) fn launch(
    config: &RunnerConfig,
    server: &SupervisorServer,
    scratch: &ScratchFolders,
    idle: &IdleSupervisors,
    spec: &TaskSpec,
) -> io::Result<Launched> {
    let id = RunId::of(&spec.assignment);
    let directory = TaskDirectory::below(&config.tasks, id);
    // Its directory may need no space on the disk, but its output does.
    if statvfs(&config.logs)?.f_bavail == 0 {
        return Err(Errno::NOSPC.into());
    }
    make(&directory, scratch, spec).or_else(|error| match error.kind() {
        io::ErrorKind::StorageFull => make_on_disk(&directory, scratch, spec),
        _ => Err(error),
    })?;
    if let Some((connection, supervisor)) = idle.give(&directory) {
        return Ok(Launched {
            connection: Connection::Open(Box::new(connection)),
            supervisor: Some(supervisor),
            child: None,
            stuck: None,
        });
    }
    let (ours, theirs) = UnixStream::pair()?;
    match server.fork(directory.path(), theirs.as_fd()) {
        Ok(pid) => {
            return Ok(Launched {
                connection: Connection::New(ours),
                supervisor: ProcessIdentity::of(pid),
                child: None,
                stuck: None,
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
        connection: Connection::New(ours),
        supervisor: ProcessIdentity::of(child.id().cast_signed()),
        child: Some(child),
        stuck: None,
    })
}

fn make(directory: &TaskDirectory, scratch: &ScratchFolders, spec: &TaskSpec) -> io::Result<()> {
    std::fs::create_dir_all(directory.path())?;
    scratch.give(directory, spec.identity.account.as_ref())?;
    directory.create(spec)
}

/// Fallback for task directories in memory when tasks have filled it: a link takes no space.
fn make_on_disk(
    directory: &TaskDirectory,
    scratch: &ScratchFolders,
    spec: &TaskSpec,
) -> io::Result<()> {
    let folder = scratch.of(directory);
    directory.remove()?;
    folder.map_or(Ok(()), |folder| scratch.take_back(&folder))?;
    std::fs::create_dir_all(directory.kept())?;
    std::os::unix::fs::symlink(directory.kept(), directory.path())?;
    make(directory, scratch, spec)
}

/// Path of a unit's checkpoints: below its job, one directory per unit, because the tasks of an array must
/// not share one.
pub(super) fn checkpoint_directory(config: &RunnerConfig, unit: UnitId) -> PathBuf {
    let of_job = config.checkpoints.join(unit.job.to_string());
    of_job.join(unit.unit.to_string())
}
