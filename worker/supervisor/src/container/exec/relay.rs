//! Relay between the user and a command in a container, from its start to its end.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::Signal;
use rustix::termios::{Winsize, tcgetwinsize};

use crate::container::engine::{Engine, EngineError, granted};
use crate::container::exec::calls::{CallOutcome, EngineCall, ExecState, Purpose, is_some_size};
use crate::container::exec::exec_process::ExecProcess;
use crate::container::exec::files::{Input, Output};
use crate::container::exec::{ContainerExecError, not_started};
use crate::container::http::Exchange;
use crate::container::pipes::span;
use crate::lease::clock::boottime_ms;
use crate::limits::EXEC_HANGUP_INSIDE_MS;
use crate::process::ProcessIdentity;
use crate::sys;

/// Pause before the second status query, in milliseconds; it doubles each time.
const QUERY_RETRY_MS: u64 = 10;
/// Longest pause between two status queries, in milliseconds.
const QUERY_RETRY_MS_MAX: u64 = 1_000;
/// Consecutive queries that must report an end while the stream is open: a command about to start may look
/// ended.
const END_QUERIES: u32 = 6;
/// How long to wait for an unreachable engine, in milliseconds.
const ENGINE_AWAY_MS_MAX: u64 = 5_000;
/// Processes left by an ended command may hold its output open: it is complete once nothing has arrived for
/// this long, in milliseconds.
const QUIET_MS: u64 = 300;
/// Pause between two size changes of one terminal, in milliseconds: of those that it reads together, podman's
/// conmon takes the first (`read_from_ctrl_buffer` in its `src/ctrl.c`).
const RESIZE_PAUSE_MS: u64 = 300;
/// How long a command that ended while its terminal was resized may report a false exit code 0, in
/// milliseconds: as long as podman waits for the code (`readExecExitCode` in its `libpod/container_exec.go`).
const DOUBT_MS_MAX: u64 = 5_000;
/// Exit code of a killed process.
const KILLED: i32 = 128 + libc::SIGKILL;
/// Attempts to set one size: the terminal inside may not exist yet, or no longer.
const RESIZES_MAX: u32 = 8;

/// A command that the engine was asked to start.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) engine: Engine,
    /// The engine's id for it.
    pub(super) exec: String,
    /// The container's first process.
    pub(super) first: ProcessIdentity,
    pub(super) is_terminal: bool,
}

/// A command in a container and its known state. All times are milliseconds of `CLOCK_BOOTTIME`.
#[derive(Debug)]
pub(super) struct Relay {
    session: Session,
    signals: OwnedFd,
    /// `None` once the stream has ended.
    stream: Option<Exchange>,
    /// Whether the connection has become a stream.
    has_begun: bool,
    /// Time of the last data received.
    received_ms: u64,
    input: Input,
    output: Output,
    process: Process,
    /// Its exit code, once it has ended.
    code: Option<i32>,
    call: Option<EngineCall>,
    queries: QuerySchedule,
    size: Size,
    /// Signals for a process that is not known yet.
    pending_signals: Vec<Signal>,
    kill_at_ms: Option<u64>,
}

/// The command's process.
#[derive(Debug)]
enum Process {
    Unknown,
    Runs(ExecProcess),
    Ended,
}

/// Schedule of status queries.
#[derive(Debug, Default)]
struct QuerySchedule {
    /// Queries since the last trigger.
    count: u32,
    due_ms: u64,
    /// Since when the engine has not answered.
    failing_since_ms: Option<u64>,
}

impl QuerySchedule {
    /// Triggers an immediate query.
    fn trigger(&mut self) {
        self.count = 0;
        self.due_ms = 0;
    }

    fn done(&mut self, now_ms: u64) {
        let pause_ms = QUERY_RETRY_MS << self.count.min(16);
        self.count += 1;
        self.due_ms = now_ms + pause_ms.min(QUERY_RETRY_MS_MAX);
    }
}

/// The size of the user's terminal.
#[derive(Debug, Default)]
struct Size {
    /// Size still to be sent to the engine.
    wanted: Option<Winsize>,
    attempts: u32,
    /// When it may be sent next.
    due_ms: u64,
    /// Until when the engine may report an end with exit code 0 because it failed to resize the terminal.
    doubt_until_ms: u64,
}

