//! Preparation of a task: everything that it needs is set up, or the failure found, before any process of it
//! runs.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{fs, io};

use muster_model::command::MISSING_FILE;
use rustix::process::getpid;

use crate::container::{self, Removal};
use crate::isolation::cgroup::{Cgroups, Limits, ReusableCgroups};
use crate::isolation::shared_memory::SharedMemory;
use crate::process::process_tree::{Outputs, ProcessTree};
use crate::sys;
use crate::task::child::ChildSetup;
use crate::task::directory::TaskDirectory;
use crate::task::secrets::Secrets;
use crate::task::spec::TaskSpec;
use crate::task::start::{self, Started};
use crate::task::{environment, hostfile, program};

/// Resources of a task besides its process.
#[derive(Debug)]
pub(crate) struct Ready {
    belongings: TaskResources,
    setup: ChildSetup,
    program: Program,
    /// Rendezvous port in the program's environment: a release may name another one.
    master_port: u16,
}

/// Program to start.
#[derive(Debug)]
struct Program {
    command: Command,
    /// Resolved path; `None` if the command is this program, which runs a container.
    path: Option<PathBuf>,
}

/// Resources that are created for a task and removed again.
#[derive(Debug)]
pub(crate) struct TaskResources {
    pub(crate) cgroups: Cgroups,
    /// Limits of the cgroups.
    pub(crate) limits: Limits,
    pub(crate) secrets: Secrets,
    /// Shared memory of its attempt; `None` if it uses the host's.
    shared_memory: Option<SharedMemory>,
}

impl TaskResources {
    fn remove(self) {
        self.cgroups.remove();
        self.secrets.remove();
        leave(self.shared_memory);
    }

    /// Creates what is still missing, and resolves the program.
    fn complete(
        &mut self,
        spec: &TaskSpec,
        directory: &TaskDirectory,
    ) -> Result<(Program, ChildSetup), String> {
        self.shared_memory = shared_memory(spec)?;
        let program = find_program(spec, directory, &self.secrets)?;
        let setup = ChildSetup::of(spec, &self.cgroups, getpid())?;
        Ok((program, setup))
    }

    /// Releases the resources once no process of the task is alive; keeps reusable cgroups if there may be a
    /// next task.
    pub(crate) fn close(self, may_keep: bool) -> Option<ReusableCgroups> {
        self.secrets.remove();
        leave(self.shared_memory);
        self.cgroups.close(self.limits, may_keep)
    }

    /// Starts the main process in the attempt's shared memory.
    fn spawn(&self, program: Program, setup: ChildSetup) -> Result<Started, String> {
        match &self.shared_memory {
            Some(memory) => memory.start(
                |entry| spawn(program, setup.entering(entry)),
                |started| started.pid,
            ),
            None => spawn(program, setup),
        }
    }
}

/// Stops using the attempt's shared memory.
fn leave(memory: Option<SharedMemory>) {
    // The agent tries again when it removes the task, and reports a failure.
    drop(memory.map(SharedMemory::close));
}

impl Ready {
    /// Sets up the task's resources, and detects errors before its process is started.
    /// Cgroups of this process's last task are reused where that makes no difference.
    ///
    /// # Errors
    /// What is wrong, as a message for the user.
    pub(crate) fn prepare(
        spec: &TaskSpec,
        directory: &TaskDirectory,
        kept: Option<ReusableCgroups>,
    ) -> Result<Self, String> {
        if let Some(refusal) = &spec.identity.refusal {
            return Err(refusal.clone());
        }
        hostfile::write(&spec.assignment.gang_hosts, directory)?;
        let limits = Limits::of(spec);
        let cgroups = match kept.and_then(|kept| kept.reuse(&spec.cgroups(), &limits)) {
            Some(cgroups) => cgroups,
            None => Cgroups::create(&spec.cgroups(), &limits)?,
        };
        let secrets = Secrets::prepare(spec).inspect_err(|_| cgroups.remove())?;
        let mut belongings = TaskResources {
            cgroups,
            limits,
            secrets,
            shared_memory: None,
        };
        let (program, setup) = match belongings.complete(spec, directory) {
            Ok(prepared) => prepared,
            Err(error) => {
                belongings.remove();
                return Err(error);
            }
        };
        Ok(Self {
            belongings,
            setup,
            program,
            master_port: spec.assignment.rank.master_port,
        })
    }

    /// Removes the resources: the task will not begin.
    pub(crate) fn remove(self) {
        self.belongings.remove();
    }

    /// Starts the main process.
    ///
    /// # Errors
    /// Why it could not be started, as a message for the user; its resources are removed then.
    pub(crate) fn start(
        self,
        spec: &TaskSpec,
        directory: &TaskDirectory,
    ) -> Result<(ProcessTree, Outputs), String> {
        let Self {
            belongings, setup, ..
        } = self;
        let program = match spec.assignment.rank.master_port == self.master_port {
            true => Ok(self.program),
            false => find_program(spec, directory, &belongings.secrets),
        };
        let started = match program.and_then(|program| belongings.spawn(program, setup)) {
            Ok(started) => started,
            Err(error) => {
                belongings.remove();
                return Err(error);
            }
        };
        let container = spec.assignment.execution.container.as_ref();
        let removal = container.map(|_| Removal::of(directory));
        Ok(ProcessTree::of(started, belongings, removal))
    }
}

