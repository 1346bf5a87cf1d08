//! Supervisors and tasks of a simulated host: they outlive their agent, enforce the lease deadline
//! themselves, and report acquired and released GPUs to the checker.

mod task;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use muster_control::agent::{DiscoveredAttempt, SupervisorReport};
use muster_model::command::{Exit, NO_ACCOUNT};
use muster_model::desired::TaskAssignment;
use muster_model::heartbeat::WorkerTaskPhase;
use muster_model::ids::GpuUuid;
use muster_model::time::MonotonicMs;
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{Notify, mpsc};

pub use self::task::Behaviour;
use self::task::{Supervised, TaskChange};
use crate::checkers::{Owner, UnitAttempt};
use crate::sim::checkers::Checkers;
use crate::sim::clock::SimClock;
use crate::sim::faults::coverage::Situation;
use crate::sim::record::{Scene, SceneKind};
use crate::sim::runtime::current_node;

/// All supervisors of one host.
#[derive(Clone, Debug)]
pub struct Supervisors {
    inner: Arc<Mutex<Inner>>,
    changed: Arc<Notify>,
    clock: SimClock,
    /// Whether they measure leases by a clock that can be set (a mutant).
    by_wall: bool,
    checkers: Checkers,
}

#[derive(Debug, Default)]
struct Inner {
    tasks: BTreeMap<Owner, Supervised>,
    agent: Option<mpsc::Sender<(Owner, SupervisorReport)>>,
    /// Time since which the whole host is paused.
    frozen_at: Option<MonotonicMs>,
}

const fn owner_of(assignment: &TaskAssignment) -> Owner {
    Owner {
        key: assignment.key,
        epoch: assignment.epoch,
    }
}

/// The attempt that a task shares with the other members of its gang, including replacements.
const fn gang_of(assignment: &TaskAssignment) -> UnitAttempt {
    UnitAttempt {
        unit: assignment.unit,
        number: assignment.attempt,
    }
}

/// Scene about a task on its host.
fn scene_of(owner: Owner, what: &str, happened: impl std::fmt::Display) -> Scene {
    let Owner { key, epoch } = owner;
    let (job, task) = (key.job, key.task);
    let text = format!("{what} task {task} of job {job}, epoch {epoch}, {happened}");
    Scene::new(SceneKind::Task, text)
        .on(current_node())
        .about(Some(job))
}

impl Supervisors {
    /// Creates an empty set of supervisors.
    #[must_use]
    pub fn new(clock: SimClock, by_wall: bool, checkers: Checkers) -> Self {
        Self {
            inner: Arc::default(),
            changed: Arc::default(),
            clock,
            by_wall,
            checkers,
        }
    }

    fn now(&self) -> MonotonicMs {
        match self.by_wall {
            true => self.clock.monotonic_by_wall(),
            false => self.clock.monotonic(),
        }
    }

    /// Connects a new agent; an earlier one receives nothing more.
    pub fn attach(&self, agent: mpsc::Sender<(Owner, SupervisorReport)>) {
        let mut inner = self.lock();
        inner.agent = Some(agent);
        let stuck = inner.tasks.iter().filter(|(_, task)| task.is_stuck());
        let stuck: Vec<Owner> = stuck.map(|(owner, _)| *owner).collect();
        drop(inner);
        stuck.into_iter().for_each(|owner| self.report_stuck(owner));
    }

    /// GPUs of tasks that cannot be killed.
    #[must_use]
    pub fn held_gpus(&self) -> Vec<GpuUuid> {
        let inner = self.lock();
        let stuck = inner.tasks.values().filter(|task| task.is_stuck());
        stuck
            .flat_map(|task| task.assignment.gpus.iter().copied())
            .collect()
    }

    fn report_stuck(&self, owner: Owner) {
        let (detail, exit) = ("it hangs in the kernel".to_owned(), None);
        self.report(owner, SupervisorReport::Stuck { detail, exit });
    }

    /// State of each supervisor as found by a starting agent, in order.
    #[must_use]
    pub fn found(&self) -> Vec<DiscoveredAttempt> {
        let say = |(owner, task): (&Owner, &Supervised)| DiscoveredAttempt {
            key: owner.key,
            epoch: owner.epoch,
            phase: match &task.exit {
                Some(exit) => WorkerTaskPhase::Exited(exit.clone()),
                None if task.hang.is_some() => WorkerTaskPhase::Stopping,
                None if task.waits => WorkerTaskPhase::Prepared { master_port: None },
                None => WorkerTaskPhase::Running,
            },
            deadline: task.deadline,
            is_suspended: task.left_ms.is_some(),
            assignment: Some(task.assignment.clone()),
        };
        self.lock().tasks.iter().map(say).collect()
    }

