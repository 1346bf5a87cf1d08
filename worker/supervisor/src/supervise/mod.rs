//! Life cycle of a supervisor: claim the attempt, start the task, watch it, record its exit.

pub(super) mod reuse;
pub mod server;

mod completion;
mod gang;
mod killing;
mod pause;
mod requests;
mod watch;

use std::io;

use muster_model::command::{EXIT_DO_NOT_RESTART, Exit};
use muster_model::time::MonotonicMs;
use rustix::process::WaitStatus;

use crate::checkpoint::checkpoint_folder::CheckpointFolder;
use crate::checkpoint::checkpoints::{CheckpointEvent, CheckpointKeeper};
use crate::exec::Execs;
use crate::isolation::cgroup::ReusableCgroups;
use crate::lease::alarm::LeaseAlarm;
use crate::lease::clock::LeaseClock;
use crate::lease::guard::GuardedState;
use crate::lease::{Lease, Verdict};
use crate::limits::{LAST_ROUNDS_MAX, QUICK_TASK_MS_MAX};
use crate::link::connections::{Connections, Incoming};
use crate::link::lines::LineStream;
use crate::link::protocol::{AgentRequest, SupervisorMessage};
use crate::output::{Output, evidence};
use crate::process::ProcessIdentity;
use crate::process::process_tree::{self, ProcessTree};
use crate::supervise::gang::Gang;
use crate::supervise::pause::PauseState;
use crate::supervise::reuse::SupervisorContext;
use crate::task::directory::TaskDirectory;
use crate::task::hold::Prepared;
use crate::task::ready::Ready;
use crate::task::spec::{SPEC_FORMAT, TaskSpec};
use crate::task::stopping::Stopping;
use crate::task::task_reports::TaskReports;

/// Why a supervisor gave up.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SuperviseError {
    /// The directory holds no task.
    #[error("there is no spec.json")]
    NoSpec,
    /// An agent of another version wrote the task.
    #[error("spec.json has format {found}; this program supports {SPEC_FORMAT} and older")]
    Format {
        /// Format of the file.
        found: u32,
    },
    /// An attempt is never started twice.
    #[error("claiming the attempt failed")]
    Claim(#[source] io::Error),
    /// A system call failed.
    #[error("{operation} failed: {source}")]
    System {
        /// Attempted operation.
        operation: &'static str,
        /// Cause.
        source: io::Error,
    },
}

/// Names the operation that failed.
pub(crate) fn during<E: Into<io::Error>>(
    operation: &'static str,
) -> impl FnOnce(E) -> SuperviseError {
    move |source| SuperviseError::System {
        operation,
        source: source.into(),
    }
}

/// Runs the task of a directory to its end. `context` has an agent afterwards if another task may follow.
pub(crate) fn supervise(
    directory: &TaskDirectory,
    context: &mut SupervisorContext,
) -> Result<(), SuperviseError> {
    let (pulse, agent, kept) = (context.pulse, context.agent.take(), context.cgroups.take());
    pulse.into_iter().for_each(GuardedState::begin);
    let spec = directory
        .read_spec()
        .map_err(during("reading spec.json"))?
        .ok_or(SuperviseError::NoSpec)?;
    if spec.format > SPEC_FORMAT {
        return Err(SuperviseError::Format { found: spec.format });
    }
    directory.claim(context.me).map_err(SuperviseError::Claim)?;
    let epoch = spec.assignment.epoch.get();
    let connections =
        Connections::open(directory, epoch, agent).map_err(during("opening the sockets"))?;
    let clock = LeaseClock::start();
    let deadline = clock.at_boottime_ms(spec.deadline_boottime_ms);
    let lease = Lease::new(deadline, spec.lease_warning_ms);
    let supervisor = Supervisor {
        directory,
        spec: &spec,
        clock,
        lease,
        alarm: LeaseAlarm::new(),
        pulse,
        connections,
        pause_state: PauseState::Running,
        gang: Gang::of(&spec),
        execs: Execs::default(),
        prepared: None,
        reports: TaskReports::default(),
        stopping: None,
        has_saved: false,
        is_asked_by_lease: false,
        expired: false,
        broken: None,
    };
    if let Some((agent, cgroups)) = supervisor.run(kept, context.may_go_on)? {
        (context.agent, context.cgroups) = (Some(agent), cgroups);
    }
    Ok(())
}