impl Size {
    /// Marks the size as possibly changed.
    fn changed(&mut self) {
        self.wanted = tcgetwinsize(io::stdin()).ok().filter(is_some_size);
        self.attempts = 0;
    }

    /// Marks a size as sent, unless it has changed again.
    fn mark_resized(&mut self, size: Winsize, now_ms: u64) {
        self.due_ms = now_ms + RESIZE_PAUSE_MS;
        let is_sent =
            |wanted: &Winsize| (wanted.ws_row, wanted.ws_col) == (size.ws_row, size.ws_col);
        self.wanted = self.wanted.filter(|wanted| !is_sent(wanted));
    }

    fn failed(&mut self, now_ms: u64) {
        self.due_ms = now_ms + (QUERY_RETRY_MS << self.attempts.min(16));
        self.doubt_until_ms = now_ms + DOUBT_MS_MAX;
        self.attempts += 1;
        self.wanted = self.wanted.filter(|_| self.attempts < RESIZES_MAX);
    }
}

impl Relay {
    pub(super) fn new(
        session: Session,
        signals: OwnedFd,
        mut stream: Exchange,
    ) -> io::Result<Self> {
        stream.never_wait()?;
        let mut size = Size::default();
        if session.is_terminal {
            size.changed();
        }
        Ok(Self {
            input: Input::new()?,
            output: Output::new(session.is_terminal)?,
            session,
            signals,
            stream: Some(stream),
            has_begun: false,
            received_ms: 0,
            process: Process::Unknown,
            code: None,
            call: None,
            queries: QuerySchedule::default(),
            size,
            pending_signals: Vec::new(),
            kill_at_ms: None,
        })
    }

    /// Copies input and output until the command has ended; returns its exit code by shell conventions.
    ///
    /// Each turn writes what it has, does what is due, sleeps, and takes what has arrived. The exit code is
    /// only looked at after writing, so that no output is lost at the end; signals are taken before the stream,
    /// so that output that never stops cannot delay them.
    pub(super) fn run_to_end(mut self) -> Result<i32, ContainerExecError> {
        loop {
            self.copy();
            if let Some(code) = self.code.filter(|_| self.is_output_complete()) {
                return Ok(code);
            }
            self.act();
            self.sleep().map_err(lost)?;
            self.handle_signals().map_err(lost)?;
            self.read_stream()?;
            self.read_input();
            self.check_process();
            self.finish_call()?;
            self.require_engine()?;
        }
    }

    /// Whether all output was received and written.
    fn is_output_complete(&self) -> bool {
        let is_quiet = self.stream.is_none() || boottime_ms() >= self.received_ms + QUIET_MS;
        self.output.blocked().is_none() && is_quiet
    }

    fn copy(&mut self) {
        let was_blocked = self.output.blocked().is_some();
        if !self.output.write() {
            self.hang_up();
        }
        if was_blocked && self.output.blocked().is_none() {
            // Data that arrived in the meantime was not read.
            self.received_ms = boottime_ms();
        }
        if let Some(stream) = self.stream.as_mut().filter(|_| self.has_begun) {
            self.input.forward(stream);
        }
    }

