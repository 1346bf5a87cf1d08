//! Exec sessions: commands that users run beside a task, in its environment, working directory and cgroup.
//! They are children of the supervisor, so that whatever ends the task also ends them: its lease, a stop
//! request, its own exit. A separate thread starts them, because a disk may hang and the main thread must
//! not; that thread lives as long as they do, since they die with the thread that started them. It is started
//! by the first request: most tasks have none.
//! For each command, an agent opens a connection of its own with the files that become the command's input
//! and output, and is notified on it of the command's state. If the agent hangs up, the command is ended.
//! Commands continue while the task is paused: a user may want to inspect it. Processes that they leave
//! behind belong to the task.

mod client;
mod context;
mod request;

use std::collections::BTreeMap;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use std::{io, thread};

use context::ExecContext;
use muster_model::time::MonotonicMs;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SendFlags, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind, listen,
    send, socket_with,
};
use rustix::process::{Pid, PidfdFlags, Signal, WaitStatus, pidfd_open};

use crate::lease::clock::LeaseClock;
use crate::limits::{EXEC_ANSWER_MAX, EXEC_HANGUP_MS, EXEC_REFUSAL_BYTES_MAX, EXEC_SESSIONS_MAX};
use crate::link::wake::Wake;
use crate::output::log_error;
use crate::process::process_tree::ProcessTree;
use crate::process::signal_group;
use crate::task::directory::TaskDirectory;
use crate::task::spec::TaskSpec;
pub use client::{ask, receive};
use request::FILES;
pub use request::{ExecAnswer, ExecRequest};

/// Stack of the thread.
const STACK_BYTES: usize = 256 << 10;

/// The exec sessions of one task.
#[derive(Debug, Default)]
pub(crate) struct Execs {
    /// The task as it was started; `None` before.
    task: Option<ExecContext>,
    /// True if requests were announced before the task was started.
    is_awaited: bool,
    thread: Option<ExecThread>,
}

#[derive(Debug)]
struct ExecThread {
    shared: Arc<Shared>,
    done: Receiver<()>,
}

/// State shared by the main thread and the exec thread.
#[derive(Debug)]
struct Shared {
    /// Wakes the exec thread.
    wake: Wake,
    /// Wakes the main thread, the only one that reaps processes.
    ended: Wake,
    table: Mutex<Table>,
}

#[derive(Debug, Default)]
struct Table {
    /// Running commands by process id; with their exit status until it is reported.
    running: BTreeMap<i32, Option<WaitStatus>>,
    /// A command is being started: meanwhile no child is reaped, as the standard library may have to reap
    /// this one.
    is_starting: bool,
    /// No further command is started.
    is_closed: bool,
}

impl Execs {
    /// Notes that the task was started, with a main process that has not been reaped. Opens the socket if
    /// requests were announced before.
    pub(crate) fn started(
        &mut self,
        spec: TaskSpec,
        tree: &ProcessTree,
        directory: &TaskDirectory,
    ) {
        self.task = Some(ExecContext::new(spec, tree.secrets().clone(), tree.main()));
        if self.is_awaited {
            self.open(directory);
        }
    }

    /// Opens the socket for requests once the task was started; has no effect when repeated.
    pub(crate) fn open(&mut self, directory: &TaskDirectory) {
        let Some(task) = &self.task else {
            self.is_awaited = true;
            return;
        };
        if self.thread.is_some() {
            return;
        }
        match ExecThread::start(task.clone(), directory.clone()) {
            Ok(thread) => self.thread = Some(thread),
            // The agent finds no socket, and reports that.
            Err(error) => log_error(&format!("serving exec sessions failed: {error}")),
        }
    }

    /// Whether requests were ever announced.
    pub(crate) const fn were_opened(&self) -> bool {
        self.thread.is_some()
    }

    /// Descriptor to poll for the end of a command; call [`Self::reap`] then.
    pub(crate) fn ended(&self) -> Option<&Wake> {
        self.thread.as_ref().map(|thread| &thread.shared.ended)
    }

    /// Reaps ended processes of the task and of its commands. True if none of them is alive.
    /// While a command is being started, reaps only the task's main process. If that start fails, the
    /// standard library waits for the child itself, and panics if it is gone.
    pub(crate) fn reap(&self, tree: &mut ProcessTree) -> bool {
        let Some(thread) = &self.thread else {
            return tree.reap(|_, _| {});
        };
        // Cleared before the check: a later end is signalled again.
        thread.shared.ended.lower();
        let mut table = thread.shared.table();
        if table.is_starting {
            tree.reap_main();
            return false;
        }
        tree.reap(|pid, status| {
            if let Some(running) = table.running.get_mut(&pid) {
                *running = Some(status);
                thread.shared.wake.raise();
            }
        })
    }

    /// Asks all commands to end, because the task was asked to stop.
    pub(crate) fn terminate(&self) {
        self.signal(&[Signal::HUP, Signal::CONT]);
    }