/// State of a supervisor with a task.
pub(crate) struct Supervisor<'task> {
    pub(crate) directory: &'task TaskDirectory,
    pub(crate) spec: &'task TaskSpec,
    pub(crate) clock: LeaseClock,
    pub(crate) lease: Lease,
    alarm: Option<LeaseAlarm>,
    pub(crate) pulse: Option<GuardedState>,
    pub(crate) connections: Connections,
    pause_state: PauseState,
    /// Present while the task waits for its gang.
    pub(crate) prepared: Option<Prepared>,
    gang: Gang,
    /// Exec sessions of the task.
    execs: Execs,
    reports: TaskReports,
    /// The stop request in progress, once there is one.
    stopping: Option<Stopping>,
    /// True once the task reported that it will have nothing more to save.
    has_saved: bool,
    /// True if it was asked to stop because its lease was about to end.
    is_asked_by_lease: bool,
    /// True once the lease expired while the task was alive.
    expired: bool,
    /// Why the task can no longer be watched, as a message for the user: it is killed, and counts as not
    /// started.
    broken: Option<String>,
}

/// A started task with its watchers.
struct Watched {
    tree: ProcessTree,
    output: Output,
    folder: CheckpointFolder,
    /// When [`Self::keeper`] must be started at the latest.
    keeper_due: MonotonicMs,
    keeper: Option<CheckpointKeeper>,
}

