//! What survives the agent, and how it is read back.

use crate::agent::{Action, Agent, AgentTask, Found, JournalRecord};
use crate::beat::WorkerTaskPhase;
use crate::desired::{TaskAssignment, TaskKey};
use crate::ids::AttemptEpoch;
use crate::time::MonotonicMs;

impl Agent {
    /// The agent as it was when it wrote these records, with the supervisors that outlived it.
    ///
    /// A task whose supervisor is alive is adopted as it is and goes on. One without a supervisor is gone:
    /// it is reported so, never started again. The actions put an end to supervisors that the journal does
    /// not know.
    pub fn recover(
        records: impl IntoIterator<Item = JournalRecord>,
        alive: impl IntoIterator<Item = Found>,
    ) -> (Self, Vec<Action>) {
        let mut agent = Self::default();
        for record in records {
            agent.replay(record);
        }
        let mut actions = Vec::new();
        let mut adopted = std::collections::BTreeSet::new();
        for found in alive {
            if agent.adopt(&found) {
                adopted.insert(found.key);
            } else {
                actions.extend(end_of_stranger(&found));
            }
        }
        for (key, task) in &mut agent.tasks {
            if task.is_alive() && !adopted.contains(key) {
                task.phase = WorkerTaskPhase::Gone {
                    detail: "its supervisor was gone when the agent started".to_owned(),
                };
            }
        }
        (agent, actions)
    }

    /// The shortest journal that says the same.
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

    /// Remembers the start of an attempt.
    pub(super) fn hold(&mut self, assignment: Box<TaskAssignment>, deadline: MonotonicMs) {
        self.started.insert(assignment.key, assignment.epoch);
        self.tasks.insert(
            assignment.key,
            AgentTask {
                assignment,
                phase: WorkerTaskPhase::Starting,
                checkpoint: None,
                stop_grace_ms: None,
                deadline,
            },
        );
    }

    /// The task, if exactly this attempt of it is held.
    pub(super) fn held_mut(&mut self, key: TaskKey, epoch: AttemptEpoch) -> Option<&mut AgentTask> {
        self.tasks
            .get_mut(&key)
            .filter(|task| task.epoch() == epoch)
    }

    /// Takes a living supervisor over; false if its attempt is not held.
    fn adopt(&mut self, found: &Found) -> bool {
        let Some(task) = self.held_mut(found.key, found.epoch) else {
            return false;
        };
        if task.is_alive() {
            task.phase = found.phase.clone();
            task.deadline = found.deadline;
        }
        true
    }
}

/// Ends a supervisor of an attempt that is not held.
fn end_of_stranger(found: &Found) -> [Action; 2] {
    [
        Action::Stop {
            key: found.key,
            epoch: found.epoch,
            reason: "infra".to_owned(),
            grace_ms: 0,
        },
        Action::Release {
            key: found.key,
            epoch: found.epoch,
        },
    ]
}
