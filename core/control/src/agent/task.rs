//! A task held by its worker.

use muster_model::desired::{Rendezvous, TaskAssignment};
use muster_model::heartbeat::{CheckpointReport, DamageReport, TaskStatus, WorkerTaskPhase};
use muster_model::ids::AttemptEpoch;
use muster_model::limits::{CHECKPOINTS_REPORTED_MAX, DAMAGED_REPORTED_MAX};
use muster_model::time::MonotonicMs;
use muster_model::timings;

/// One attempt of one task on this worker, from before its start until its end is acknowledged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentTask {
    /// The assignment it was started with.
    pub assignment: Box<TaskAssignment>,
    /// Current phase.
    pub phase: WorkerTaskPhase,
    /// The newest checkpoints it committed, oldest first, at most `CHECKPOINTS_REPORTED_MAX`.
    pub checkpoints: Vec<CheckpointReport>,
    /// Last reported training step.
    pub progress_step: Option<u64>,
    /// Checkpoints that it could not read, at most `DAMAGED_REPORTED_MAX`.
    pub damaged: Vec<DamageReport>,
    /// Shortest grace period of any stop request, if there was one.
    pub stop_grace_ms: Option<u64>,
    /// Time at which its supervisor kills it on its own.
    pub deadline: MonotonicMs,
    /// Whether its supervisor was notified of the gang's release.
    pub is_released: bool,
    /// Whether its supervisor was asked to pause it.
    pub is_suspended: bool,
    /// Rendezvous last sent to its supervisor; `None`: the one it was started with.
    pub rendezvous: Option<Box<Rendezvous>>,
    /// Paths of checkpoints that it was asked to remove, at most `REMOVALS_PER_UNIT_MAX`, the newest last.
    pub removed: Vec<String>,
}

impl AgentTask {
    /// Epoch of the attempt.
    #[must_use]
    pub fn epoch(&self) -> AttemptEpoch {
        self.assignment.epoch
    }

    /// Whether it may still use its resources.
    #[must_use]
    pub const fn is_alive(&self) -> bool {
        is_alive(&self.phase)
    }

    /// Whether its supervisor has the rendezvous of `desired`.
    pub(super) fn has_rendezvous(&self, desired: &TaskAssignment) -> bool {
        match &self.rendezvous {
            Some(known) => desired.has_rendezvous(known),
            None => {
                desired.rank.master_port == self.assignment.rank.master_port
                    && desired.rank.master_address == self.assignment.rank.master_address
                    && desired.gang_hosts == self.assignment.gang_hosts
            }
        }
    }

    /// Records a checkpoint of a higher step than all before; returns false for any other.
    pub(super) fn add_checkpoint(&mut self, report: CheckpointReport) -> bool {
        let newest = self.checkpoints.last().map(|newest| newest.step);
        if newest.is_some_and(|newest| report.step <= newest) {
            return false;
        }
        if self.checkpoints.len() >= CHECKPOINTS_REPORTED_MAX {
            self.checkpoints.remove(0);
        }
        self.checkpoints.push(report);
        true
    }

    /// Records a checkpoint that it could not read; returns false if it is known or the list is full.
    pub(super) fn add_damaged(&mut self, report: DamageReport) -> bool {
        let is_known = self.damaged.iter().any(|known| known.step == report.step);
        if is_known || self.damaged.len() >= DAMAGED_REPORTED_MAX {
            return false;
        }
        self.damaged.push(report);
        true
    }

    /// Status reported to the leader.
    pub(super) fn status(&self) -> TaskStatus {
        TaskStatus {
            key: self.assignment.key,
            unit: self.assignment.unit,
            epoch: self.assignment.epoch,
            phase: self.phase.clone(),
            checkpoints: self.checkpoints.clone(),
            progress_step: self.progress_step,
            damaged: self.damaged.clone(),
        }
    }
}

/// Whether a task in this phase may still use its resources.
pub(super) const fn is_alive(phase: &WorkerTaskPhase) -> bool {
    match phase {
        WorkerTaskPhase::Starting
        | WorkerTaskPhase::Prepared { .. }
        | WorkerTaskPhase::Running
        | WorkerTaskPhase::Stopping => true,
        WorkerTaskPhase::Exited(_) | WorkerTaskPhase::Gone { .. } => false,
    }
}

/// Time at which a task must be killed if no heartbeat later than the one sent at `contact` is acknowledged.
pub(super) const fn lease_deadline(
    contact: MonotonicMs,
    assignment: &TaskAssignment,
) -> MonotonicMs {
    contact.after(timings::fence_after_ms(assignment.partition_grace_ms))
}