    /// Sleeps until a source has something, or an action is due.
    fn sleep(&self) -> io::Result<()> {
        let timeout = self
            .next_due()
            .map(|due_ms| span(due_ms.saturating_sub(boottime_ms())));
        match poll(&mut self.sources(), timeout.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// What can wake this process: a signal; room for output that is blocked, or the engine's stream and the
    /// user's input, of which nothing is read before what was read earlier is written; the end of the command's
    /// process; an answer of the engine.
    fn sources(&self) -> Vec<PollFd<'_>> {
        let mut sources = vec![PollFd::new(&self.signals, PollFlags::IN)];
        let blocked = self.output.blocked();
        sources.extend(blocked.map(|pipe| PollFd::new(pipe, PollFlags::OUT)));
        if let Some(stream) = &self.stream {
            let mut wanted = PollFlags::empty();
            wanted.set(PollFlags::IN, blocked.is_none());
            wanted.set(PollFlags::OUT, self.input.waits());
            // Without any flag, poll would report a hang-up of the other side again and again.
            if !wanted.is_empty() {
                sources.push(PollFd::new(stream, wanted));
            }
            let input = self.input.wanted().filter(|_| self.has_begun);
            sources.extend(input.map(|file| PollFd::new(file, PollFlags::IN)));
        }
        if let Process::Runs(inside) = &self.process {
            sources.push(PollFd::new(inside, PollFlags::IN));
        }
        if let Some(call) = &self.call {
            sources.push(PollFd::new(call, PollFlags::IN));
        }
        sources
    }

    /// Time of the next scheduled action.
    fn next_due(&self) -> Option<u64> {
        let output_complete_ms = match self.code {
            Some(_) if self.output.blocked().is_none() => Some(self.received_ms + QUIET_MS),
            _ => None,
        };
        let engine_ms = match &self.call {
            Some(call) => [Some(call.until_ms), None],
            None => [
                self.wants_query().then_some(self.queries.due_ms),
                self.wants_size().then_some(self.size.due_ms),
            ],
        };
        let dues = engine_ms
            .into_iter()
            .chain([self.kill_at_ms, output_complete_ms]);
        dues.flatten().min()
    }

    /// Whether the engine must be queried: for the command's process id or its exit code.
    const fn wants_query(&self) -> bool {
        // Without a stream, the engine itself may be gone.
        let is_watched = matches!(self.process, Process::Runs(_)) && self.stream.is_some();
        self.has_begun && self.code.is_none() && !is_watched
    }

    const fn wants_size(&self) -> bool {
        self.has_begun && self.code.is_none() && self.size.wanted.is_some()
    }

    /// Kills what did not end in time, and sends due queries.
    fn act(&mut self) {
        let now_ms = boottime_ms();
        if self
            .kill_at_ms
            .is_some_and(|kill_at_ms| now_ms >= kill_at_ms)
        {
            self.kill_at_ms = None;
            self.signal(Signal::KILL);
        }
        if self.call.is_some() {
            return;
        }
        let purpose = match self.size.wanted {
            _ if self.wants_query() && now_ms >= self.queries.due_ms => Purpose::Query,
            Some(size) if self.wants_size() && now_ms >= self.size.due_ms => Purpose::Resize(size),
            _ => return,
        };
        match EngineCall::begin(&self.session.engine, &self.session.exec, purpose) {
            Ok(call) => self.call = Some(call),
            Err(_) => self.failed(purpose),
        }
    }

    /// Handles the user's hang-up: the command is asked to end, and killed if it does not.
    fn hang_up(&mut self) {
        if self.kill_at_ms.is_none() {
            self.kill_at_ms = Some(boottime_ms() + EXEC_HANGUP_INSIDE_MS);
            self.input.close();
            self.signal(Signal::HUP);
        }
    }

    /// Signals the command, now or once its process is known.
    fn signal(&mut self, signal: Signal) {
        match &self.process {
            Process::Unknown => {
                self.pending_signals.push(signal);
                self.queries.trigger();
            }
            Process::Runs(inside) => {
                inside.signal(signal);
                // A stopped process acts on no other signal.
                inside.signal(Signal::CONT);
            }
            Process::Ended => {}
        }
    }

    fn handle_signals(&mut self) -> io::Result<()> {
        while let Some(signal) = sys::next_signal(self.signals.as_fd())? {
            match signal {
                libc::SIGWINCH => self.size.changed(),
                libc::SIGHUP => self.signal(Signal::HUP),
                _ => self.hang_up(),
            }
        }
        Ok(())
    }

    fn read_stream(&mut self) -> Result<(), ContainerExecError> {
        if self.output.blocked().is_some() {
            return Ok(());
        }
        let Some(stream) = &mut self.stream else {
            return Ok(());
        };
        let is_open = match stream.read() {
            Ok(is_open) => is_open,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
            Err(error) if !self.has_begun => {
                let operation = "starting the command";
                return Err(not_started(EngineError::broken(operation)(error)));
            }
            Err(_) => false,
        };
        match stream.status_so_far() {
            Some(101 | 200) if !self.has_begun => {
                self.has_begun = true;
                self.queries.trigger();
            }
            Some(101 | 200) => {}
            Some(_) if !is_open => return Err(refusal(stream)),
            Some(_) | None => return Ok(()),
        }
        self.received_ms = boottime_ms();
        self.output.push(&stream.take());
        if !is_open {
            self.stream = None;
            self.queries.trigger();
        }
        Ok(())
    }

    fn read_input(&mut self) {
        // A terminal's end of file means that its user is gone.
        if self.has_begun && self.input.read() && self.session.is_terminal {
            self.hang_up();
        }
    }

    fn check_process(&mut self) {
        let Process::Runs(inside) = &self.process else {
            return;
        };
        if inside.has_ended() {
            self.process = Process::Ended;
            self.queries.trigger();
        }
    }

    fn finish_call(&mut self) -> Result<(), ContainerExecError> {
        let Some(outcome) = self.call.as_mut().and_then(EngineCall::take_outcome) else {
            return Ok(());
        };
        self.call = None;
        match outcome {
            CallOutcome::State(state) => self.note(state),
            // It was killed with its container.
            CallOutcome::Gone if !self.session.first.is_alive() => self.has_ended(KILLED),
            CallOutcome::Gone => return Err(lost("the engine no longer knows it")),
            CallOutcome::Resized(size) => self.size.mark_resized(size, boottime_ms()),
            CallOutcome::Failed(purpose) => self.failed(purpose),
        }
        Ok(())
    }

    /// Gives up on a command without a stream if its engine does not come back.
    fn require_engine(&self) -> Result<(), ContainerExecError> {
        let away_ms = self
            .queries
            .failing_since_ms
            .map(|since_ms| boottime_ms() - since_ms);
        if self.stream.is_none() && away_ms.is_some_and(|it| it >= ENGINE_AWAY_MS_MAX) {
            if let Process::Runs(inside) = &self.process {
                inside.signal(Signal::KILL);
            }
            return Err(lost("the container engine is unreachable"));
        }
        Ok(())
    }

    /// Applies the state that the engine reports.
    fn note(&mut self, state: ExecState) {
        let now_ms = boottime_ms();
        self.queries.failing_since_ms = None;
        self.queries.done(now_ms);
        let pid = state.pid.filter(|_| state.running).unwrap_or_default();
        if pid > 0 && matches!(self.process, Process::Unknown) {
            if let Some(inside) = ExecProcess::of(pid, &self.session.first) {
                self.process = Process::Runs(inside);
                for signal in std::mem::take(&mut self.pending_signals) {
                    self.signal(signal);
                }
            }
            return;
        }
        let is_credible = self.stream.is_none()
            || matches!(self.process, Process::Ended)
            || self.queries.count >= END_QUERIES;
        let is_over = is_credible && !state.running && !self.is_doubtful(state, now_ms);
        if let Some(code) = state.exit_code.filter(|_| is_over) {
            self.has_ended(code);
        }
    }

    /// Whether the exit code may be wrong. Podman takes a command as ended once it cannot resize its
    /// terminal; it then corrects the exit code, and clears the process id, when it reads the code, before it
    /// ends the stream.
    fn is_doubtful(&self, state: ExecState, now_ms: u64) -> bool {
        let is_bare = state.exit_code == Some(0) && state.pid.is_some_and(|pid| pid > 0);
        is_bare && self.stream.is_some() && now_ms < self.size.doubt_until_ms
    }

    fn has_ended(&mut self, code: i32) {
        self.code = Some(code);
        self.received_ms = boottime_ms();
    }

    fn failed(&mut self, purpose: Purpose) {
        let now_ms = boottime_ms();
        match purpose {
            Purpose::Query => {
                self.queries.done(now_ms);
                self.queries.failing_since_ms.get_or_insert(now_ms);
            }
            Purpose::Resize(_) => self.size.failed(now_ms),
        }
    }
}

/// The engine's refusal to start a command.
fn refusal(stream: &mut Exchange) -> ContainerExecError {
    let operation = "starting the command";
    match stream.finished() {
        Ok(Some(reply)) => match granted(operation, reply) {
            Err(error) => not_started(error),
            Ok(reply) => not_started(format!("the engine answered {}", reply.status)),
        },
        Ok(None) => not_started("the engine gave no reason"),
        Err(error) => not_started(EngineError::broken(operation)(error)),
    }
}

fn lost(why: impl std::fmt::Display) -> ContainerExecError {
    ContainerExecError::Lost(why.to_string())
}