    /// Starts a task.
    pub fn start(&self, assignment: &TaskAssignment, deadline: MonotonicMs, behaviour: Behaviour) {
        let owner = owner_of(assignment);
        let task = Supervised::new(assignment, deadline, behaviour, self.now());
        let waits = task.waits;
        self.lock().tasks.insert(owner, task);
        if waits {
            self.checkers
                .with(|seen| seen.assembly.prepared(owner, gang_of(assignment)));
            let master_port = None;
            self.report(owner, SupervisorReport::Prepared { master_port });
        } else {
            self.run_process(owner, assignment);
        }
        self.changed.notify_one();
    }

    /// Refuses to start a task: its user has no account here.
    pub fn refuse(&self, assignment: &TaskAssignment, deadline: MonotonicMs, behaviour: Behaviour) {
        let owner = owner_of(assignment);
        let exit = Exit {
            start_error: Some(format!("{NO_ACCOUNT}: unknown submitter on this host")),
            ..Exit::default()
        };
        let mut task = Supervised::new(assignment, deadline, behaviour, self.now());
        task.exit = Some(exit.clone());
        self.lock().tasks.insert(owner, task);
        self.checkers.with(|seen| {
            seen.scene(|| scene_of(owner, "nothing of", "begins: there is no account"));
            seen.coverage.reached(Situation::Refused);
        });
        self.report(owner, SupervisorReport::Exited(exit));
    }

    /// Releases the gang of a prepared task; no effect if it has already started.
    pub fn begin(&self, owner: Owner) {
        let now = self.now();
        let begun = self.lock().tasks.get_mut(&owner).and_then(|task| {
            let begins = std::mem::take(&mut task.waits) && task.exit.is_none();
            task.ends_at = now.after(task.behaviour.run_ms);
            begins.then(|| task.assignment.clone())
        });
        if let Some(assignment) = begun {
            let members = assignment.rank.world_size;
            let gang = gang_of(&assignment);
            self.checkers
                .with(|seen| seen.assembly.started(owner, gang, members));
            self.run_process(owner, &assignment);
        }
        self.changed.notify_one();
    }

    fn run_process(&self, owner: Owner, assignment: &TaskAssignment) {
        self.checkers.with(|seen| {
            seen.scene(|| scene_of(owner, "a process of", "begins"));
            seen.gpu_ledger
                .started(owner, gang_of(assignment), &assignment.gpus)
        });
        self.report(owner, SupervisorReport::Started);
    }

    /// Pauses a task, or resumes it with the rest of its work.
    pub fn suspend(&self, owner: Owner, suspended: bool) {
        let now = self.now();
        if let Some(task) = self.lock().tasks.get_mut(&owner) {
            match (suspended, task.left_ms.take()) {
                (true, left_ms) => {
                    task.left_ms = left_ms.or_else(|| Some(task.ends_at.since(now)));
                }
                (false, Some(left_ms)) => task.ends_at = now.after(left_ms),
                (false, None) => {}
            }
        }
        if suspended {
            self.checkers
                .with(|seen| seen.coverage.reached(Situation::TaskPaused));
        }
        self.changed.notify_one();
    }

    /// Asks a task to stop; it is killed at the end of the grace period.
    pub fn stop(&self, owner: Owner, grace_ms: u64) {
        let now = self.now();
        if let Some(task) = self.lock().tasks.get_mut(&owner) {
            task.kill_at = Some(now.after(grace_ms));
            if let Some(left_ms) = task.left_ms.take() {
                // A paused task cannot react: it is resumed in order to be asked.
                task.ends_at = now.after(left_ms);
            }
            if task.waits {
                // There is no process to ask.
                task.kill_at = Some(now);
            }
            if task.behaviour.heeds_stop {
                task.ends_at = task.ends_at.min(now.after(grace_ms / 2));
                task.behaviour.exit_code = muster_model::command::EXIT_RUN_AGAIN;
            }
        }
        self.changed.notify_one();
    }

    /// Extends a task's deadline.
    pub fn extend(&self, owner: Owner, deadline: MonotonicMs) {
        if let Some(task) = self.lock().tasks.get_mut(&owner) {
            task.deadline = task.deadline.max(deadline);
        }
        self.changed.notify_one();
    }

