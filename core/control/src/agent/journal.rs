//! The agent's durable journal, and recovery from it.

use std::collections::BTreeMap;

use muster_model::desired::TaskAssignment;
use muster_model::heartbeat::WorkerTaskPhase;
use muster_model::ids::{AttemptEpoch, TaskKey};
use muster_model::time::MonotonicMs;

use crate::agent::task::is_alive;
use crate::agent::{Action, Agent, AgentTask, DiscoveredAttempt, JournalRecord};

impl Agent {
    /// Recovers the agent from its journal and the supervisors that outlived it.
    ///
    /// A task whose supervisor is alive is adopted unchanged and continues. A task without a supervisor is
    /// lost: it is reported as such and never restarted.
    ///
    /// If the journal was lost, discovered attempts still count as started: an attempt that the journal does
    /// not know is held like any other, on its GPUs, until the leader no longer wants it. An attempt that
    /// cannot be held (an older attempt of a task, or one with an unknown assignment) is stopped.
    pub fn recover(
        records: impl IntoIterator<Item = JournalRecord>,
        found: impl IntoIterator<Item = DiscoveredAttempt>,
    ) -> (Self, Vec<Action>) {
        let mut agent = Self::default();
        for record in records {
            agent.replay(record);
        }
        let mut actions = Vec::new();
        // Older attempts first, so that a newer one of the same task replaces them.
        let found: BTreeMap<_, DiscoveredAttempt> = found
            .into_iter()
            .map(|found| ((found.key, found.epoch), found))
            .collect();
        for one in found.values() {
            if !agent.adopt(one) {
                agent.adopt_unknown(one, &mut actions);
            }
        }
        for (key, task) in &mut agent.tasks {
            if task.is_alive() && !found.contains_key(&(*key, task.epoch())) {
                task.phase = WorkerTaskPhase::Gone {
                    detail: "its supervisor was gone when the agent started".to_owned(),
                };
            }
        }
        (agent, actions)
    }

    /// Compacts the journal: the shortest list of records with the same content.
    #[must_use]
    pub fn journal(&self) -> Vec<JournalRecord> {
        let mut records = vec![
            JournalRecord::Leader(self.leader),
            JournalRecord::Forgotten {
                up_to: self.started.forgotten(),
            },
        ];
        records.extend(
            self.started
                .iter()
                .map(|(key, epoch)| JournalRecord::Released { key, epoch }),
        );
        for (key, task) in &self.tasks {
            records.push(JournalRecord::Starting(task.assignment.clone()));
            if !task.is_alive() {
                records.push(JournalRecord::Ended {
                    key: *key,
                    epoch: task.epoch(),
                    phase: task.phase.clone(),
                });
            }
        }
        records
    }

    fn replay(&mut self, record: JournalRecord) {
        match record {
            JournalRecord::Leader(leader) => self.leader = self.leader.max(leader),
            JournalRecord::Starting(assignment) => {
                self.hold(assignment, MonotonicMs::default());
            }
            JournalRecord::Ended { key, epoch, phase } => {
                if let Some(task) = self.held_mut(key, epoch) {
                    task.phase = phase;
                }
            }
            JournalRecord::Released { key, epoch } => {
                self.started.insert(key, epoch);
                if self.held_mut(key, epoch).is_some() {
                    self.tasks.remove(&key);
                }
            }
            JournalRecord::Forgotten { up_to } => self.started.forget(up_to),
        }
    }

    /// Records the start of an attempt.
    pub(super) fn hold(&mut self, assignment: Box<TaskAssignment>, deadline: MonotonicMs) {
        self.started.insert(assignment.key, assignment.epoch);
        self.tasks.insert(
            assignment.key,
            AgentTask {
                assignment,
                phase: WorkerTaskPhase::Starting,
                checkpoints: Vec::new(),
                progress_step: None,
                damaged: Vec::new(),
                stop_grace_ms: None,
                deadline,
                is_released: false,
                is_suspended: false,
                rendezvous: None,
                removed: Vec::new(),
            },
        );
    }

    /// The task, if exactly this attempt of it is held.
    pub(super) fn held_mut(&mut self, key: TaskKey, epoch: AttemptEpoch) -> Option<&mut AgentTask> {
        self.tasks
            .get_mut(&key)
            .filter(|task| task.epoch() == epoch)
    }

    /// Handles a discovered attempt that is not held: adopts it if possible, otherwise stops it.
    fn adopt_unknown(&mut self, found: &DiscoveredAttempt, actions: &mut Vec<Action>) {
        let DiscoveredAttempt { key, epoch, .. } = *found;
        let held_epoch = self.tasks.get(&key).map(AgentTask::epoch);
        // An ended attempt that was already released has left only files behind.
        let is_news = is_alive(&found.phase) || self.started.allows(key, epoch);
        let assignment = found.assignment.clone().filter(|_| is_news);
        let Some(assignment) = assignment.filter(|_| held_epoch.is_none_or(|held| held < epoch))
        else {
            if self.started.allows(key, epoch) {
                self.started.insert(key, epoch);
                actions.push(Action::Journal(JournalRecord::Released { key, epoch }));
            }
            actions.extend(stop_unknown(key, epoch, &found.phase));
            return;
        };
        if let Some(older) = self.tasks.remove(&key) {
            // The older attempt had ended before the newer one started.
            actions.extend(stop_unknown(key, older.epoch(), &older.phase));
        }
        actions.push(Action::Journal(JournalRecord::Starting(assignment.clone())));
        self.hold(assignment, found.deadline);
        self.adopt(found);
    }

    /// Adopts a live supervisor; returns false if its attempt is not held.
    fn adopt(&mut self, found: &DiscoveredAttempt) -> bool {
        let Some(task) = self.held_mut(found.key, found.epoch) else {
            return false;
        };
        if task.is_alive() {
            task.phase = found.phase.clone();
            task.deadline = found.deadline;
            task.is_suspended = found.is_suspended;
        }
        true
    }
}

/// Stops an attempt that is not held, and removes its leftovers.
fn stop_unknown(key: TaskKey, epoch: AttemptEpoch, phase: &WorkerTaskPhase) -> Vec<Action> {
    let stop = is_alive(phase).then(|| Action::Stop {
        key,
        epoch,
        reason: "infra".to_owned(),
        grace_ms: 0,
    });
    let release = Action::Release { key, epoch };
    stop.into_iter().chain([release]).collect()
}
