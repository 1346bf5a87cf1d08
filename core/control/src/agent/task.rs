//! A task as its worker holds it.

use muster_model::beat::{CheckpointReport, SpoilReport, TaskStatus, WorkerTaskPhase};
use muster_model::desired::{Rendezvous, TaskAssignment};
use muster_model::ids::AttemptEpoch;
use muster_model::limits::{CHECKPOINTS_TOLD_MAX, SPOILS_TOLD_MAX};
use muster_model::time::MonotonicMs;
use muster_model::timings;

/// One attempt of one task on this worker, from before its start until its end is acknowledged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentTask {
    /// What was started.
    pub assignment: Box<TaskAssignment>,
    /// Where it stands.
    pub phase: WorkerTaskPhase,
    /// The newest checkpoints it committed, oldest first, at most `CHECKPOINTS_TOLD_MAX`.
    pub checkpoints: Vec<CheckpointReport>,
    /// The training step that it was last said to be at.
    pub progress_step: Option<u64>,
    /// Checkpoints that it could not read, at most `SPOILS_TOLD_MAX`.
    pub spoiled: Vec<SpoilReport>,
    /// The shortest grace that it was asked to stop with, if it was.
    pub stop_grace_ms: Option<u64>,
    /// When its supervisor kills it by itself.
    pub deadline: MonotonicMs,
    /// Whether its supervisor was told that its gang is released.
    pub is_released: bool,
    /// Whether its supervisor was told to let it stand still.
    pub is_suspended: bool,
    /// Where its supervisor was told that its gang meets; none: where it did when it was started.
    pub rendezvous: Option<Box<Rendezvous>>,
    /// Paths of checkpoints that it was told to remove, at most `REMOVALS_TOLD_MAX`, the newest last.
    pub removed: Vec<String>,
}

impl AgentTask {
    /// Its attempt.
    #[must_use]
    pub fn epoch(&self) -> AttemptEpoch {
        self.assignment.epoch
    }

    /// Whether it may still touch its resources.
    #[must_use]
    pub const fn is_alive(&self) -> bool {
        is_alive(&self.phase)
    }

    /// Whether its supervisor knows that its gang meets where `desired` says.
    pub(super) fn meets_as(&self, desired: &TaskAssignment) -> bool {
        match &self.rendezvous {
            Some(known) => desired.meets_at(known),
            None => {
                desired.rank.master_port == self.assignment.rank.master_port
                    && desired.rank.master_address == self.assignment.rank.master_address
                    && desired.gang_hosts == self.assignment.gang_hosts
            }
        }
    }

    /// Remembers a checkpoint of a higher step than all before; false for any other.
    pub(super) fn add_checkpoint(&mut self, report: CheckpointReport) -> bool {
        let newest = self.checkpoints.last().map(|newest| newest.step);
        if newest.is_some_and(|newest| report.step <= newest) {
            return false;
        }
        if self.checkpoints.len() >= CHECKPOINTS_TOLD_MAX {
            self.checkpoints.remove(0);
        }
        self.checkpoints.push(report);
        true
    }

    /// Remembers a checkpoint that it could not read; false for one that is known, or for one too many.
    pub(super) fn add_spoiled(&mut self, report: SpoilReport) -> bool {
        let is_known = self.spoiled.iter().any(|known| known.step == report.step);
        if is_known || self.spoiled.len() >= SPOILS_TOLD_MAX {
            return false;
        }
        self.spoiled.push(report);
        true
    }

    /// What the leader is told about it.
    pub(super) fn status(&self) -> TaskStatus {
        TaskStatus {
            key: self.assignment.key,
            unit: self.assignment.unit,
            epoch: self.assignment.epoch,
            phase: self.phase.clone(),
            checkpoints: self.checkpoints.clone(),
            progress_step: self.progress_step,
            spoiled: self.spoiled.clone(),
        }
    }
}

/// Whether a task in this phase may still touch its resources.
pub(super) const fn is_alive(phase: &WorkerTaskPhase) -> bool {
    match phase {
        WorkerTaskPhase::Starting
        | WorkerTaskPhase::Prepared { .. }
        | WorkerTaskPhase::Running
        | WorkerTaskPhase::Stopping => true,
        WorkerTaskPhase::Exited(_) | WorkerTaskPhase::Gone { .. } => false,
    }
}

/// When a task must be killed if no later beat than the one sent at `contact` is acknowledged.
pub(super) const fn lease_deadline(
    contact: MonotonicMs,
    assignment: &TaskAssignment,
) -> MonotonicMs {
    contact.after(timings::fence_after_ms(assignment.partition_grace_ms))
}
