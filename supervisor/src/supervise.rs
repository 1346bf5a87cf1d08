//! A supervisor's life: claim, start, watch, bury.

use std::io;
use std::os::fd::AsFd;

use muster_core::beat::CheckpointReport;
use muster_core::command::Exit;
use muster_core::time::MonotonicMs;
use rustix::process::{WaitStatus, getpid, set_child_subreaper, setsid};

use crate::checkpoint_folder::CheckpointFolder;
use crate::checkpoints::{CheckpointKeeper, CheckpointNews};
use crate::clock::{LeaseClock, wall_clock};
use crate::connections::{Connections, Incoming};
use crate::directory::{ExitRecord, TaskDirectory};
use crate::family::{self, Family};
use crate::flag::FlagFile;
use crate::hold::Prepared;
use crate::lease::{Lease, Verdict};
use crate::limits::{
    EXIT_RECORD_MS_MAX, KILL_RETRY, LEASE_TICK, PREEMPT_FLAG_MS_MAX, QUICK_TASK_MS_MAX,
};
use crate::output::{Output, complain};
use crate::process::ProcessIdentity;
use crate::protocol::{AgentRequest, ControlAnswer, PreemptFlag, SupervisorMessage};
use crate::spec::{SPEC_FORMAT, TaskSpec};
use crate::sys;

/// How long a finished supervisor waits for its agent to read the last messages.
const FAREWELL_MS_MAX: u64 = 1_000;

/// What is polled beside the connections: the task's end, the keeper, the flag file and two pipes.
const OTHERS_MAX: usize = 5;

/// Why a supervisor gave up.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SuperviseError {
    /// The directory holds no task.
    #[error("there is no spec.json")]
    NoSpec,
    /// An agent of another version wrote the task.
    #[error("spec.json has format {found}, this program knows {SPEC_FORMAT}")]
    Format {
        /// What it has.
        found: u32,
    },
    /// An attempt is never started twice.
    #[error("claiming the attempt failed")]
    Claim(#[source] io::Error),
    /// The system refused something.
    #[error("{operation} failed: {source}")]
    System {
        /// What was tried.
        operation: &'static str,
        /// Why it failed.
        source: io::Error,
    },
}

/// Names the operation that failed.
fn during<E: Into<io::Error>>(operation: &'static str) -> impl FnOnce(E) -> SuperviseError {
    move |source| SuperviseError::System {
        operation,
        source: source.into(),
    }
}

/// Runs the task of a directory to its end.
pub(crate) fn supervise(directory: &TaskDirectory) -> Result<(), SuperviseError> {
    sys::close_inherited_files().map_err(during("closing inherited files"))?;
    let spec = directory
        .read_spec()
        .map_err(during("reading spec.json"))?
        .ok_or(SuperviseError::NoSpec)?;
    if spec.format != SPEC_FORMAT {
        return Err(SuperviseError::Format { found: spec.format });
    }
    // Fails if we lead a process group already (a shell started us), which serves as well.
    let _ = setsid();
    set_child_subreaper(Some(getpid())).map_err(during("becoming the task's subreaper"))?;
    let me = own_identity().map_err(during("reading /proc/self/stat"))?;
    directory.claim(me).map_err(SuperviseError::Claim)?;
    let epoch = spec.assignment.epoch.get();
    let connections = Connections::open(directory, epoch).map_err(during("opening the sockets"))?;
    let clock = LeaseClock::start();
    let lease = Lease::new(clock.at_boottime_ms(spec.deadline_boottime_ms));
    Supervisor {
        directory,
        spec: &spec,
        clock,
        lease,
        connections,
        suspended: false,
        prepared: None,
        started: None,
        checkpoint: None,
        flag: None,
        expired: false,
        broken: None,
    }
    .run()
}

fn own_identity() -> io::Result<ProcessIdentity> {
    ProcessIdentity::of(getpid().as_raw_nonzero().get())
        .ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))
}

