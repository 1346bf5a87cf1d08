//! A supervisor's life: claim, start, watch, bury.

use std::io;

use muster_core::beat::CheckpointReport;
use muster_core::command::Exit;
use rustix::process::{WaitStatus, getpid, set_child_subreaper, setsid};

use crate::checkpoints::{CheckpointKeeper, CheckpointNews};
use crate::clock::{LeaseClock, wall_clock};
use crate::connections::{Connections, Incoming};
use crate::directory::{ExitRecord, TaskDirectory};
use crate::family::{self, Family};
use crate::flag::FlagFile;
use crate::lease::{Lease, Verdict};
use crate::limits::{KILL_RETRY, LEASE_TICK, PREEMPT_FLAG_MS_MAX};
use crate::output::OutputPump;
use crate::process::ProcessIdentity;
use crate::protocol::{AgentRequest, PreemptFlag, SupervisorMessage};
use crate::spec::{SPEC_FORMAT, TaskSpec};
use crate::sys;
use crate::wake::Wake;

/// How long a finished supervisor waits for its agent to read the last messages.
const FAREWELL_MS_MAX: u64 = 1_000;

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
        started: None,
        checkpoint: None,
        flag: None,
        expired: false,
        unrecorded: None,
    }
    .run()
}

fn own_identity() -> io::Result<ProcessIdentity> {
    ProcessIdentity::of(getpid().as_raw_nonzero().get())
        .ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))
}

/// All that a supervisor holds.
struct Supervisor<'task> {
    directory: &'task TaskDirectory,
    spec: &'task TaskSpec,
    clock: LeaseClock,
    lease: Lease,
    connections: Connections,
    /// The task's main process, once it was started and is on record.
    started: Option<i32>,
    /// Newest checkpoint on record.
    checkpoint: Option<CheckpointReport>,
    /// The flag file that the task's signal to stop waits for.
    flag: Option<FlagFile>,
    /// True once the lease ran out on a living task.
    expired: bool,
    /// Why the task's process could not be put on record: an agent could not find it again.
    unrecorded: Option<io::Error>,
}