    /// Kills all commands and starts no more: the task has ended.
    pub(crate) fn kill(&self) {
        if let Some(thread) = &self.thread {
            thread.shared.table().is_closed = true;
        }
        self.signal(&[Signal::KILL]);
    }

    /// Calls `act` with the process ids of all running commands, unless one is being started. False in that
    /// case, without calling it.
    pub(crate) fn with_running(&self, act: impl FnOnce(&[i32])) -> bool {
        let Some(thread) = &self.thread else {
            act(&[]);
            return true;
        };
        let table = thread.shared.table();
        if !table.is_starting {
            let running: Vec<i32> = table.running.keys().copied().collect();
            act(&running);
        }
        !table.is_starting
    }

    fn signal(&self, signals: &[Signal]) {
        let Some(thread) = &self.thread else { return };
        for (pid, status) in &thread.shared.table().running {
            for signal in signals.iter().filter(|_| status.is_none()) {
                signal_group(*pid, *signal);
            }
        }
    }

    /// Waits, for a bounded time, until agents were notified of the ends. Call it once no process of the task
    /// is alive.
    pub(crate) fn finish(&self) {
        let Some(thread) = &self.thread else { return };
        thread.shared.table().is_closed = true;
        thread.shared.wake.raise();
        if thread.done.recv_timeout(EXEC_ANSWER_MAX).is_err() {
            log_error("commands beside the task did not end in time");
        }
    }
}

impl Shared {
    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Signals the process group of a command. Once the command was reaped, its id may have been reused.
    fn signal(&self, pid: i32, signals: &[Signal]) {
        let table = self.table();
        if matches!(table.running.get(&pid), Some(None)) {
            for signal in signals {
                signal_group(pid, *signal);
            }
        }
    }
}

impl ExecThread {
    fn start(task: ExecContext, directory: TaskDirectory) -> io::Result<Self> {
        let shared = Arc::new(Shared {
            wake: Wake::new()?,
            ended: Wake::new()?,
            table: Mutex::default(),
        });
        let (done_sender, done) = sync_channel(1);
        let server = Server {
            task,
            directory,
            shared: Arc::clone(&shared),
            sessions: Vec::new(),
            clock: LeaseClock::start(),
        };
        thread::Builder::new()
            .name("exec".to_owned())
            .stack_size(STACK_BYTES)
            .spawn(move || serve(server, &done_sender))?;
        Ok(Self { shared, done })
    }
}

fn serve(mut server: Server, done_sender: &SyncSender<()>) {
    if let Err(error) = server.serve() {
        log_error(&format!("serving exec sessions failed: {error}"));
    }
    // The receiver may have given up waiting.
    let _ = done_sender.send(());
    // Children of this thread die with it: it ends with the process.
    loop {
        thread::park();
    }
}

/// State of the exec thread.
struct Server {
    task: ExecContext,
    directory: TaskDirectory,
    shared: Arc<Shared>,
    sessions: Vec<Session>,
    clock: LeaseClock,
}

/// One exec session of an agent.
struct Session {
    agent: OwnedFd,
    /// Process id of the command, once it runs.
    pid: Option<i32>,
    /// Readable once the command has ended; `None` after that was noticed.
    process: Option<OwnedFd>,
    /// Time of the kill, once the agent has hung up.
    kill_at: Option<MonotonicMs>,
    /// Over the limit: the request is read before it is refused, or the refusal would be lost with it.
    is_surplus: bool,
}

impl Server {
    /// Serves until there is nothing more to report.
    fn serve(&mut self) -> io::Result<()> {
        let listener = socket_with(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::CLOEXEC | SocketFlags::NONBLOCK,
            None,
        )?;
        bind(
            &listener,
            &SocketAddrUnix::new(self.directory.exec_socket())?,
        )?;
        listen(
            &listener,
            i32::try_from(EXEC_SESSIONS_MAX).unwrap_or(i32::MAX),
        )?;
        loop {
            self.send_exits();
            if self.shared.table().is_closed && self.sessions.is_empty() {
                return Ok(());
            }
            let ready = self.wait(&listener)?;
            self.shared.wake.lower();
            while let Ok(agent) =
                accept_with(&listener, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK)
            {
                self.accept(agent);
            }
            for index in ready.into_iter().rev() {
                self.receive(index);
            }
        }
    }

