//! The agent's transition function: one input in, actions out.

use muster_model::command::GpuHealth;
use muster_model::desired::DesiredState;
use muster_model::heartbeat::{CheckpointReport, DamageReport, WorkerTaskPhase};
use muster_model::ids::{AttemptEpoch, GpuUuid, LeadershipEpoch, TaskKey};
use muster_model::time::MonotonicMs;

use crate::agent::task::lease_deadline;
use crate::agent::{Action, Agent, Desired, Input, JournalRecord, SupervisorReport};

impl Agent {
    /// Applies one input and returns the actions in order. An [`Action::Journal`] must be durable before any
    /// later action is carried out.
    pub fn step(&mut self, input: Input, now: MonotonicMs) -> Vec<Action> {
        let mut actions = Vec::new();
        match input {
            Input::Desired(desired) => self.desired(desired, now, &mut actions),
            Input::StreamOpened => self.heartbeats.restart(),
            Input::HeartbeatSent { sequence } => self.heartbeats.sent(sequence, now),
            Input::HeartbeatAcknowledged { leader, sequence } => {
                self.acknowledged(leader, sequence, now, &mut actions);
            }
            Input::Supervisor { key, epoch, report } => {
                self.supervisor(key, epoch, report, &mut actions);
                self.reconcile_one(key, now, &mut actions);
            }
            Input::Checkpoint { key, epoch, report } => {
                self.checkpoint(key, epoch, report, &mut actions);
            }
            Input::Progress { key, epoch, step } => self.progress(key, epoch, step, &mut actions),
            Input::Damaged { key, epoch, report } => self.damaged(key, epoch, report, &mut actions),
            Input::GpuHealth { gpu, health } => self.gpu_health(gpu, health, &mut actions),
            Input::Findings(findings) => self.health.add_findings(findings, &mut actions),
            Input::HealthWorkDone(done) => self.health.work_done(done, &mut actions),
            Input::Tick => self.reconcile(now, &mut actions),
        }
        actions
    }

    fn desired(&mut self, desired: DesiredState, now: MonotonicMs, actions: &mut Vec<Action>) {
        let outdated = self.desired.as_ref().is_some_and(|current| {
            (desired.leader, desired.revision) < (current.leader, current.revision)
        });
        if outdated || !self.accept_leader(desired.leader, actions) {
            return;
        }
        self.health.apply_reply(desired.health, actions);
        let tasks = desired.tasks.into_iter();
        self.desired = Some(Desired {
            leader: desired.leader,
            revision: desired.revision,
            tasks: tasks.map(|task| (task.key, task)).collect(),
        });
        self.reconcile(now, actions);
        if self.omits_desired_task() && !actions.contains(&Action::SendStatus) {
            // The leader waits for these starts; without this it would learn only from the next whole status
            // that they will never happen.
            actions.push(Action::SendStatus);
        }
    }

    /// Accepts a leadership that is not older than the newest one; journals a newer one. Returns false if
    /// older.
    fn accept_leader(&mut self, leader: LeadershipEpoch, actions: &mut Vec<Action>) -> bool {
        if leader < self.leader {
            return false;
        }
        if leader > self.leader {
            self.leader = leader;
            actions.push(Action::Journal(JournalRecord::Leader(leader)));
        }
        true
    }

    /// Extends every lease from the send time of the acknowledged heartbeat, never to an earlier deadline.
    fn acknowledged(
        &mut self,
        leader: LeadershipEpoch,
        sequence: u64,
        now: MonotonicMs,
        actions: &mut Vec<Action>,
    ) {
        if leader < self.leader {
            return;
        }
        let Some(sent_at) = self.heartbeats.acknowledge(sequence) else {
            return;
        };
        self.accept_leader(leader, actions);
        for (key, task) in &mut self.tasks {
            let deadline = lease_deadline(sent_at, &task.assignment);
            if task.is_alive() && deadline > task.deadline {
                task.deadline = deadline;
                actions.push(Action::ExtendLease {
                    key: *key,
                    epoch: task.epoch(),
                    deadline,
                });
            }
        }
        self.reconcile(now, actions);
    }

    fn supervisor(
        &mut self,
        key: TaskKey,
        epoch: AttemptEpoch,
        report: SupervisorReport,
        actions: &mut Vec<Action>,
    ) {
        let Some(task) = self.held_mut(key, epoch) else {
            actions.extend(release_unknown(key, epoch, &report));
            return;
        };
        let phase = match (report, &task.phase) {
            (SupervisorReport::Prepared { master_port }, WorkerTaskPhase::Starting) => {
                WorkerTaskPhase::Prepared { master_port }
            }
            (
                SupervisorReport::Started,
                WorkerTaskPhase::Starting | WorkerTaskPhase::Prepared { .. },
            ) => WorkerTaskPhase::Running,
            (SupervisorReport::Prepared { .. } | SupervisorReport::Started, _) => return,
            _ if !task.is_alive() => return,
            (SupervisorReport::Exited(exit), _)
            | (
                SupervisorReport::Stuck {
                    exit: Some(exit), ..
                },
                _,
            ) => WorkerTaskPhase::Exited(exit),
            (SupervisorReport::Stuck { detail, exit: None }, _) => WorkerTaskPhase::Gone { detail },
            (SupervisorReport::Vanished { detail }, _) => WorkerTaskPhase::Gone { detail },
        };
        task.phase = phase.clone();
        if !task.is_alive() {
            actions.push(Action::Journal(JournalRecord::Ended { key, epoch, phase }));
        }
        actions.push(Action::SendStatus);
    }

    fn checkpoint(
        &mut self,
        key: TaskKey,
        epoch: AttemptEpoch,
        report: CheckpointReport,
        actions: &mut Vec<Action>,
    ) {
        let Some(task) = self.held_mut(key, epoch) else {
            return;
        };
        if task.add_checkpoint(report) {
            actions.push(Action::SendStatus);
        }
    }

    fn progress(
        &mut self,
        key: TaskKey,
        epoch: AttemptEpoch,
        step: u64,
        actions: &mut Vec<Action>,
    ) {
        if let Some(task) = self.held_mut(key, epoch)
            && task.progress_step != Some(step)
        {
            task.progress_step = Some(step);
            actions.push(Action::SendStatus);
        }
    }

    fn damaged(
        &mut self,
        key: TaskKey,
        epoch: AttemptEpoch,
        report: DamageReport,
        actions: &mut Vec<Action>,
    ) {
        if let Some(task) = self.held_mut(key, epoch)
            && task.add_damaged(report)
        {
            actions.push(Action::SendStatus);
        }
    }

    fn gpu_health(&mut self, gpu: GpuUuid, health: GpuHealth, actions: &mut Vec<Action>) {
        if self.gpus.get(&gpu) != Some(&health) {
            self.gpus.insert(gpu, health);
            actions.push(Action::SendStatus);
        }
    }
}

/// Action for a supervisor whose attempt is not held; none while it is already killing its task.
fn release_unknown(key: TaskKey, epoch: AttemptEpoch, report: &SupervisorReport) -> Option<Action> {
    Some(match report {
        SupervisorReport::Stuck { .. } => return None,
        SupervisorReport::Prepared { .. } | SupervisorReport::Started => Action::Stop {
            key,
            epoch,
            reason: "infra".to_owned(),
            grace_ms: 0,
        },
        SupervisorReport::Exited(_) | SupervisorReport::Vanished { .. } => {
            Action::Release { key, epoch }
        }
    })
}
