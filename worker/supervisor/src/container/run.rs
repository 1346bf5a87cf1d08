//! The runner: runs one container from its creation to its removal, and exits the same way.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::process::ExitCode;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::Signal;
use serde::Deserialize;

use crate::container::engine::{Engine, EngineError};
use crate::container::exit::{FAILED, end_like};
use crate::container::frames::Frames;
use crate::container::http::Exchange;
use crate::container::pipes::{own, span};
use crate::container::plan::Plan;
use crate::container::record::{ContainerEnd, ContainerRecord};
use crate::container::sources::Sources;
use crate::container::task::{RunError, Task, during};
use crate::container::{PAUSE_SIGNAL, RESUME_SIGNAL};
use crate::isolation::cgroup::MemoryWatch;
use crate::lease::clock::boottime_ms;
use crate::output::log_error;
use crate::output::segments::OutputStream;
use crate::process::ProcessIdentity;
use crate::sys;
use crate::task::directory::TaskDirectory;

/// Pause between two attempts to reach an engine that went away, in milliseconds.
const ENGINE_RETRY_MS: u64 = 1_000;
/// How long to wait for an engine that went away to report how a container ended, in milliseconds.
const ENGINE_AWAY_MS_MAX: u64 = 60_000;
/// How long to wait for the rest of a container's output once it has ended, in milliseconds.
const OUTPUT_DRAIN_MS_MAX: u64 = 5_000;
const MS_PER_SECOND: u64 = 1_000;

/// Provides the image of a task's container on the host.
pub(super) fn prepare(directory: &TaskDirectory) -> ExitCode {
    let prepared = Task::read(directory).and_then(|task| task.image(directory));
    match prepared {
        Ok(_) => ExitCode::SUCCESS,
        Err(error) => give_up(directory, &error),
    }
}

/// Runs a task's container with this environment.
pub(super) fn run(directory: &TaskDirectory, environment: BTreeMap<String, String>) -> ExitCode {
    let ended = start(directory, environment).and_then(Runner::run_to_end);
    match ended {
        Ok(code) => end_like(code),
        Err(error) => {
            // Despite the error, the engine may have started the container.
            super::remove(directory);
            give_up(directory, &error)
        }
    }
}

/// Records why it did not work.
fn give_up(directory: &TaskDirectory, error: &RunError) -> ExitCode {
    log_error(&error.to_string());
    let end = ContainerEnd {
        start_error: Some(error.to_string()),
        ..ContainerEnd::default()
    };
    if let Err(error) = end.write(directory) {
        log_error(&format!("recording the reason failed: {error}"));
    }
    ExitCode::from(FAILED)
}

/// Creates and starts the container. Until it is created, signals end this process: nothing is left behind.
fn start(
    directory: &TaskDirectory,
    environment: BTreeMap<String, String>,
) -> Result<Runner<'_>, RunError> {
    let task = Task::read(directory)?;
    let image = task.image(directory)?;
    let is_podman = task.engine.identify()?.is_podman;
    task.give_folders(directory);
    let mut plan = Plan::new(&task, directory, image, environment);
    if let Some(cgroup) = task.spec.cgroups().first()
        && task.engine.takes_cgroup_paths()?
    {
        plan.cgroup_parent = crate::isolation::cgroup::below_mount(cgroup);
    }
    let end = ContainerEnd {
        is_below_ours: plan.cgroup_parent.is_some(),
        ..ContainerEnd::default()
    };
    if end.is_below_ours {
        // Written now, because a killed runner writes nothing.
        let written = end.write(directory);
        written.map_err(during("writing container-end.json"))?;
    }
    let sources = Sources::settle(&task.spec, &mut plan.mounts)?;
    let (target, name, body) = plan.request(is_podman);
    let signals = sys::take_signals(blocked_signals()).map_err(during("blocking signals"))?;
    let mut record = ContainerRecord {
        socket: task.access.socket.clone(),
        name,
        worker: task.access.worker.clone(),
        init: None,
    };
    let written = || during("writing container.json");
    record.write(directory).map_err(written())?;
    let id = task.engine.create(&target, &body)?;
    let mut memory = MemoryWatch::default();
    memory.add(&task.spec.cgroups());
    // Attached before the start, to get the output from the first byte on.
    let attach = task.engine.attach(&id)?;
    sources.check()?;
    let init = begin(&task.engine, &id)?;
    if let Some(init) = &init {
        memory.add_that_of(init.pid);
    }
    record.init = init;
    record.write(directory).map_err(written())?;
    let started = Started {
        engine: task.engine,
        id,
        attach,
        init,
    };
    Runner::new(started, directory, end, memory, signals)
}