impl Supervisor<'_> {
    /// Returns the connection to the agent on which this process waits for another task, if it may have one,
    /// and the cgroups kept for it.
    fn run(
        mut self,
        kept: Option<ReusableCgroups>,
        may_go_on: bool,
    ) -> Result<Option<(LineStream, Option<ReusableCgroups>)>, SuperviseError> {
        let (exit, tree) = match self.start(kept) {
            Ok(watched) => self.watch(watched)?,
            Err(exit) => {
                process_tree::end_all();
                (exit, None)
            }
        };
        // Done before the agent is notified of the end and removes what it finds.
        let cgroups = tree.map(|tree| tree.close(may_go_on));
        self.clear_guard();
        let kept = cgroups.as_ref().map(Option::is_some);
        let is_reused = self.complete(exit, kept.filter(|_| may_go_on))?;
        let agent = self.connections.close().filter(|_| is_reused);
        Ok(agent.zip(cgroups))
    }

    /// Notifies the guard that no process of the task is alive.
    fn clear_guard(&self) {
        if let Some(pulse) = self.pulse {
            pulse.task_ended();
        }
    }

    /// Starts the task unless its lease has expired.
    fn start(&mut self, kept: Option<ReusableCgroups>) -> Result<Watched, Exit> {
        let folder = CheckpointFolder::prepare(self.spec);
        let now = self.clock.now();
        if self.lease.verdict(now) == Verdict::LeaseOver {
            return Err(Exit {
                lease_expired: true,
                ..not_started("the lease expired before the start")
            });
        }
        let ready =
            Ready::prepare(self.spec, self.directory, kept).map_err(|error| not_started(&error))?;
        let assignment = &self.spec.assignment;
        let waits = assignment.barrier && !assignment.released;
        let mut spec = self.spec.clone();
        if waits {
            let master_port = match self.wait_for_gang() {
                Ok(master_port) => master_port,
                Err(exit) => {
                    ready.remove();
                    return Err(exit);
                }
            };
            spec.assignment.rank.master_port = master_port;
            self.gang.begin(master_port);
        }
        let started = ready.start(&spec, self.directory);
        let (tree, outputs) = started.map_err(|error| not_started(&error))?;
        self.execs.started(spec, &tree, self.directory);
        let now = self.clock.now();
        Ok(Watched {
            tree,
            output: Output::new(self.spec, outputs.stdout, outputs.stderr),
            folder,
            keeper_due: now.after(QUICK_TASK_MS_MAX),
            keeper: None,
        })
    }

    /// Starts the checkpoint thread if there is none yet.
    fn start_keeper(&mut self, task: &mut Watched) {
        if task.keeper.is_some() || self.broken.is_some() {
            return;
        }
        // `None` once it was reaped: then it need not be found again.
        let process = ProcessIdentity::of(task.tree.main());
        let folder = task.folder.clone();
        match CheckpointKeeper::start(self.spec, self.directory, folder, process) {
            Ok(keeper) => task.keeper = Some(keeper),
            Err(error) => self.broken = Some(format!("watching the task failed: {error}")),
        }
    }

    /// Collects the task's last reports once no process of it is alive. Returns its exit, and its resources
    /// if it left nothing in this process: no thread, no secret, nothing that differs from a fresh start.
    fn conclude(&mut self, mut task: Watched) -> (Exit, Option<ProcessTree>) {
        for _ in 0..LAST_ROUNDS_MAX {
            let last = self.connections.receive_now();
            self.handle(&mut task, last);
            if !self.connections.has_more() {
                break;
            }
        }
        // An empty folder needs no scan.
        if task.keeper.is_none() && !task.folder.tidy() {
            self.start_keeper(&mut task);
        }
        let mut has_settled = true;
        if let Some(keeper) = &task.keeper {
            has_settled = keeper.finish();
            self.publish(keeper.take_events(), task.tree.main());
        }
        let (last_output, has_drained) = task.output.finish();
        self.execs.finish();
        let was_plain = has_settled && has_drained && self.was_plain();
        let container = self.container_end();
        let mut exit = match self.broken.as_ref().or(container.start_error.as_ref()) {
            Some(error) => not_started(error),
            None => {
                let exit = exit_of(task.tree.status(), self.expired);
                task.tree.account(exit, &container)
            }
        };
        // The lease ended it, unless its exit code shows that it was done by itself.
        let by_itself = matches!(exit.code, Some(0 | EXIT_DO_NOT_RESTART));
        exit.lease_expired |= self.is_asked_by_lease && !by_itself && self.broken.is_none();
        // The kernel's evidence of a reached limit outranks output that it caused.
        if exit.evidence.is_empty() {
            exit.evidence = evidence::of_end(&exit, &last_output, &self.directory.error_file());
        }
        if was_plain {
            return (exit, Some(task.tree));
        }
        task.tree.close(false);
        (exit, None)
    }

    fn receive(&mut self, task: &mut Watched) {
        let all = self.connections.receive();
        self.handle(task, all);
    }

    fn handle(&mut self, task: &mut Watched, all: Vec<Incoming>) {
        for incoming in all {
            match incoming {
                Incoming::AgentConnected => self.send_state(),
                Incoming::Agent(request) => self.handle_agent_request(request),
                Incoming::Task(connection, request) => {
                    if let Some(answer) = self.handle_task_request(task, connection, request) {
                        self.connections.answer(connection, &answer);
                    }
                }
            }
        }
    }

    fn publish_checkpoints(&mut self, task: &Watched) {
        if let Some(keeper) = &task.keeper {
            self.publish(keeper.take_events(), task.tree.main());
        }
    }

    pub(crate) fn handle_agent_request(&mut self, request: AgentRequest) {
        let now = self.clock.now();
        match request {
            AgentRequest::Extend {
                deadline_boottime_ms,
            } => {
                let deadline = self.clock.at_boottime_ms(deadline_boottime_ms);
                self.lease.extend(now, deadline);
            }
            AgentRequest::Stop { reason, grace_ms } => {
                self.execs.terminate();
                self.ask_to_stop(reason, grace_ms);
            }
            // The task has begun: an agent that does not know repeats it.
            AgentRequest::Begin { .. } => {}
            AgentRequest::Renew(place) => self.renew(place),
            AgentRequest::Suspend if !self.lease.is_stopping() => {
                self.pause_state = PauseState::Paused
            }
            AgentRequest::Suspend => {}
            AgentRequest::Resume => self.pause_state.resume(),
            AgentRequest::OpenExec => self.execs.open(self.directory),
            // This supervisor has a task.
            AgentRequest::Next { .. } => {}
            AgentRequest::Status => {
                let status = SupervisorMessage::Status {
                    deadline_boottime_ms: self.clock.to_boottime_ms(self.lease.deadline()),
                    stopping: self.lease.is_stopping(),
                    suspended: self.pause_state == PauseState::Paused,
                };
                self.connections.send_to_agent(&status);
            }
        }
    }

    fn publish(&mut self, events: Vec<CheckpointEvent>, main: i32) {
        for event in events {
            match event {
                CheckpointEvent::Watched => {
                    self.reports.started = Some(main);
                    self.connections
                        .send_to_agent(&SupervisorMessage::Started { pid: main });
                }
                CheckpointEvent::Committed(report, finality) => {
                    self.connections
                        .send_to_agent(&SupervisorMessage::Checkpoint(report.clone()));
                    self.reports.checkpoints.add(report);
                    self.note_saved(finality);
                }
                CheckpointEvent::Damaged(report) => {
                    self.connections
                        .send_to_agent(&SupervisorMessage::Damaged(report.clone()));
                    self.reports.damaged.push(report);
                }
                CheckpointEvent::Answer(connection, answer) => {
                    self.connections.answer(connection, &answer);
                }
            }
        }
    }

    /// Sends the complete state.
    pub(crate) fn send_state(&mut self) {
        let prepared = self.prepared.as_ref().map(Prepared::message);
        for message in prepared.into_iter().chain(self.reports.messages()) {
            self.connections.send_to_agent(&message);
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