/// All that a supervisor holds.
pub(crate) struct Supervisor<'task> {
    directory: &'task TaskDirectory,
    pub(crate) spec: &'task TaskSpec,
    pub(crate) clock: LeaseClock,
    pub(crate) lease: Lease,
    pub(crate) connections: Connections,
    /// Whether the task's processes should stand still.
    suspended: bool,
    /// Present while the task waits for its gang.
    pub(crate) prepared: Option<Prepared>,
    /// The task's main process, once it has outlived a quick task.
    started: Option<i32>,
    /// Newest checkpoint on record.
    checkpoint: Option<CheckpointReport>,
    /// The flag file that the task's signal to stop waits for.
    flag: Option<FlagFile>,
    /// True once the lease ran out on a living task.
    expired: bool,
    /// Why the task cannot be watched any more, in words for the user: it is killed, and counts as not started.
    broken: Option<String>,
}

/// A task that was started, and what watches it.
struct Watched {
    family: Family,
    output: Output,
    folder: CheckpointFolder,
    /// When [`Self::keeper`] is needed at the latest.
    keeper_due: MonotonicMs,
    keeper: Option<CheckpointKeeper>,
}

impl Supervisor<'_> {
    fn run(mut self) -> Result<(), SuperviseError> {
        match self.start() {
            Ok(watched) => {
                let exit = self.watch(watched)?;
                self.bury(exit)
            }
            Err(exit) => {
                family::end_all();
                self.bury(exit)
            }
        }
    }

    /// Starts the task unless its lease is over.
    fn start(&mut self) -> Result<Watched, Exit> {
        let folder = CheckpointFolder::prepare(self.spec);
        let now = self.clock.now();
        if self.lease.verdict(now) == Verdict::LeaseOver {
            return Err(Exit {
                lease_expired: true,
                ..not_started("the lease ran out before the start")
            });
        }
        let ready =
            Family::prepare(self.spec, self.directory).map_err(|error| not_started(&error))?;
        let assignment = &self.spec.assignment;
        let waits = assignment.barrier && !assignment.released;
        let started = if waits {
            let master_port = self.wait_for_gang().inspect_err(|_| ready.remove())?;
            let mut spec = self.spec.clone();
            spec.assignment.rank.master_port = master_port;
            ready.start(&spec, self.directory)
        } else {
            ready.start(self.spec, self.directory)
        };
        let (family, outputs) = started.map_err(|error| not_started(&error))?;
        let now = self.clock.now();
        Ok(Watched {
            family,
            output: Output::new(self.spec, outputs.stdout, outputs.stderr),
            folder,
            keeper_due: now.after(QUICK_TASK_MS_MAX),
            keeper: None,
        })
    }

    /// Watches the task until nothing of it lives.
    fn watch(&mut self, mut task: Watched) -> Result<Exit, SuperviseError> {
        let mut killing = false;
        while !task.family.reap() {
            let now = self.clock.now();
            let verdict = self.lease.verdict(now);
            let has_ended = task.family.status().is_some();
            self.expired |= verdict == Verdict::LeaseOver && !has_ended;
            // What outlives the main process is not the task; while it stops, it may be its clean-up.
            let orphaned = has_ended && !self.lease.is_stopping();
            killing |= orphaned || !matches!(verdict, Verdict::LivesUntil(_));
            killing |= self.broken.is_some();
            if killing {
                task.family.kill();
            } else if self.suspended {
                task.family.suspend();
            } else if self.flag.take_if(|flag| flag.is_settled(now)).is_some() {
                task.family.terminate();
            }
            if now >= task.keeper_due {
                self.keep(&mut task);
            }
            let timeout_ms = match verdict {
                Verdict::LivesUntil(then) if !killing && !has_ended => {
                    let flag = self.flag.as_ref().map(FlagFile::until);
                    let keeper = task.keeper.is_none().then_some(task.keeper_due);
                    let then = flag.into_iter().chain(keeper).fold(then, MonotonicMs::min);
                    then.since(now).clamp(1, milliseconds(LEASE_TICK))
                }
                _ => milliseconds(KILL_RETRY),
            };
            self.wait(&task, timeout_ms)?;
            self.receive(&mut task);
            self.news(&task);
            if let Err(error) = task.output.look() {
                self.broken = Some(format!("watching the task failed: {error}"));
            }
        }
        Ok(self.conclude(task))
    }

    /// Starts the keeper if there is none yet.
    fn keep(&mut self, task: &mut Watched) {
        if task.keeper.is_some() || self.broken.is_some() {
            return;
        }
        // None once it was collected: then it need not be found again.
        let process = ProcessIdentity::of(task.family.main());
        let folder = task.folder.clone();
        match CheckpointKeeper::start(self.spec, self.directory, folder, process) {
            Ok(keeper) => task.keeper = Some(keeper),
            Err(error) => self.broken = Some(format!("watching the task failed: {error}")),
        }
    }

    /// Collects what the task has left to say when nothing of it lives.
    fn conclude(&mut self, mut task: Watched) -> Exit {
        self.receive(&mut task);
        // Nobody need look at a folder that is empty.
        if task.keeper.is_none() && !task.folder.tidy() {
            self.keep(&mut task);
        }
        if let Some(keeper) = &task.keeper {
            let news = keeper.finish();
            self.publish(news, task.family.main());
        }
        task.output.finish();
        let exit = match &self.broken {
            Some(error) => not_started(error),
            None => Exit {
                out_of_memory: task.family.ran_out_of_memory(),
                ..exit_of(task.family.status(), self.expired)
            },
        };
        task.family.close();
        exit
    }

    fn wait(&self, task: &Watched, timeout_ms: u64) -> Result<(), SuperviseError> {
        let mut others: Vec<&dyn AsFd> = Vec::with_capacity(OTHERS_MAX);
        // The main process's end stays readable for ever: once seen, it must not wake us again.
        if task.family.status().is_none() {
            others.push(&task.family);
        }
        others.extend(task.keeper.iter().map(|keeper| keeper as &dyn AsFd));
        others.extend(self.flag.iter().map(|flag| flag as &dyn AsFd));
        others.extend(task.output.quiet().map(|pipe| pipe as &dyn AsFd));
        self.connections
            .wait(&others, timeout_ms)
            .map_err(during("polling"))
    }

    fn receive(&mut self, task: &mut Watched) {
        for incoming in self.connections.receive() {
            match incoming {
                Incoming::AgentConnected => self.tell_all(),
                Incoming::Agent(request) => self.obey(request, Some(&task.family)),
                Incoming::Commit(connection, report) => {
                    self.keep(task);
                    let refused = match &task.keeper {
                        Some(keeper) => keeper.commit(connection, report).err(),
                        None => Some(ControlAnswer::refused("the task cannot be watched")),
                    };
                    if let Some(answer) = refused {
                        self.connections.answer(connection, &answer);
                    }
                }
            }
        }
    }

    fn news(&mut self, task: &Watched) {
        if let Some(keeper) = &task.keeper {
            self.publish(keeper.news(), task.family.main());
        }
    }

    pub(crate) fn obey(&mut self, request: AgentRequest, family: Option<&Family>) {
        let now = self.clock.now();
        match request {
            AgentRequest::Extend {
                deadline_boottime_ms,
            } => {
                let deadline = self.clock.at_boottime_ms(deadline_boottime_ms);
                self.lease.extend(now, deadline);
            }
            AgentRequest::Stop { reason, grace_ms } => {
                // What stands still hears nothing.
                self.resume(family);
                // What has not begun need not be asked.
                if self.lease.stop(now, grace_ms)
                    && grace_ms > 0
                    && let Some(family) = family
                {
                    self.flag = self.raise_flag(reason, grace_ms);
                    if self.flag.is_none() {
                        family.terminate();
                    }
                }
            }
            // It has begun: told again by an agent that does not know.
            AgentRequest::Begin { .. } => {}
            AgentRequest::Suspend => self.suspended = !self.lease.is_stopping(),
            AgentRequest::Resume => self.resume(family),
            AgentRequest::Status => {
                let status = SupervisorMessage::Status {
                    deadline_boottime_ms: self.clock.to_boottime_ms(self.lease.deadline()),
                    stopping: self.lease.is_stopping(),
                    suspended: self.suspended,
                };
                self.connections.tell_agent(&status);
            }
        }
    }

    /// Lets the task's processes go on, if they stand still.
    fn resume(&mut self, family: Option<&Family>) {
        if std::mem::take(&mut self.suspended)
            && let Some(family) = family
        {
            family.resume();
        }
    }

    /// Begins to write the flag file. None if that cannot begin (to say so would touch the disk as well):
    /// then the signal alone must do.
    fn raise_flag(&self, reason: String, grace_ms: u64) -> Option<FlagFile> {
        let flag = PreemptFlag {
            reason,
            deadline_unix_ms: wall_clock().after(grace_ms).0,
            grace_ms,
        };
        let path = self.directory.control().join("preempt");
        let until = self
            .clock
            .now()
            .after(PREEMPT_FLAG_MS_MAX.min(grace_ms / 2));
        FlagFile::start(path, flag, until).ok()
    }

    fn publish(&mut self, news: Vec<CheckpointNews>, main: i32) {
        for item in news {
            match item {
                CheckpointNews::Watched => {
                    self.started = Some(main);
                    self.connections
                        .tell_agent(&SupervisorMessage::Started { pid: main });
                }
                CheckpointNews::Committed(report) => {
                    self.connections
                        .tell_agent(&SupervisorMessage::Checkpoint(report.clone()));
                    self.checkpoint = Some(report);
                }
                CheckpointNews::Answer(connection, answer) => {
                    self.connections.answer(connection, &answer);
                }
            }
        }
    }

    /// Says all that is known.
    pub(crate) fn tell_all(&mut self) {
        if let Some(message) = self.prepared.as_ref().map(Prepared::message) {
            self.connections.tell_agent(&message);
        }
        if let Some(pid) = self.started {
            self.connections
                .tell_agent(&SupervisorMessage::Started { pid });
        }
        if let Some(report) = self.checkpoint.clone() {
            self.connections
                .tell_agent(&SupervisorMessage::Checkpoint(report));
        }
    }

    /// Records the end, says it, and goes.
    fn bury(&mut self, exit: Exit) -> Result<(), SuperviseError> {
        let record = ExitRecord {
            exit: exit.clone(),
            ended_at: wall_clock(),
        };
        self.record_exit(&record)?;
        self.connections
            .tell_agent(&SupervisorMessage::Exited(exit));
        let until = self.clock.now().after(FAREWELL_MS_MAX);
        while self.connections.agent_has_output() && self.clock.now() < until {
            self.connections
                .wait(&[], milliseconds(KILL_RETRY))
                .map_err(during("polling"))?;
        }
        Ok(())
    }
}