/// Starts the container; returns its first process.
fn begin(engine: &Engine, id: &str) -> Result<Option<ProcessIdentity>, EngineError> {
    engine.start(id)?;
    let pid = engine.inspect(id)?.and_then(|state| state.pid);
    Ok(pid.and_then(ProcessIdentity::of))
}

/// Removes a container that has ended.
fn discard(engine: &Engine, id: &str, directory: &TaskDirectory) {
    let removed = engine.remove(id).map_err(|error| error.to_string());
    let forgotten = || {
        ContainerRecord::forget(directory).map_err(|error| format!("removing its record: {error}"))
    };
    if let Err(error) = removed.and_then(|()| forgotten()) {
        // It does not run; the agent removes what is left of it.
        log_error(&error);
    }
}

/// Blocked signals: those that are forwarded, and those by which the supervisor makes requests.
fn blocked_signals() -> impl Iterator<Item = i32> {
    forwarded_signals().chain([PAUSE_SIGNAL, RESUME_SIGNAL].map(Signal::as_raw))
}

/// Signals that are forwarded: all that carry a request and are not generated by the kernel.
fn forwarded_signals() -> impl Iterator<Item = i32> {
    let own = [
        libc::SIGKILL,
        libc::SIGSTOP,
        libc::SIGCONT,
        libc::SIGCHLD,
        libc::SIGTSTP,
        libc::SIGTTIN,
        libc::SIGTTOU,
        libc::SIGSEGV,
        libc::SIGBUS,
        libc::SIGFPE,
        libc::SIGILL,
        libc::SIGTRAP,
        libc::SIGABRT,
        libc::SIGSYS,
        libc::SIGPIPE,
        libc::SIGURG,
        libc::SIGWINCH,
    ];
    let all = (1..libc::SIGRTMIN()).chain(libc::SIGRTMIN()..=libc::SIGRTMAX());
    // The two below the real-time signals belong to the C library.
    all.filter(move |signal| !own.contains(signal) && !(32..libc::SIGRTMIN()).contains(signal))
}

/// A container that was just started.
struct Started {
    engine: Engine,
    /// The engine's id for it.
    id: String,
    /// Stream of its output.
    attach: Exchange,
    /// Its first process, if it was still alive when it was looked up.
    init: Option<ProcessIdentity>,
}

/// A running container and its observed state.
struct Runner<'a> {
    engine: Engine,
    id: String,
    directory: &'a TaskDirectory,
    signals: OwnedFd,
    pause: ContainerPause,
    /// Standard output and standard error of this process.
    pipes: [OwnedFd; 2],
    /// Stream of its output, until it ends.
    attach: Option<Exchange>,
    frames: Frames,
    /// The stream that blocks at the moment.
    blocked: Option<OutputStream>,
    /// Pending answer about its end, unless the engine went away.
    wait: Option<Exchange>,
    /// Last attempt to reach an engine that went away, in `CLOCK_BOOTTIME` milliseconds like all times here.
    polled_at_ms: u64,
    init: Option<ProcessIdentity>,
    /// Since when the engine is away and the container's first process is dead.
    orphaned_at_ms: Option<u64>,
    /// Exit code, and until when to wait for the rest of its output.
    ended: Option<(i32, u64)>,
    /// End details that this process's exit status cannot carry.
    end: ContainerEnd,
    /// Not every engine reports an out-of-memory kill: some releases of podman never do.
    memory: MemoryWatch,
}

/// Requested and actual pause state of a container.
#[derive(Debug)]
struct ContainerPause {
    /// Whether it is to be paused.
    requested: bool,
    /// Whether it is paused; `None` if unknown.
    actual: Option<bool>,
    /// Earliest next attempt; 0 if none was made yet.
    due_ms: u64,
}

impl Default for ContainerPause {
    /// A container that is not paused.
    fn default() -> Self {
        Self {
            requested: false,
            actual: Some(false),
            due_ms: 0,
        }
    }
}

impl ContainerPause {
    fn ask(&mut self, still: bool) {
        if self.requested != still {
            self.requested = still;
            self.due_ms = 0;
        }
    }

