//! Start of a task's main process.
//! A program of the host is started in the supervisor's own memory, as `vfork` does: copying its page tables,
//! and the pages that either process writes to afterwards, takes a third of the time that a short task costs
//! its supervisor. The supervisor is suspended until the program has replaced it in the child.

use std::ffi::{CString, OsStr};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::process::kill_pid;
use crate::sys;
use crate::task::child::ChildSetup;

/// Interpreter of executable files in no known format, as in `execvp`.
const SHELL: &str = "/bin/sh";

/// The standard input of tasks.
static NULL: OnceLock<File> = OnceLock::new();

/// A process that was started.
#[derive(Debug)]
pub(crate) struct Started {
    /// Process id.
    pub(crate) pid: i32,
    /// Readable once it has ended.
    pub(crate) ended: OwnedFd,
    /// Read end of its standard output.
    pub(crate) stdout: OwnedFd,
    /// Read end of its standard error.
    pub(crate) stderr: OwnedFd,
}

/// Everything that a child needs to execute a program: it may allocate nothing.
#[derive(Debug)]
pub(crate) struct Image<'task> {
    /// Setup performed before.
    pub(crate) setup: &'task ChildSetup,
    /// Working directory.
    pub(crate) directory: CString,
    /// Standard input, output and error.
    pub(crate) files: [BorrowedFd<'task>; 3],
    /// Path of the file.
    pub(crate) path: CString,
    /// Arguments, starting with the program's name as it was called.
    pub(crate) arguments: Vec<CString>,
    /// Path of the shell, for a script without an interpreter line.
    pub(crate) shell: CString,
    /// Arguments of the shell in that case.
    pub(crate) shell_arguments: Vec<CString>,
    /// Complete environment.
    pub(crate) environment: Vec<CString>,
}

/// Starts the resolved program of a command that has an environment of its own.
///
/// # Errors
/// Errors of the kernel, or an argument with a zero byte.
pub(crate) fn program(command: &Command, found: &Path, setup: &ChildSetup) -> io::Result<Started> {
    let null = match NULL.get() {
        Some(null) => null,
        None => {
            let null = File::open("/dev/null")?;
            NULL.get_or_init(|| null)
        }
    };
    let (stdout, theirs_out) = io::pipe()?;
    let (stderr, theirs_err) = io::pipe()?;
    setup.give(&theirs_out)?;
    setup.give(&theirs_err)?;
    let files = [null.as_fd(), theirs_out.as_fd(), theirs_err.as_fd()];
    let image = Image::of(command, found, files, setup)?;
    let (pid, ended) = sys::start_in_own_memory(&image)?;
    Ok(Started {
        pid,
        ended,
        stdout: stdout.into(),
        stderr: stderr.into(),
    })
}

/// Starts a command by the standard library.
///
/// # Errors
/// Errors of the kernel.
pub(crate) fn command(command: &mut Command) -> io::Result<Started> {
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    let pid = child.id().cast_signed();
    let ended = Pid::from_raw(pid)
        .ok_or(Errno::SRCH)
        .and_then(|pid| pidfd_open(pid, PidfdFlags::NONBLOCK));
    let outputs = child.stdout.take().zip(child.stderr.take());
    match (ended, outputs) {
        (Ok(ended), Some((stdout, stderr))) => Ok(Started {
            pid,
            ended,
            stdout: stdout.into(),
            stderr: stderr.into(),
        }),
        (ended, _) => {
            kill_pid(pid);
            Err(ended.err().unwrap_or(Errno::PIPE).into())
        }
    }
}

impl<'task> Image<'task> {
    fn of(
        command: &Command,
        found: &Path,
        files: [BorrowedFd<'task>; 3],
        setup: &'task ChildSetup,
    ) -> io::Result<Self> {
        let name = command.get_program();
        // A script learns its own path only if that contains a folder.
        let path = match name.as_bytes().contains(&b'/') {
            true => name,
            false => found.as_os_str(),
        };
        let given = command.get_args();
        let rest = given.map(text).collect::<io::Result<Vec<CString>>>()?;
        let with_rest = |first: &[&OsStr]| -> io::Result<Vec<CString>> {
            let first = first.iter().map(|argument| text(argument));
            first.chain(rest.iter().cloned().map(Ok)).collect()
        };
        let environment = command.get_envs().filter_map(|(name, value)| {
            let mut entry = name.to_owned();
            entry.push("=");
            entry.push(value?);
            Some(text(&entry))
        });
        let directory = command.get_current_dir().unwrap_or(Path::new("/"));
        Ok(Self {
            setup,
            directory: text(directory.as_os_str())?,
            files,
            path: text(path)?,
            arguments: with_rest(&[name])?,
            shell: text(OsStr::new(SHELL))?,
            shell_arguments: with_rest(&[OsStr::new(SHELL), path])?,
            environment: environment.collect::<io::Result<_>>()?,
        })
    }
}

fn text(text: &OsStr) -> io::Result<CString> {
    Ok(CString::new(text.as_bytes())?)
}
