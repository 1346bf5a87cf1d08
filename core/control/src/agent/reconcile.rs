//! Comparison of desired and held tasks.

use std::collections::BTreeSet;

use muster_model::command::GpuHealth;
use muster_model::desired::{Rendezvous, StopInstruction, TaskAssignment};
use muster_model::heartbeat::WorkerTaskPhase;
use muster_model::ids::{GpuUuid, TaskKey};
use muster_model::time::MonotonicMs;

use crate::agent::task::lease_deadline;
use crate::agent::{Action, Agent, AgentTask, JournalRecord};

/// Outcome of the comparison for a held task.
enum TaskDifference {
    /// No change.
    Keep,
    /// Stop it.
    Stop(StopInstruction),
    /// Start it: its gang is released, with this rendezvous port.
    Begin(u16),
    /// Update the rendezvous: the gang has moved since the supervisor was last notified.
    Renew(Box<Rendezvous>),
    /// Pause (true) or resume it.
    Suspend(bool),
    /// Forget it: its end is acknowledged.
    Release,
}

impl Agent {
    /// Carries out the desired state in force. Before the first desired state nothing happens: an agent that
    /// has just restarted leaves everything unchanged.
    pub(super) fn reconcile(&mut self, now: MonotonicMs, actions: &mut Vec<Action>) {
        let Some(desired) = &self.desired else {
            return;
        };
        let differences: Vec<(TaskKey, TaskDifference)> = self
            .tasks
            .iter()
            .map(|(key, task)| (*key, difference(task, desired.tasks.get(key))))
            .collect();
        for (key, difference) in differences {
            self.resolve(key, difference, actions);
        }
        self.remove_checkpoints(actions);
        self.start_pending(now, actions);
        self.has_pending = self.has_waiting_start();
    }

    /// Reconciles after news of one task: the others are unchanged, and pending starts may have waited for
    /// its resources.
    pub(super) fn reconcile_one(
        &mut self,
        key: TaskKey,
        now: MonotonicMs,
        actions: &mut Vec<Action>,
    ) {
        if self.has_pending {
            self.reconcile(now, actions);
        } else if let (Some(desired), Some(task)) = (&self.desired, self.tasks.get(&key)) {
            let difference = difference(task, desired.tasks.get(&key));
            self.resolve(key, difference, actions);
        }
    }

    fn resolve(&mut self, key: TaskKey, difference: TaskDifference, actions: &mut Vec<Action>) {
        match difference {
            TaskDifference::Keep => {}
            TaskDifference::Stop(stop) => self.stop(key, stop, actions),
            TaskDifference::Begin(master_port) => self.begin(key, master_port, actions),
            TaskDifference::Renew(rendezvous) => self.renew(key, rendezvous, actions),
            TaskDifference::Suspend(suspended) => self.suspend(key, suspended, actions),
            TaskDifference::Release => self.release(key, actions),
        }
    }

    /// Whether an attempt that the worker will start is still waiting.
    fn has_waiting_start(&self) -> bool {
        let Some(desired) = &self.desired else {
            return false;
        };
        let mut wanted = desired.tasks.values();
        wanted.any(|assignment| self.is_to_start(assignment))
    }

    /// Removes directories of checkpoints that the leader no longer keeps, each once, and only through the
    /// running attempt.
    fn remove_checkpoints(&mut self, actions: &mut Vec<Action>) {
        let Some(desired) = &self.desired else {
            return;
        };
        for assignment in desired.tasks.values() {
            let task = self.tasks.get_mut(&assignment.key);
            let Some(task) = task.filter(|task| task.epoch() == assignment.epoch) else {
                continue;
            };
            task.removed.retain(|path| {
                assignment
                    .checkpoint_duties
                    .removals
                    .iter()
                    .any(|it| it.path == *path)
            });
            for removal in &assignment.checkpoint_duties.removals {
                if !task.removed.contains(&removal.path) {
                    task.removed.push(removal.path.clone());
                    actions.push(Action::RemoveCheckpoint {
                        key: assignment.key,
                        unit: assignment.unit,
                        path: removal.path.clone(),
                        kept: assignment.checkpoint_duties.kept.clone(),
                    });
                }
            }
        }
    }

    /// Whether a desired task is one that the worker will start (or has started).
    pub(super) fn is_to_start(&self, assignment: &TaskAssignment) -> bool {
        let wanted = assignment.stop.is_none() && !assignment.acknowledged.is_terminal();
        wanted && self.started.allows(assignment.key, assignment.epoch)
    }

    /// Whether the desired state contains an attempt that the worker neither holds nor will start.
    pub(super) fn omits_desired_task(&self) -> bool {
        let Some(desired) = &self.desired else {
            return false;
        };
        desired.tasks.values().any(|assignment| {
            let held = self.tasks.get(&assignment.key);
            !assignment.acknowledged.is_terminal()
                && !self.is_to_start(assignment)
                && held.is_none_or(|task| task.epoch() != assignment.epoch)
        })
    }

    fn stop(&mut self, key: TaskKey, stop: StopInstruction, actions: &mut Vec<Action>) {
        let Some(task) = self.tasks.get_mut(&key) else {
            return;
        };
        if task
            .stop_grace_ms
            .is_some_and(|grace_ms| grace_ms <= stop.grace_ms)
        {
            return;
        }
        task.stop_grace_ms = Some(stop.grace_ms);
        task.phase = WorkerTaskPhase::Stopping;
        actions.push(Action::Stop {
            key,
            epoch: task.epoch(),
            reason: stop.reason,
            grace_ms: stop.grace_ms,
        });
    }

