//! Tasks in containers.
//! A container's processes are children of the engine, not of the supervisor. To handle them like plain
//! processes, a small proxy process runs as the task's main process, the *runner*: it creates the container,
//! copies its output, forwards signals, pauses and resumes it, waits for its end and exits the same way. If
//! the runner is killed, its supervisor starts a process that only removes the container, and an agent that
//! finds no supervisor does the same. A command beside the task has such a proxy as well.

mod end;
mod engine;
mod exec;
mod exit;
mod frames;
mod gang_barrier;
mod http;
mod image;
mod login;
mod pipes;
mod plan;
mod progress;
mod record;
mod removal;
mod rights;
mod run;
mod sources;
mod task;

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

pub use end::{ContainerRemains, end};
pub use engine::{Engine, EngineError, EngineIdentity, Listed};
pub(crate) use exec::{END_NOW, proxy_command};
pub(crate) use record::ContainerEnd;
pub(crate) use removal::Removal;
pub(crate) use rights::{may_run, whose};

use rustix::process::Signal;

use crate::output::log_error;
use crate::process::CONTROL_VARIABLE;
use crate::task::directory::TaskDirectory;

/// Asks a runner to pause its container. Of this and [`RESUME_SIGNAL`] the kernel keeps only the last one.
pub(crate) const PAUSE_SIGNAL: Signal = Signal::TSTP;
/// Asks a runner to resume its container, paused or not.
pub(crate) const RESUME_SIGNAL: Signal = Signal::CONT;

/// This program, even if its file was replaced meanwhile.
const THIS_PROGRAM: &str = "/proc/self/exe";
/// Prefix of the container's variables in the runner's environment: they do not apply to the runner.
const VARIABLE_PREFIX: &str = "container:";
/// Pause between two attempts to remove a container.
const REMOVE_RETRY: Duration = Duration::from_millis(200);

/// Runs `supervise container <action> <task directory> [<request>]`; `None` if the action is unknown.
pub(crate) fn act(
    action: &OsStr,
    directory: &TaskDirectory,
    request: Option<&OsStr>,
) -> Option<ExitCode> {
    match (action.to_str()?, request) {
        ("prepare", None) => Some(run::prepare(directory)),
        ("run", None) => Some(run::run(directory, variables())),
        ("remove", None) => Some(remove(directory)),
        ("exec", Some(request)) => exec::run(directory, request),
        _ => None,
    }
}

/// Command that provides the image of a task's container on this host before the task is started, and
/// succeeds once it is there. Otherwise `container-end.json` in the task's directory has the reason.
fn preparation(directory: &TaskDirectory) -> Command {
    let mut command = action("prepare", directory.path());
    command.env_clear();
    command
}

/// Command that runs a task's container with this environment, and exits the same way.
pub(crate) fn runner(
    directory: &TaskDirectory,
    environment: &BTreeMap<OsString, OsString>,
) -> Command {
    let mut command = action("run", directory.path());
    command.env_clear();
    for (name, value) in environment {
        let mut prefixed = OsString::from(VARIABLE_PREFIX);
        prefixed.push(name);
        command.env(prefixed, value);
    }
    // The variable identifies the runner as one of the task's processes.
    if let Some(control) = environment.get(OsStr::new(CONTROL_VARIABLE)) {
        command.env(CONTROL_VARIABLE, control);
    }
    command
}

/// Command that kills and removes what is left of a task's container, and succeeds once nothing is.
pub(crate) fn removal(directory: &Path) -> Command {
    let mut command = action("remove", directory);
    command
        .env_clear()
        .stdout(Stdio::null())
        .stderr(Stdio::inherit());
    command
}

fn action(action: &str, directory: &Path) -> Command {
    let mut command = Command::new(THIS_PROGRAM);
    command
        .args(["supervise", "container", action])
        .arg(directory)
        .current_dir("/")
        .stdin(Stdio::null());
    command
}

/// Variables of the container, as passed by [`runner`].
fn variables() -> BTreeMap<String, String> {
    let all = std::env::vars_os().map(|(name, value)| {
        let text = |text: OsString| text.to_string_lossy().into_owned();
        (text(name), text(value))
    });
    all.filter_map(|(name, value)| Some((name.strip_prefix(VARIABLE_PREFIX)?.to_owned(), value)))
        .collect()
}

fn remove(directory: &TaskDirectory) -> ExitCode {
    let mut reported = None;
    loop {
        let why = match end(directory) {
            Ok(ContainerRemains::Nothing) => return ExitCode::SUCCESS,
            Ok(ContainerRemains::PossiblyAlive(why)) => why,
            Err(error) => error.to_string(),
        };
        if reported.as_ref() != Some(&why) {
            log_error(&format!("removing the task's container: {why}"));
            reported = Some(why);
        }
        std::thread::park_timeout(REMOVE_RETRY);
    }
}