    /// Waits for an event; returns the sessions whose agent sent something or hung up, ascending.
    fn wait(&mut self, listener: &OwnedFd) -> io::Result<Vec<usize>> {
        // Computed here, because continuous requests of others must not delay it.
        let limit = self.kill_orphans();
        let readable = |fd| PollFd::from_borrowed_fd(fd, PollFlags::IN);
        let mut polled = vec![
            readable(self.shared.wake.as_fd()),
            readable(listener.as_fd()),
        ];
        let mut subjects = Vec::new();
        for (index, session) in self.sessions.iter().enumerate() {
            // A hung-up connection stays readable forever: it must not wake this thread again.
            if session.kill_at.is_none() {
                polled.push(readable(session.agent.as_fd()));
                subjects.push((index, true));
            }
            if let Some(process) = &session.process {
                polled.push(readable(process.as_fd()));
                subjects.push((index, false));
            }
        }
        match poll(&mut polled, limit.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let states: Vec<bool> = polled[polled.len() - subjects.len()..]
            .iter()
            .map(|one| !one.revents().is_empty())
            .collect();
        let mut readable_agents = Vec::new();
        for ((index, is_agent), _) in subjects.into_iter().zip(states).filter(|(_, ready)| *ready) {
            if is_agent {
                readable_agents.push(index);
            } else {
                self.sessions[index].process = None;
                self.shared.ended.raise();
            }
        }
        Ok(readable_agents)
    }

    /// Kills commands that were asked to end and did not in time. Returns the time until the next kill is
    /// due; `None` if there is none.
    fn kill_orphans(&mut self) -> Option<Timespec> {
        let now = self.clock.now();
        for session in &mut self.sessions {
            if session.kill_at.is_some_and(|kill_at| now >= kill_at) {
                let pid = session.pid.unwrap_or_default();
                self.shared.signal(pid, &[Signal::KILL]);
                session.kill_at = Some(now.after(EXEC_HANGUP_MS));
            }
        }
        let next = self.sessions.iter().filter_map(|session| session.kill_at);
        next.min()
            .and_then(|next| Duration::from_millis(next.since(now)).try_into().ok())
    }

    fn accept(&mut self, agent: OwnedFd) {
        let taken = self.sessions.iter().filter(|session| !session.is_surplus);
        self.sessions.push(Session {
            is_surplus: taken.count() >= EXEC_SESSIONS_MAX,
            agent,
            pid: None,
            process: None,
            kill_at: None,
        });
    }

    /// Handles an agent's request or hang-up.
    fn receive(&mut self, index: usize) {
        let session = &mut self.sessions[index];
        let (received, is_surplus) = (request::receive(&session.agent), session.is_surplus);
        match (session.pid, received) {
            (_, Err(Errno::AGAIN | Errno::INTR)) => {}
            (None, Ok(Some((request, files)))) => match self.start(&request, files, is_surplus) {
                Ok(pid) => {
                    let session = &mut self.sessions[index];
                    session.pid = Some(pid);
                    session.process = process_of(pid);
                    session.send(&ExecAnswer::Started);
                }
                Err(mut detail) => {
                    detail.truncate(detail.floor_char_boundary(EXEC_REFUSAL_BYTES_MAX));
                    self.sessions
                        .remove(index)
                        .send(&ExecAnswer::Refused { detail });
                }
            },
            // Malformed requests are answered by hanging up.
            (None, _) => drop(self.sessions.remove(index)),
            (Some(pid), _) => {
                session.kill_at = Some(self.clock.now().after(EXEC_HANGUP_MS));
                self.shared
                    .signal(pid, &[self.task.hangup_signal(), Signal::CONT]);
            }
        }
    }

    fn start(
        &self,
        request: &ExecRequest,
        files: [OwnedFd; FILES],
        is_surplus: bool,
    ) -> Result<i32, String> {
        if is_surplus {
            return Err(format!(
                "the task already has {EXEC_SESSIONS_MAX} exec sessions (EXEC_SESSIONS_MAX)"
            ));
        }
        let mut command = self.task.command(&self.directory, request, files)?;
        {
            let mut table = self.shared.table();
            if table.is_closed {
                return Err("the task has ended".to_owned());
            }
            table.is_starting = true;
        }
        let spawned = command.spawn();
        let mut table = self.shared.table();
        table.is_starting = false;
        // Processes that ended meanwhile were not reaped.
        self.shared.ended.raise();
        let child = spawned
            .map_err(|error| format!("starting `{}` failed: {error}", request.command[0]))?;
        let pid = child.id().cast_signed();
        table.running.insert(pid, None);
        // A command that started while the others were killed was not among them.
        if table.is_closed {
            signal_group(pid, Signal::KILL);
        }
        Ok(pid)
    }

    /// Notifies agents of commands that ended.
    fn send_exits(&mut self) {
        let mut table = self.shared.table();
        self.sessions.retain_mut(|session| {
            let Some(pid) = session.pid else {
                return !table.is_closed;
            };
            let Some(Some(status)) = table.running.get(&pid).copied() else {
                return true;
            };
            table.running.remove(&pid);
            session.send(&ExecAnswer::Ended {
                code: status.exit_status(),
                signal: status.terminating_signal(),
            });
            false
        });
    }
}

impl Session {
    fn send(&mut self, answer: &ExecAnswer) {
        // An agent that is gone needs no answer; its hang-up is noticed when the connection is read.
        if let Ok(bytes) = serde_json::to_vec(answer) {
            let _ = send(&self.agent, &bytes, SendFlags::NOSIGNAL);
        }
    }
}

/// `None` if it was reaped already, and thus needs no signal.
fn process_of(pid: i32) -> Option<OwnedFd> {
    let pid = Pid::from_raw(pid)?;
    pidfd_open(pid, PidfdFlags::NONBLOCK).ok()
}