impl Supervisor<'_> {
    /// Writes the end down. An agent that hears of it keeps it in its journal: with one, a full disk is only
    /// complained of; without one, it is tried again until one comes or the disk has room.
    fn record_exit(&mut self, record: &ExitRecord) -> Result<(), SuperviseError> {
        let until = self.clock.now().after(EXIT_RECORD_MS_MAX);
        loop {
            let has_agent = self.connections.has_agent();
            let Err(error) = self.directory.record_exit(record, !has_agent) else {
                return Ok(());
            };
            if has_agent {
                complain(&format!("writing exit.json failed: {error}"));
                return Ok(());
            }
            if self.clock.now() >= until {
                return Err(during("writing exit.json")(error));
            }
            self.connections
                .wait(&[], milliseconds(LEASE_TICK))
                .map_err(during("polling"))?;
            // Nothing is left to be asked for: who connects is told the end.
            self.connections.receive();
        }
    }
}

pub(crate) fn milliseconds(duration: std::time::Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

fn exit_of(status: Option<WaitStatus>, lease_expired: bool) -> Exit {
    Exit {
        code: status.and_then(WaitStatus::exit_status),
        signal: status.and_then(WaitStatus::terminating_signal),
        out_of_memory: false,
        lease_expired,
        start_error: None,
        ..Exit::default()
    }
}

pub(crate) fn not_started(error: &str) -> Exit {
    Exit {
        code: None,
        signal: None,
        out_of_memory: false,
        lease_expired: false,
        start_error: Some(error.to_owned()),
        ..Exit::default()
    }
}