impl Supervisor<'_> {
    fn run(mut self) -> Result<(), SuperviseError> {
        match self.start() {
            Ok((family, pump, keeper)) => {
                let exit = self.watch(family, pump, &keeper)?;
                self.bury(exit)
            }
            Err(exit) => {
                family::end_all();
                self.bury(exit)
            }
        }
    }

    /// Starts the task unless its lease is over.
    fn start(&mut self) -> Result<(Family, OutputPump, CheckpointKeeper), Exit> {
        // The task may want it; if it cannot be made, the task will say so better than we can.
        drop(std::fs::create_dir_all(&self.spec.checkpoint_directory));
        if self.lease.verdict(self.clock.now()) == Verdict::LeaseOver {
            return Err(Exit {
                lease_expired: true,
                ..not_started("the lease ran out before the start")
            });
        }
        let (family, outputs) =
            Family::start(self.spec, self.directory).map_err(|error| not_started(&error))?;
        let threads =
            OutputPump::start(self.spec, outputs.stdout, outputs.stderr).and_then(|pump| {
                let process = ProcessIdentity::of(family.main()).ok_or(io::ErrorKind::NotFound)?;
                let wake = Wake::new()?;
                let keeper = CheckpointKeeper::start(self.spec, self.directory, process, wake)?;
                Ok((pump, keeper))
            });
        match threads {
            Ok((pump, keeper)) => Ok((family, pump, keeper)),
            Err(error) => {
                family.kill();
                Err(not_started(&format!("watching the task failed: {error}")))
            }
        }
    }

    /// Watches the task until nothing of it lives.
    fn watch(
        &mut self,
        mut family: Family,
        pump: OutputPump,
        keeper: &CheckpointKeeper,
    ) -> Result<Exit, SuperviseError> {
        let mut killing = false;
        while !family.reap() {
            let now = self.clock.now();
            let verdict = self.lease.verdict(now);
            self.expired |= verdict == Verdict::LeaseOver && family.status().is_none();
            // What outlives the main process is not the task; while it stops, it may be its clean-up.
            let orphaned = family.status().is_some() && !self.lease.is_stopping();
            killing |= orphaned || !matches!(verdict, Verdict::LivesUntil(_));
            killing |= self.unrecorded.is_some();
            if killing {
                family.kill();
            } else if self.flag.take_if(|flag| flag.is_settled(now)).is_some() {
                family.terminate();
            }
            let timeout_ms = match verdict {
                Verdict::LivesUntil(then) if !killing && family.status().is_none() => {
                    let then = self
                        .flag
                        .as_ref()
                        .map_or(then, |flag| then.min(flag.until()));
                    then.since(now).clamp(1, milliseconds(LEASE_TICK))
                }
                _ => milliseconds(KILL_RETRY),
            };
            self.wait(&family, keeper, timeout_ms)?;
            self.receive(Some(&family), keeper);
            self.publish(keeper.news(), family.main());
        }
        let exit = match &self.unrecorded {
            Some(error) => not_started(&format!("recording the task's process failed: {error}")),
            None => Exit {
                out_of_memory: family.ran_out_of_memory(),
                ..exit_of(family.status(), self.expired)
            },
        };
        pump.finish();
        self.receive(None, keeper);
        self.publish(keeper.finish(), family.main());
        family.close();
        Ok(exit)
    }

    fn wait(
        &self,
        family: &Family,
        keeper: &CheckpointKeeper,
        timeout_ms: u64,
    ) -> Result<(), SuperviseError> {
        // The main process's end stays readable for ever: once seen, it must not wake us again.
        let waited = if family.status().is_some() {
            self.connections.wait(&[keeper], timeout_ms)
        } else {
            self.connections.wait(&[keeper, family], timeout_ms)
        };
        waited.map_err(during("polling"))
    }

    fn receive(&mut self, family: Option<&Family>, keeper: &CheckpointKeeper) {
        for incoming in self.connections.receive() {
            match incoming {
                Incoming::AgentConnected => self.tell_all(),
                Incoming::Agent(request) => self.obey(request, family, keeper),
                Incoming::Commit(connection, report) => {
                    if let Err(answer) = keeper.commit(connection, report) {
                        self.connections.answer(connection, &answer);
                    }
                }
            }
        }
    }

    fn obey(&mut self, request: AgentRequest, family: Option<&Family>, keeper: &CheckpointKeeper) {
        let now = self.clock.now();
        match request {
            AgentRequest::Extend {
                deadline_boottime_ms,
            } => {
                let deadline = self.clock.at_boottime_ms(deadline_boottime_ms);
                self.lease.extend(now, deadline);
            }
            AgentRequest::Stop { reason, grace_ms } => {
                if self.lease.stop(now, grace_ms)
                    && let Some(family) = family.filter(|_| grace_ms > 0)
                {
                    self.flag = self.raise_flag(reason, grace_ms, keeper.wake());
                    if self.flag.is_none() {
                        family.terminate();
                    }
                }
            }
            AgentRequest::Status => {
                let status = SupervisorMessage::Status {
                    deadline_boottime_ms: self.clock.to_boottime_ms(self.lease.deadline()),
                    stopping: self.lease.is_stopping(),
                };
                self.connections.tell_agent(&status);
            }
        }
    }

    /// Begins to write the flag file. None if that cannot begin (to say so would touch the disk as well):
    /// then the signal alone must do.
    fn raise_flag(&self, reason: String, grace_ms: u64, wake: Wake) -> Option<FlagFile> {
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
        FlagFile::start(path, flag, wake, until).ok()
    }

    fn publish(&mut self, news: Vec<CheckpointNews>, main: i32) {
        for item in news {
            match item {
                CheckpointNews::ProcessRecorded(Ok(())) => {
                    self.started = Some(main);
                    self.connections
                        .tell_agent(&SupervisorMessage::Started { pid: main });
                }
                CheckpointNews::ProcessRecorded(Err(error)) => self.unrecorded = Some(error),
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
    fn tell_all(&mut self) {
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
        self.directory
            .record_exit(&record)
            .map_err(during("writing exit.json"))?;
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

fn milliseconds(duration: std::time::Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

fn exit_of(status: Option<WaitStatus>, lease_expired: bool) -> Exit {
    Exit {
        code: status.and_then(WaitStatus::exit_status),
        signal: status.and_then(WaitStatus::terminating_signal),
        out_of_memory: false,
        lease_expired,
        start_error: None,
    }
}

fn not_started(error: &str) -> Exit {
    Exit {
        code: None,
        signal: None,
        out_of_memory: false,
        lease_expired: false,
        start_error: Some(error.to_owned()),
    }
}