/// Starts the main process, and opens the descriptor that signals its end.
fn spawn(program: Program, setup: ChildSetup) -> Result<Started, String> {
    let Program { mut command, path } = program;
    let Some(path) = path else {
        sys::set_up_in_child(&mut command, setup);
        let started = start::command(&mut command);
        return started.map_err(|error| start_failed(&command, &error));
    };
    start::program(&command, &path, &setup).map_err(|error| {
        let message = start_failed(&command, &error);
        // The file was found a moment ago: the interpreter in its first line is missing.
        let is_jobs = error.kind() == io::ErrorKind::NotFound;
        if is_jobs {
            not_there(&message)
        } else {
            message
        }
    })
}

fn start_failed(command: &Command, error: &io::Error) -> String {
    let program = command.get_program().display();
    format!("starting `{program}` failed: {error}")
}

/// Formats an error about something that the job names and that does not exist, so that the host is not taken
/// for faulty.
pub(crate) fn not_there(message: &str) -> String {
    format!("{MISSING_FILE}: {message}")
}

/// Resolves the program. A program of the host must be executable; a container's is resolved in its image.
fn find_program(
    spec: &TaskSpec,
    directory: &TaskDirectory,
    secrets: &Secrets,
) -> Result<Program, String> {
    if let Some(container) = &spec.assignment.execution.container {
        container::may_run(container, &spec.identity)?;
        let environment = environment::of_task(spec, directory, secrets);
        return Ok(Program {
            command: container::runner(directory, &environment),
            path: None,
        });
    }
    let command = process(spec, directory, secrets)?;
    let name = command.get_program();
    let path = command
        .get_envs()
        .find_map(|(name, value)| value.filter(|_| name == "PATH"));
    let place = command.get_current_dir().unwrap_or(Path::new("/"));
    // A program that the account may not execute does not exist for the task.
    let find = || program::find(name, path, place);
    match spec.identity.acting(find) {
        Ok(path) => Ok(Program {
            command,
            path: Some(path),
        }),
        Err(error) => {
            let message = start_failed(&command, &error);
            let is_named = [io::ErrorKind::NotFound, io::ErrorKind::PermissionDenied];
            let is_jobs = is_named.contains(&error.kind());
            Err(if is_jobs {
                not_there(&message)
            } else {
                message
            })
        }
    }
}

/// Shared memory of the task's attempt; `None` if it uses the host's.
fn shared_memory(spec: &TaskSpec) -> Result<Option<SharedMemory>, String> {
    let place = spec.confinement.shared_memory.as_ref();
    let memory = place.map(SharedMemory::prepare).transpose();
    memory.map_err(|error| format!("creating the shared memory failed: {error}"))
}

/// Working directory of the task and of commands beside it.
///
/// # Errors
/// Why it is unusable, as a message for the user.
pub(crate) fn working_directory(
    spec: &TaskSpec,
    directory: &TaskDirectory,
) -> Result<PathBuf, String> {
    let path = directory.working_directory(spec);
    // Checked with the task's rights: its account may lack access.
    let is_there = spec
        .identity
        .acting(|| Ok(fs::metadata(path.join("."))?.is_dir()));
    let shown = path.display();
    let message = match &is_there {
        Ok(true) => return Ok(path),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => format!(
            "the working directory `{shown}` is not open to the account of the task: {error}"
        ),
        Err(error) if !is_absence(error) => {
            return Err(format!(
                "the working directory `{shown}` does not answer: {error}"
            ));
        }
        _ => format!("the working directory `{shown}` does not exist"),
    };
    // The task's own folder is created by its host.
    let is_named = spec.assignment.working_directory.is_some();
    Err(if is_named {
        not_there(&message)
    } else {
        message
    })
}

/// Whether the error means that the folder does not exist, and not that the file system is broken.
fn is_absence(error: &io::Error) -> bool {
    let kinds = [io::ErrorKind::NotFound, io::ErrorKind::NotADirectory];
    kinds.contains(&error.kind())
}

/// Command of a task that is a plain process of the host.
fn process(
    spec: &TaskSpec,
    directory: &TaskDirectory,
    secrets: &Secrets,
) -> Result<Command, String> {
    let assignment = &spec.assignment;
    let (program, arguments) = assignment
        .command
        .split_first()
        .ok_or("the command is empty")?;
    let working_directory = working_directory(spec, directory)?;
    let mut command = Command::new(program);
    command
        .args(arguments)
        .env_clear()
        .envs(environment::of_task(spec, directory, secrets))
        .current_dir(working_directory);
    Ok(command)
}