    fn is_held(&self) -> bool {
        self.actual == Some(self.requested)
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct WaitAnswer {
    status_code: i32,
}

impl<'a> Runner<'a> {
    fn new(
        started: Started,
        directory: &'a TaskDirectory,
        end: ContainerEnd,
        memory: MemoryWatch,
        signals: OwnedFd,
    ) -> Result<Self, RunError> {
        let Started {
            engine,
            id,
            mut attach,
            init,
        } = started;
        let pipes = [own(io::stdout().as_fd()), own(io::stderr().as_fd())];
        let [stdout, stderr] = pipes.map(|pipe| pipe.map_err(during("setting up the output")));
        attach.never_wait().map_err(during("reading the output"))?;
        let mut runner = Self {
            engine,
            id,
            directory,
            signals,
            pause: ContainerPause::default(),
            pipes: [stdout?, stderr?],
            attach: Some(attach),
            frames: Frames::default(),
            blocked: None,
            wait: None,
            polled_at_ms: 0,
            init,
            orphaned_at_ms: None,
            ended: None,
            end,
            memory,
        };
        runner.wait = runner.begin_to_wait();
        Ok(runner)
    }

    /// Copies output and forwards signals until the container has ended; returns its shell exit code.
    fn run_to_end(mut self) -> Result<i32, RunError> {
        let code = loop {
            self.copy()?;
            match self.ended {
                Some((code, _)) if self.attach.is_none() && self.blocked.is_none() => break code,
                Some((code, until)) if boottime_ms() >= until => break code,
                _ => {}
            }
            self.sleep()?;
            self.memory.check();
            self.handle_signals()?;
            self.update_pause();
            self.copy_output();
            self.check_end();
            if self.wait.is_none() && self.ended.is_none() && self.poll_is_due() {
                self.find_again()?;
            }
        };
        let state = self.engine.inspect(&self.id);
        let is_reported = state.is_ok_and(|it| it.is_some_and(|it| it.out_of_memory));
        self.end.out_of_memory = is_reported || self.memory.has_run_out();
        discard(&self.engine, &self.id, self.directory);
        if self.end.out_of_memory {
            self.end
                .write(self.directory)
                .map_err(during("recording that it ran out of memory"))?;
        }
        Ok(code)
    }

    fn copy(&mut self) -> Result<(), RunError> {
        let pipes = &self.pipes;
        let write = |stream, bytes: &[u8]| {
            rustix::io::write(pipe_of(pipes, stream), bytes).map_err(io::Error::from)
        };
        self.blocked = self
            .frames
            .write(write)
            .map_err(during("copying the output"))?;
        Ok(())
    }

    /// Sleeps until a source has something, or an action is due.
    fn sleep(&self) -> Result<(), RunError> {
        let mut polled = vec![PollFd::new(&self.signals, PollFlags::IN)];
        match self.blocked {
            Some(stream) => {
                let pipe = pipe_of(&self.pipes, stream);
                polled.push(PollFd::new(pipe, PollFlags::OUT));
            }
            None => {
                let attach = self.attach.iter();
                polled.extend(attach.map(|it| PollFd::from_borrowed_fd(it.as_fd(), PollFlags::IN)));
            }
        }
        polled.extend(self.memory.polled());
        let wait = self.wait.iter();
        polled.extend(wait.map(|it| PollFd::from_borrowed_fd(it.as_fd(), PollFlags::IN)));
        let timeout_ms = match (&self.ended, &self.wait) {
            (Some((_, until)), _) => Some(until.saturating_sub(boottime_ms())),
            (None, None) => Some(ENGINE_RETRY_MS),
            (None, Some(_)) if !self.pause.is_held() => Some(ENGINE_RETRY_MS),
            (None, Some(_)) => None,
        };
        let timeout = timeout_ms.map(span);
        match poll(&mut polled, timeout.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(during("polling")(error.into())),
        }
    }

    /// Forwards signals, and handles those for this process.
    fn handle_signals(&mut self) -> Result<(), RunError> {
        let mut forwarded = Vec::new();
        while let Some(signal) =
            sys::next_signal(self.signals.as_fd()).map_err(during("reading signals"))?
        {
            if signal == PAUSE_SIGNAL.as_raw() {
                self.pause.ask(true);
            } else if signal == RESUME_SIGNAL.as_raw() {
                self.pause.ask(false);
            } else {
                forwarded.push(signal);
            }
        }
        // A paused container handles no signal: it is resumed before the others are forwarded.
        self.update_pause();
        for signal in forwarded {
            if let Err(error) = self.engine.signal(&self.id, signal) {
                log_error(&error.to_string());
            }
        }
        Ok(())
    }

    /// Applies the last requested pause state. A failure is retried after a pause, and logged once.
    fn update_pause(&mut self) {
        let now_ms = boottime_ms();
        if self.ended.is_some() || self.pause.is_held() || now_ms < self.pause.due_ms {
            return;
        }
        let is_first = self.pause.due_ms == 0;
        self.pause.due_ms = now_ms + ENGINE_RETRY_MS;
        match self.engine.set_paused(&self.id, self.pause.requested) {
            Ok(()) => self.pause.actual = Some(self.pause.requested),
            Err(error) => {
                // The request may have succeeded despite the error.
                self.pause.actual = None;
                if is_first {
                    log_error(&error.to_string());
                }
            }
        }
    }

    fn copy_output(&mut self) {
        if self.blocked.is_some() {
            return;
        }
        let Some(attach) = &mut self.attach else {
            return;
        };
        let is_open = match attach.read() {
            Ok(is_open) => is_open,
            Err(error) => error.kind() == io::ErrorKind::WouldBlock,
        };
        self.frames.push(&attach.take());
        if !is_open {
            self.attach = None;
        }
    }

    fn check_end(&mut self) {
        let Some(wait) = &mut self.wait else {
            return;
        };
        match wait.read() {
            Ok(true) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Ok(false) => {
                let answer: Option<WaitAnswer> = serde_json::from_slice(&wait.take()).ok();
                self.wait = None;
                // A malformed answer is requested again.
                if let Some(answer) = answer {
                    self.has_ended(answer.status_code);
                }
            }
            Err(_) => self.wait = None,
        }
    }

    fn has_ended(&mut self, code: i32) {
        if code >= 0 {
            self.ended = Some((code, boottime_ms() + OUTPUT_DRAIN_MS_MAX));
        }
    }

    /// Queries an engine that went away for the state of the container. While the container's first process
    /// lives, the engine may stay away: the container continues without it.
    fn find_again(&mut self) -> Result<(), RunError> {
        match self.engine.inspect(&self.id) {
            Ok(None) => Err(RunError::Lost("it was removed by someone else".to_owned())),
            Ok(Some(state)) if state.is_running => {
                log_error("the container engine was unreachable; output may be missing here");
                self.orphaned_at_ms = None;
                self.attach = self.engine.attach(&self.id).ok();
                self.attach
                    .iter_mut()
                    .try_for_each(Exchange::never_wait)
                    .map_err(during("reading the output"))?;
                self.wait = self.begin_to_wait();
                Ok(())
            }
            Ok(Some(state)) if state.exit_code >= 0 => {
                self.has_ended(state.exit_code);
                Ok(())
            }
            Ok(Some(_)) => Err(RunError::Lost(
                "the engine does not know the exit code".to_owned(),
            )),
            Err(error) => self.miss_engine(&error),
        }
    }

    fn poll_is_due(&mut self) -> bool {
        let now_ms = boottime_ms();
        let is_due = now_ms >= self.polled_at_ms + ENGINE_RETRY_MS;
        if is_due {
            self.polled_at_ms = now_ms;
        }
        is_due
    }

    fn miss_engine(&mut self, error: &EngineError) -> Result<(), RunError> {
        let lives = self.init.is_some_and(|init| init.is_alive());
        if lives {
            self.orphaned_at_ms = None;
            return Ok(());
        }
        let since_ms = *self.orphaned_at_ms.get_or_insert_with(boottime_ms);
        if boottime_ms() < since_ms + ENGINE_AWAY_MS_MAX {
            return Ok(());
        }
        let away = ENGINE_AWAY_MS_MAX / MS_PER_SECOND;
        Err(RunError::Lost(format!(
            "ended, but the engine has not reported the exit code for {away} s: {error}"
        )))
    }

    /// `None` if the engine went away: it is tried again.
    fn begin_to_wait(&self) -> Option<Exchange> {
        let mut wait = self.engine.wait(&self.id).ok()?;
        wait.never_wait().ok()?;
        Some(wait)
    }
}

fn pipe_of([stdout, stderr]: &[OwnedFd; 2], stream: OutputStream) -> &OwnedFd {
    match stream {
        OutputStream::Stdout => stdout,
        OutputStream::Stderr => stderr,
    }
}
