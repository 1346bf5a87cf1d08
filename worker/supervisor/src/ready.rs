//! What a task needs before it begins: all of it is there, or found wrong, before anything of the task runs.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{fs, io};

use muster_model::command::NOT_THERE;
use rustix::process::getpid;

use crate::cgroup::{Cgroups, KeptCgroups, Limits};
use crate::child::ChildSetup;
use crate::container::{self, Removal};
use crate::directory::TaskDirectory;
use crate::family::{Family, Outputs};
use crate::secrets::Secrets;
use crate::shared_memory::SharedMemory;
use crate::spec::TaskSpec;
use crate::start::{self, Started};
use crate::{environment, hostfile, program, sys};

/// What a task needs beside its process.
#[derive(Debug)]
pub(crate) struct Ready {
    belongings: Belongings,
    setup: ChildSetup,
    program: Program,
    /// The port that the program was told to meet its gang on: a release may name another one.
    master_port: u16,
}

/// What to start.
#[derive(Debug)]
struct Program {
    command: Command,
    /// Where it was found; none if the command is this program, which runs a container.
    path: Option<PathBuf>,
}

/// What is made for a task, and removed again.
#[derive(Debug)]
pub(crate) struct Belongings {
    pub(crate) cgroups: Cgroups,
    /// What these hold it to.
    pub(crate) limits: Limits,
    pub(crate) secrets: Secrets,
    /// Its attempt's shared memory; none if it uses the host's.
    shared_memory: Option<SharedMemory>,
}

impl Belongings {
    fn remove(self) {
        self.cgroups.remove();
        self.secrets.remove();
        leave(self.shared_memory);
    }

    /// Makes what is still missing, and finds the program.
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

    /// Lets it go once nothing of the task lives; keeps those cgroups for the next task, if there may be one, that can be kept.
    pub(crate) fn close(self, may_keep: bool) -> Option<KeptCgroups> {
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

/// Leaves the attempt's shared memory.
fn leave(memory: Option<SharedMemory>) {
    // The agent tries again when it lets the task go, and says so if it cannot.
    drop(memory.map(SharedMemory::close));
}

impl Ready {
    /// Makes what the task needs, and finds what can be found wrong before its process is started.
    ///
    /// Cgroups that the last task of this process had are used again where that makes no difference.
    ///
    /// # Errors
    /// What is wrong, in words for the user.
    pub(crate) fn prepare(
        spec: &TaskSpec,
        directory: &TaskDirectory,
        kept: Option<KeptCgroups>,
    ) -> Result<Self, String> {
        if let Some(refusal) = &spec.identity.refusal {
            return Err(refusal.clone());
        }
        hostfile::write(&spec.assignment.gang_hosts, directory)?;
        let limits = Limits::of(spec);
        let cgroups = match kept.and_then(|kept| kept.pass_on(&spec.cgroups(), &limits)) {
            Some(cgroups) => cgroups,
            None => Cgroups::create(&spec.cgroups(), &limits)?,
        };
        let secrets = Secrets::prepare(spec).inspect_err(|_| cgroups.remove())?;
        let mut belongings = Belongings {
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

    /// Removes it again: the task will not begin.
    pub(crate) fn remove(self) {
        self.belongings.remove();
    }

    /// Starts the main process.
    ///
    /// # Errors
    /// Why it could not be started, in words for the user; nothing is left of what it needed then.
    pub(crate) fn start(
        self,
        spec: &TaskSpec,
        directory: &TaskDirectory,
    ) -> Result<(Family, Outputs), String> {
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
        Ok(Family::of(started, belongings, removal))
    }
}

/// Starts the main process, and opens what tells of its end.
fn spawn(program: Program, setup: ChildSetup) -> Result<Started, String> {
    let Program { mut command, path } = program;
    let Some(path) = path else {
        sys::set_up_in_child(&mut command, setup);
        let started = start::command(&mut command);
        return started.map_err(|error| start_failed(&command, &error));
    };
    start::program(&command, &path, &setup).map_err(|error| {
        let words = start_failed(&command, &error);
        // It was found a moment ago: what its first line names is not there.
        let is_jobs = error.kind() == io::ErrorKind::NotFound;
        if is_jobs { not_there(&words) } else { words }
    })
}

fn start_failed(command: &Command, error: &io::Error) -> String {
    let program = command.get_program().display();
    format!("starting `{program}` failed: {error}")
}

/// Begins the words for what a job names and is not there: nobody is to take the host for broken.
pub(crate) fn not_there(words: &str) -> String {
    format!("{NOT_THERE}: {words}")
}

/// What to start. A program of the host must be there to be started; a container's is its image's business.
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
    let path = { command.get_envs() }.find_map(|(name, value)| value.filter(|_| name == "PATH"));
    let place = command.get_current_dir().unwrap_or(Path::new("/"));
    // What the account may not start is not there for the task.
    let find = || program::find(name, path, place);
    match spec.identity.acting(find) {
        Ok(path) => Ok(Program {
            command,
            path: Some(path),
        }),
        Err(error) => {
            let words = start_failed(&command, &error);
            let is_named = [io::ErrorKind::NotFound, io::ErrorKind::PermissionDenied];
            let is_jobs = is_named.contains(&error.kind());
            Err(if is_jobs { not_there(&words) } else { words })
        }
    }
}

/// The shared memory of the task's attempt, if it is not to use the host's.
fn shared_memory(spec: &TaskSpec) -> Result<Option<SharedMemory>, String> {
    let place = spec.confinement.shared_memory.as_ref();
    let memory = place.map(SharedMemory::prepare).transpose();
    memory.map_err(|error| format!("making its shared memory failed: {error}"))
}

/// Where the task begins, and commands beside it.
///
/// # Errors
/// Why it cannot, in words for the user.
pub(crate) fn working_directory(
    spec: &TaskSpec,
    directory: &TaskDirectory,
) -> Result<PathBuf, String> {
    let path = directory.working_directory(spec);
    // As the task will come to it: its account may not be let in.
    let is_there = spec
        .identity
        .acting(|| Ok(fs::metadata(path.join("."))?.is_dir()));
    let shown = path.display();
    let words = match &is_there {
        Ok(true) => return Ok(path),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => format!(
            "the working directory `{shown}` is not open to the account that the task runs as: {error}"
        ),
        Err(error) if !is_absence(error) => {
            return Err(format!(
                "the working directory `{shown}` does not answer: {error}"
            ));
        }
        _ => format!("the working directory `{shown}` is not there"),
    };
    // The task's own folder is made by its host.
    let is_named = spec.assignment.working_directory.is_some();
    Err(if is_named { not_there(&words) } else { words })
}

/// Whether a file system says that there is no such folder, and not that it does not work.
fn is_absence(error: &io::Error) -> bool {
    let kinds = [io::ErrorKind::NotFound, io::ErrorKind::NotADirectory];
    kinds.contains(&error.kind())
}

/// The command of a task that is a process of the host.
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
