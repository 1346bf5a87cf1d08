//! Mapping from events to jobs.

use crate::event::EventKind;
use crate::ids::JobId;

impl EventKind {
    /// The job that the event is about, if any.
    #[must_use]
    pub const fn job(&self) -> Option<JobId> {
        match self {
            Self::JobSubmitted { job, .. }
            | Self::JobCancelRequested { job, .. }
            | Self::JobSuspended { job, .. }
            | Self::JobResumed { job, .. }
            | Self::JobFinished { job, .. }
            | Self::JobPruned { job }
            | Self::AttemptPlaced { job, .. }
            | Self::TaskPrepared { job, .. }
            | Self::GangReleased { job, .. }
            | Self::TaskStarted { job, .. }
            | Self::AttemptRunning { job, .. }
            | Self::TaskExited { job, .. }
            | Self::TaskLost { job, .. }
            | Self::AttemptStopping { job, .. }
            | Self::AttemptEnded { job, .. }
            | Self::UnitRequeued { job, .. }
            | Self::UnitRetried { job, .. }
            | Self::MemberLeaving { job, .. }
            | Self::MemberVacated { job, .. }
            | Self::MemberSwapped { job, .. }
            | Self::CheckpointCommitted { job, .. }
            | Self::CheckpointDamaged { job, .. }
            | Self::CheckpointsForgotten { job, .. }
            | Self::JobEligible { job }
            | Self::UnitClaimed { job, .. }
            | Self::UnitsMoved { job, .. }
            | Self::ClaimDropped { job, .. }
            | Self::AllocationBasisChanged { job, .. } => Some(*job),
            Self::HealthNoted { job, .. } => *job,
            Self::LeadershipStarted { .. }
            | Self::HostRegistered { .. }
            | Self::HostHealthChanged { .. }
            | Self::GpuHealthChanged { .. }
            | Self::Blocked { .. }
            | Self::Unblocked { .. }
            | Self::BlockPlanned { .. }
            | Self::HealthChanged { .. }
            | Self::JobDefaultsSet { .. }
            | Self::ReplicaChanged { .. }
            | Self::AccessChanged { .. }
            | Self::QueueSet { .. }
            | Self::QueuesConfigured { .. }
            | Self::TopologySet { .. }
            | Self::LevelsChanged { .. }
            | Self::HostCellsDoubted { .. } => None,
        }
    }
}
