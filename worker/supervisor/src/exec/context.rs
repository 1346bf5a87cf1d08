//! Start of a command beside a task.

use std::ffi::{CString, OsStr, OsString};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::process::{Command, Stdio};

use rustix::process::{Signal, getpid};

use crate::container::{END_NOW, proxy_command};
use crate::exec::request::{ExecRequest, FILES};
use crate::isolation::cgroup::Cgroups;
use crate::isolation::shared_memory::Entry;
use crate::process::ProcessIdentity;
use crate::sys;
use crate::task::child::ChildSetup;
use crate::task::directory::TaskDirectory;
use crate::task::ready::working_directory;
use crate::task::secrets::Secrets;
use crate::task::spec::TaskSpec;
use crate::task::{environment, program};

/// A task as it was started, with its secrets.
#[derive(Clone, Debug)]
pub(super) struct ExecContext {
    spec: TaskSpec,
    secrets: Secrets,
    /// Main process; `None` if it is not needed or had ended already.
    main: Option<ProcessIdentity>,
}

impl ExecContext {
    /// A task whose main process has the id `main` and has not been reaped.
    pub(super) fn new(spec: TaskSpec, secrets: Secrets, main: i32) -> Self {
        let place = spec.confinement.shared_memory.as_ref();
        let main = place.and_then(|_| ProcessIdentity::of(main));
        Self {
            spec,
            secrets,
            main,
        }
    }

    /// The command as a process beside those of the task, or the proxy for it in the task's container.
    ///
    /// # Errors
    /// Why it cannot be started, as a message for the user.
    pub(super) fn command(
        &self,
        directory: &TaskDirectory,
        request: &ExecRequest,
        [input, output, errors]: [OwnedFd; FILES],
    ) -> Result<Command, String> {
        let (program, arguments) = request
            .command
            .split_first()
            .ok_or("the command is empty")?;
        let (mut command, place) = match self.is_contained() {
            true => {
                let command = proxy_command(directory, request);
                (command.map_err(|error| error.to_string())?, None)
            }
            false => {
                let (command, place) = self.process(directory, program, arguments)?;
                (command, Some(place))
            }
        };
        if let Some(terminal) = &request.terminal {
            command.env("TERM", terminal);
        }
        let cgroups = Cgroups::at(&self.spec.cgroups());
        let mut setup = ChildSetup::of(&self.spec, &cgroups, getpid())?;
        for file in [&input, &output, &errors] {
            setup
                .give(file)
                .map_err(|error| format!("setting up input and output failed: {error}"))?;
        }
        command
            .stdin(Stdio::from(input))
            .stdout(Stdio::from(output))
            .stderr(Stdio::from(errors));
        if let Some(place) = &self.spec.confinement.shared_memory {
            let entry = Entry::beside(place, self.main)
                .map_err(|error| format!("joining the task's shared memory failed: {error}"))?;
            setup = setup.entering(entry);
        }
        sys::set_up_in_child(&mut command, setup);
        if let Some(place) = place {
            sys::begin_in(&mut command, place);
        }
        if request.terminal.is_some() {
            sys::with_controlling_terminal(&mut command);
        }
        Ok(command)
    }

    /// Signal that asks a command to end after its user hung up.
    pub(super) const fn hangup_signal(&self) -> Signal {
        match self.is_contained() {
            true => END_NOW,
            false => Signal::HUP,
        }
    }

    const fn is_contained(&self) -> bool {
        self.spec.assignment.execution.container.is_some()
    }

    /// The command as a process of the host, and its working directory.
    fn process(
        &self,
        directory: &TaskDirectory,
        program: &str,
        arguments: &[String],
    ) -> Result<(Command, CString), String> {
        let environment = environment::of_task(&self.spec, directory, &self.secrets);
        let place = working_directory(&self.spec, directory)?;
        let path = environment.get(OsStr::new("PATH")).map(OsString::as_os_str);
        // The same error message as for the start of a task.
        let find = || program::find(program.as_ref(), path, &place);
        self.spec
            .identity
            .acting(find)
            .map_err(|error| format!("starting `{program}` failed: {error}"))?;
        let begins_in = CString::new(place.as_os_str().as_bytes())
            .map_err(|error| format!("entering `{}` failed: {error}", place.display()))?;
        let mut command = Command::new(program);
        command.args(arguments).env_clear().envs(environment);
        Ok((command, begins_in))
    }
}