    /// Acknowledges the end of a task: its supervisor may exit.
    pub fn release(&self, owner: Owner) {
        let mut inner = self.lock();
        match inner.tasks.get_mut(&owner) {
            // A live task stays until it is dead, even if it is forgotten.
            Some(task) if task.exit.is_none() => task.released = true,
            _ => drop(inner.tasks.remove(&owner)),
        }
    }

    /// Pauses the host: no task makes progress, no supervisor measures time.
    pub fn freeze(&self) {
        let now = self.now();
        let mut inner = self.lock();
        inner.frozen_at = Some(now);
        let running = inner.tasks.iter().filter(|(_, task)| task.runs());
        let running: Vec<Owner> = running.map(|(owner, _)| *owner).collect();
        drop(inner);
        self.checkers.with(|seen| {
            running
                .into_iter()
                .for_each(|owner| seen.gpu_ledger.froze(owner))
        });
    }

    /// Resumes the host: tasks with the rest of their work, supervisors by the clock.
    pub fn thaw(&self) {
        let now = self.now();
        let mut inner = self.lock();
        let Some(since) = inner.frozen_at.take() else {
            return;
        };
        for task in inner.tasks.values_mut() {
            task.ends_at = task.ends_at.after(now.since(since));
        }
        drop(inner);
        self.settle(now);
        let inner = self.lock();
        let running = inner.tasks.iter().filter(|(_, task)| task.runs());
        let running: Vec<Owner> = running.map(|(owner, _)| *owner).collect();
        drop(inner);
        self.checkers.with(|seen| {
            running
                .into_iter()
                .for_each(|owner| seen.gpu_ledger.thawed(owner))
        });
        self.changed.notify_one();
    }

    /// Kills the host: every process is gone at once, without a report.
    pub fn die(&self) {
        let mut inner = self.lock();
        for owner in std::mem::take(&mut inner.tasks).into_keys() {
            self.checkers
                .with(|seen| seen.gpu_ledger.ended(owner, None));
        }
        inner.agent = None;
        inner.frozen_at = None;
    }

    /// Advances all tasks with time; runs until the host is killed.
    pub async fn run(self) {
        loop {
            let now = self.now();
            let due = self.settle(now);
            let wait =
                Duration::from_millis(due.map_or(u64::MAX / 2_000, |at| at.since(now).max(1)));
            tokio::select! {
                biased;
                () = self.changed.notified() => {}
                () = tokio::time::sleep(wait) => {}
            }
        }
    }

    /// Ends every task that is due; returns when the next one is due.
    fn settle(&self, now: MonotonicMs) -> Option<MonotonicMs> {
        let mut turns = Vec::new();
        let mut inner = self.lock();
        for (owner, task) in &mut inner.tasks {
            if let Some(turn) = task.settle(now) {
                turns.push((*owner, turn));
            }
        }
        inner
            .tasks
            .retain(|_, task| !task.released || task.exit.is_none());
        let due = inner.tasks.values().filter_map(Supervised::due).min();
        drop(inner);
        for (owner, turn) in turns {
            match turn {
                TaskChange::Killed => self.checkers.with(|seen| {
                    seen.scene(|| scene_of(owner, "a process of", "is killed and hangs"));
                    seen.gpu_ledger.killed(owner);
                }),
                TaskChange::Stuck => {
                    self.checkers
                        .with(|seen| seen.coverage.reached(Situation::Hung));
                    self.report_stuck(owner);
                }
                TaskChange::Ended(exit) => self.ended(owner, exit),
            }
        }
        due
    }

    fn ended(&self, owner: Owner, exit: Exit) {
        self.checkers.with(|seen| {
            seen.scene(|| scene_of(owner, "a process of", format_args!("ends: {exit:?}")));
            seen.gpu_ledger.ended(owner, exit.code);
            if exit.start_error.is_some() {
                seen.coverage.reached(Situation::StoppedWhilePrepared);
            } else if exit.lease_expired {
                seen.coverage.reached(Situation::LeaseExpired);
            } else if exit.signal.is_some() {
                seen.coverage.reached(Situation::GraceExpired);
            }
        });
        self.report(owner, SupervisorReport::Exited(exit));
    }

    fn report(&self, owner: Owner, report: SupervisorReport) {
        if let Some(agent) = &self.lock().agent {
            // A restarted agent learns it from `alive`; a live one has room for every task.
            let sent = agent.try_send((owner, report));
            assert!(
                !matches!(sent, Err(TrySendError::Full(_))),
                "{owner:?} reports into a full channel"
            );
        }
    }

    // A panic while the lock is held ends the world anyway, and the data has no invariants.
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