    fn begin(&mut self, key: TaskKey, master_port: u16, actions: &mut Vec<Action>) {
        if let Some(task) = self.tasks.get_mut(&key) {
            task.is_released = true;
            actions.push(Action::Begin {
                key,
                epoch: task.epoch(),
                master_port,
            });
            // Other changes since its start are sent once it runs.
            let rendezvous = Rendezvous {
                master_port,
                ..task.assignment.rendezvous()
            };
            task.rendezvous = Some(Box::new(rendezvous));
        }
    }

    fn renew(&mut self, key: TaskKey, rendezvous: Box<Rendezvous>, actions: &mut Vec<Action>) {
        if let Some(task) = self.tasks.get_mut(&key) {
            task.rendezvous = Some(rendezvous.clone());
            actions.push(Action::Renew {
                key,
                epoch: task.epoch(),
                rendezvous,
            });
        }
    }

    fn suspend(&mut self, key: TaskKey, suspended: bool, actions: &mut Vec<Action>) {
        if let Some(task) = self.tasks.get_mut(&key) {
            task.is_suspended = suspended;
            actions.push(Action::Suspend {
                key,
                epoch: task.epoch(),
                suspended,
            });
        }
    }

    fn release(&mut self, key: TaskKey, actions: &mut Vec<Action>) {
        if let Some(task) = self.tasks.remove(&key) {
            let epoch = task.epoch();
            actions.push(Action::Journal(JournalRecord::Released { key, epoch }));
            actions.push(Action::Release { key, epoch });
        }
    }

    /// Starts every pending task that may start: with a valid lease from a heartbeat of this stream, on
    /// healthy GPUs that no live task holds, after the older attempt of the same task. A worker that was
    /// disconnected has the desired state before its first acknowledged heartbeat: it waits for that, as it
    /// would otherwise start a task whose lease is almost over.
    fn start_pending(&mut self, now: MonotonicMs, actions: &mut Vec<Action>) {
        let (Some(desired), Some(contact)) = (&self.desired, self.heartbeats.contact()) else {
            return;
        };
        let mut busy: BTreeSet<GpuUuid> = self
            .tasks
            .values()
            .filter(|task| task.is_alive())
            .flat_map(|task| task.assignment.gpus.iter().copied())
            .collect();
        let pending = desired.tasks.values().filter(|assignment| {
            !self.tasks.contains_key(&assignment.key) && self.is_to_start(assignment)
        });
        let mut starts = Vec::new();
        for assignment in pending {
            let deadline = lease_deadline(contact, assignment);
            let is_usable = |gpu: &GpuUuid| {
                let health = self.gpus.get(gpu);
                !busy.contains(gpu) && health.is_none_or(|it| *it == GpuHealth::Healthy)
            };
            let gpus_free = assignment.gpus.iter().all(is_usable);
            if deadline > now && gpus_free {
                busy.extend(assignment.gpus.iter().copied());
                starts.push((Box::new(assignment.clone()), deadline));
            }
        }
        for (assignment, deadline) in starts {
            actions.push(Action::Journal(JournalRecord::Starting(assignment.clone())));
            actions.push(Action::Start {
                assignment: assignment.clone(),
                deadline,
            });
            self.hold(assignment, deadline);
        }
    }
}

/// Compares one held task with its desired assignment.
fn difference(task: &AgentTask, desired: Option<&TaskAssignment>) -> TaskDifference {
    let current = desired.filter(|assignment| assignment.epoch == task.epoch());
    match (current, task.is_alive()) {
        (None, false) => TaskDifference::Release,
        // Absent or superseded by a newer attempt: the cluster has given this one up.
        (None, true) => TaskDifference::Stop(StopInstruction {
            reason: "infra".to_owned(),
            grace_ms: 0,
        }),
        (Some(assignment), false) if assignment.acknowledged.is_terminal() => {
            TaskDifference::Release
        }
        (Some(_), false) => TaskDifference::Keep,
        (Some(assignment), true) => match &assignment.stop {
            Some(stop) => TaskDifference::Stop(stop.clone()),
            None if assignment.acknowledged.is_terminal() => {
                TaskDifference::Stop(StopInstruction {
                    reason: "infra".to_owned(),
                    grace_ms: 0,
                })
            }
            None if awaits_release(task) && assignment.released => {
                TaskDifference::Begin(assignment.rank.master_port)
            }
            None if is_to_renew(task, assignment) => {
                TaskDifference::Renew(Box::new(assignment.rendezvous()))
            }
            None if task.is_suspended != assignment.suspended => {
                TaskDifference::Suspend(assignment.suspended)
            }
            None => TaskDifference::Keep,
        },
    }
}

/// Whether a running task's rendezvous changed since its supervisor was last notified. Nothing is sent while
/// the port of a new rank 0 is unknown: the new host with the old port would be an address where no process
/// listens.
fn is_to_renew(task: &AgentTask, desired: &TaskAssignment) -> bool {
    let is_known = !desired.rank.awaits_port;
    is_known && task.phase == WorkerTaskPhase::Running && !task.has_rendezvous(desired)
}

/// Whether a task waits for its gang, and its supervisor was not yet notified of the release.
const fn awaits_release(task: &AgentTask) -> bool {
    matches!(task.phase, WorkerTaskPhase::Prepared { .. }) && !task.is_released
}
