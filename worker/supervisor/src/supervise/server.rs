//! Fork server for supervisors: forks one for every task, so that no program has to be loaded.
//! It has no threads and opens nothing, so its children start as clean as a new program. It lives as long as
//! its agent, and then as long as any of its supervisors: it is their [`Guard`].

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::ExitCode;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, send, sendmsg,
};
use rustix::process::setsid;

use crate::lease::guard::{Guard, GuardedState};
use crate::limits::LEASE_TICK;
use crate::output::log_error;
use crate::supervise::reuse;
use crate::sys;
use crate::task::directory::TaskDirectory;

/// Maximum bytes of a path in the kernel.
const PATH_BYTES_MAX: usize = 4_096;
/// Size of an answer: a process id, or a negative error number.
const ANSWER_BYTES: usize = size_of::<i32>();

/// Requests the fork server on the other end of `server` to fork a supervisor for a task, with `agent` as its
/// standard input. Returns the supervisor's process id. Requests must not overlap.
///
/// # Errors
/// Errors of the kernel, here or in the server.
pub fn ask(server: BorrowedFd<'_>, directory: &Path, agent: BorrowedFd<'_>) -> io::Result<i32> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    let descriptors = [agent];
    ancillary.push(SendAncillaryMessage::ScmRights(&descriptors));
    let path = [IoSlice::new(directory.as_os_str().as_bytes())];
    sendmsg(server, &path, &mut ancillary, SendFlags::NOSIGNAL)?;
    let mut answer = [0u8; ANSWER_BYTES];
    let (bytes, _) = rustix::net::recv(server, &mut answer, RecvFlags::empty())?;
    if bytes != ANSWER_BYTES {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    match i32::from_ne_bytes(answer) {
        pid if pid > 0 => Ok(pid),
        error => Err(io::Error::from_raw_os_error(-error)),
    }
}

/// Serves the agent on standard input until it hangs up; in a forked supervisor, runs its task to the end.
pub(crate) fn serve() -> ExitCode {
    // Fails if this process leads a process group already, which serves as well.
    let _ = setsid();
    match serve_until_hung_up() {
        Ok(Some(supervisor)) => supervisor.run(),
        Ok(None) => ExitCode::SUCCESS,
        Err(error) => {
            log_error(&format!("serving the agent failed: {error}"));
            ExitCode::FAILURE
        }
    }
}

/// Task of a process to be forked.
struct Request {
    directory: TaskDirectory,
    agent: OwnedFd,
    pulse: Option<GuardedState>,
}

fn serve_until_hung_up() -> io::Result<Option<Request>> {
    sys::close_inherited_files()?;
    let mut guard = Guard::new()?;
    let mut has_agent = true;
    while has_agent || !guard.is_idle() {
        guard.check();
        if !wait_for_request(has_agent, &guard)? {
            continue;
        }
        let stdin = io::stdin();
        let request = match receive(stdin.as_fd()) {
            Ok(Some(request)) => request,
            Ok(None) => {
                has_agent = false;
                continue;
            }
            Err(Errno::INTR) => continue,
            // For example, the agent was killed with an answer unread: the supervisors are still guarded.
            Err(error) => {
                log_error(&format!("reading from the agent failed: {error}"));
                has_agent = false;
                continue;
            }
        };
        let pulse = guard.next();
        let answer = match sys::fork() {
            Ok(None) => return Ok(Some(Request { pulse, ..request })),
            Ok(Some(pid)) => {
                guard.begin(pid);
                pid
            }
            Err(error) => -error.raw_os_error().unwrap_or(Errno::AGAIN.raw_os_error()),
        };
        // If the agent hung up meanwhile, the next check notices it.
        let _ = send(stdin.as_fd(), &answer.to_ne_bytes(), SendFlags::NOSIGNAL);
    }
    Ok(None)
}

/// Waits for the agent, while there is one; without timeout only if nothing is guarded.
fn wait_for_request(has_agent: bool, guard: &Guard) -> io::Result<bool> {
    let tick = Timespec {
        tv_sec: 0,
        tv_nsec: i64::from(LEASE_TICK.subsec_nanos()),
    };
    let timeout = (!has_agent || !guard.is_idle()).then_some(&tick);
    let stdin = io::stdin();
    let mut agent = [PollFd::new(&stdin, PollFlags::IN)];
    let polled = if has_agent { &mut agent[..] } else { &mut [] };
    match poll(polled, timeout) {
        Ok(ready) => Ok(ready > 0),
        Err(Errno::INTR) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// The next request; `None` if the agent hung up. Malformed requests are answered by hanging up.
fn receive(agent: BorrowedFd<'_>) -> Result<Option<Request>, Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut path = [0u8; PATH_BYTES_MAX];
    let mut slices = [IoSliceMut::new(&mut path)];
    let received = recvmsg(agent, &mut slices, &mut ancillary, RecvFlags::CMSG_CLOEXEC)?;
    let descriptor = ancillary.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    });
    Ok(descriptor.map(|agent| Request {
        directory: TaskDirectory::new(OsStr::from_bytes(&path[..received.bytes])),
        agent,
        pulse: None,
    }))
}

impl Request {
    /// Puts the process into the state of a supervisor that was started as a program, and runs it.
    fn run(self) -> ExitCode {
        if let Err(error) = self.become_supervisor() {
            log_error(&format!("initializing the supervisor failed: {error}"));
            return ExitCode::FAILURE;
        }
        drop(self.agent);
        reuse::supervise_all(self.directory, self.pulse)
    }

    fn become_supervisor(&self) -> io::Result<()> {
        let errors = File::create(self.directory.supervisor_errors())?;
        sys::become_standard_files(Some(self.agent.as_fd()), errors.as_fd())
    }
}
