//! Events: one line per kind.

use muster_model::command::JobDefaults;
use muster_model::event::{EventKind, ReplicaChanged};
use muster_model::ids::ReplicaId;
use v1::event::Kind;

use crate::convert::access;
use crate::field::{InvalidField, enumeration, required, twin_variants};
use crate::v1;

twin_variants! {
    kind_to_wire, kind_from_wire: EventKind <=> Kind in v1 {
        LeadershipStarted { replica: replica_id, epoch: leadership_epoch },
        JobSubmitted { job: job_id, name: name, user: user, queue: queue },
        JobCancelRequested { job: job_id, author: author, reason: reason },
        JobSuspended { job: job_id, author: author, reason: reason, mode: mode },
        JobResumed { job: job_id, author: author, reason: reason },
        JobFinished { job: job_id, phase: phase, reason: reason },
        JobPruned { job: job_id },
        AttemptPlaced {
            job: job_id, unit: unit, epoch: epoch, number: number, hosts: host_ids, gpus: gpus,
            resumes_step: resumes_step,
        },
        TaskPrepared { job: job_id, unit: unit, epoch: epoch, task: task, host: host_id },
        GangReleased {
            job: job_id, unit: unit, epoch: epoch, hosts: host_ids, master_port: master_port,
        },
        TaskStarted { job: job_id, unit: unit, epoch: epoch, task: task, host: host_id },
        AttemptRunning { job: job_id, unit: unit, epoch: epoch },
        TaskExited { job: job_id, unit: unit, epoch: epoch, task: task, host: host_id, exit: exit },
        TaskLost { job: job_id, unit: unit, epoch: epoch, task: task, host: host_id, detail: detail },
        AttemptStopping { job: job_id, unit: unit, epoch: epoch, cause: reason },
        AttemptEnded {
            job: job_id, unit: unit, epoch: epoch, hosts: host_ids, detail: detail, attribution: attribution,
        },
        UnitRequeued { job: job_id, unit: unit, reason: reason, not_before: not_before_ms },
        UnitRetried {
            job: job_id, unit: unit, epoch: epoch, retry: retry, retries_max: retries_max,
        },
        MemberLeaving {
            job: job_id, unit: unit, epoch: epoch, task: task, host: host_id, cause: reason,
        },
        MemberVacated {
            job: job_id, unit: unit, epoch: epoch, task: task, member: member_epoch, host: host_id,
            reason: reason, charged: charged, not_before: not_before_ms, detail: detail,
        },
        MemberSwapped {
            job: job_id, unit: unit, epoch: epoch, task: task, member: member_epoch, host: host_id,
            from: from_host_id, gpus: gpus, reason: reason,
        },
        HealthChanged {
            component: component, host: host_id, host_name: host, from: from, to: to, rule: rule,
            evidence: evidence,
        },
        HealthNoted { note: note, subject: subject, detail: detail, job: job_id },
        CheckpointsForgotten { job: job_id, unit: unit, steps: steps, removed: removed },
        HostRegistered { host: host_id, name: name, gpus: gpus },
        HostHealthChanged { host: host_id, name: name, health: health, one_way: one_way },
        GpuHealthChanged { gpu: gpu, host: host_id, host_name: host, health: health },
        Blocked { target: target, block: block },
        Unblocked { target: target, author: author },
        BlockPlanned { target: target, author: author, block: block },
        CheckpointCommitted {
            job: job_id, unit: unit, epoch: epoch, step: step, path: path, size_bytes: size_bytes,
        },
        QueueSet { name: name },
        QueuesConfigured { author: author, queues: queues },
        TopologySet { author: author },
        UnitClaimed {
            job: job_id, unit: unit, gpus: gpus, victims: victims, expected_at: expected_at_ms,
        },
        UnitsMoved {
            job: job_id, unit: unit, moved: moved, cost_gpu_ms: cost_gpu_ms, gain_gpu_ms: gain_gpu_ms,
        },
        ClaimDropped { job: job_id, unit: unit, reason: reason },
        AllocationBasisChanged { job: job_id, unit: unit, epoch: epoch, allocation_basis: allocation_basis },
        LevelsChanged { above: above, inside: inside },
        HostCellsDoubted { host: host_id, name: name, flaws: flaws },
        JobEligible { job: job_id },
        CheckpointDamaged { job: job_id, unit: unit, epoch: epoch, step: step, reason: reason },
    }
    also {
        EventKind::JobDefaultsSet(defaults) => Kind::JobDefaultsSet(v1::JobDefaultsSet {
            attempts_without_progress_max: defaults.attempts_without_progress_max,
            bad_checkpoints_max: defaults.bad_checkpoints_max,
            restore_window_ms: defaults.restore_window_ms,
        }),
        Kind::JobDefaultsSet(wire) => EventKind::JobDefaultsSet(JobDefaults {
            attempts_without_progress_max: wire.attempts_without_progress_max,
            bad_checkpoints_max: wire.bad_checkpoints_max,
            restore_window_ms: wire.restore_window_ms,
        });
        EventKind::ReplicaChanged(changed) => Kind::ReplicaChanged(v1::ReplicaChanged {
            replica_id: changed.replica.get(),
            address: changed.address.clone(),
            membership: v1::ReplicaMembership::from(changed.membership).into(),
        }),
        Kind::ReplicaChanged(wire) => EventKind::ReplicaChanged(ReplicaChanged {
            replica: ReplicaId(wire.replica_id),
            address: wire.address,
            membership: enumeration::<v1::ReplicaMembership, _>(
                "ReplicaChanged.standing",
                wire.membership,
            )?,
        });
        EventKind::AccessChanged(change) => Kind::AccessChanged(access::change_to_wire(change)),
        Kind::AccessChanged(wire) => EventKind::AccessChanged(access::change_from_wire(wire)?);
    }
}

impl From<&EventKind> for v1::Event {
    fn from(kind: &EventKind) -> Self {
        Self {
            kind: Some(kind_to_wire(kind)),
        }
    }
}

impl TryFrom<v1::Event> for EventKind {
    type Error = InvalidField;

    fn try_from(wire: v1::Event) -> Result<Self, InvalidField> {
        kind_from_wire(required("kind", wire.kind)?)
    }
}

impl From<&EventKind> for v1::EventKind {
    fn from(kind: &EventKind) -> Self {
        match kind {
            EventKind::LeadershipStarted { .. } => Self::LeadershipStarted,
            EventKind::JobSubmitted { .. } => Self::JobSubmitted,
            EventKind::JobCancelRequested { .. } => Self::JobCancelRequested,
            EventKind::JobSuspended { .. } => Self::JobSuspended,
            EventKind::JobResumed { .. } => Self::JobResumed,
            EventKind::JobFinished { .. } => Self::JobFinished,
            EventKind::JobPruned { .. } => Self::JobPruned,
            EventKind::AttemptPlaced { .. } => Self::AttemptPlaced,
            EventKind::TaskPrepared { .. } => Self::TaskPrepared,
            EventKind::GangReleased { .. } => Self::GangReleased,
            EventKind::TaskStarted { .. } => Self::TaskStarted,
            EventKind::AttemptRunning { .. } => Self::AttemptRunning,
            EventKind::TaskExited { .. } => Self::TaskExited,
            EventKind::TaskLost { .. } => Self::TaskLost,
            EventKind::AttemptStopping { .. } => Self::AttemptStopping,
            EventKind::AttemptEnded { .. } => Self::AttemptEnded,
            EventKind::UnitRequeued { .. } => Self::UnitRequeued,
            EventKind::UnitRetried { .. } => Self::UnitRetried,
            EventKind::MemberLeaving { .. } => Self::MemberLeaving,
            EventKind::MemberVacated { .. } => Self::MemberVacated,
            EventKind::MemberSwapped { .. } => Self::MemberSwapped,
            EventKind::JobDefaultsSet { .. } => Self::JobDefaultsSet,
            EventKind::ReplicaChanged { .. } => Self::ReplicaChanged,
            EventKind::AccessChanged { .. } => Self::AccessChanged,
            EventKind::HealthChanged { .. } => Self::HealthChanged,
            EventKind::HealthNoted { .. } => Self::HealthNoted,
            EventKind::CheckpointsForgotten { .. } => Self::CheckpointsForgotten,
            EventKind::HostRegistered { .. } => Self::HostRegistered,
            EventKind::HostHealthChanged { .. } => Self::HostHealthChanged,
            EventKind::GpuHealthChanged { .. } => Self::GpuHealthChanged,
            EventKind::Blocked { .. } => Self::Blocked,
            EventKind::Unblocked { .. } => Self::Unblocked,
            EventKind::BlockPlanned { .. } => Self::BlockPlanned,
            EventKind::CheckpointCommitted { .. } => Self::CheckpointCommitted,
            EventKind::QueueSet { .. } => Self::QueueSet,
            EventKind::QueuesConfigured { .. } => Self::QueuesConfigured,
            EventKind::TopologySet { .. } => Self::TopologySet,
            EventKind::UnitClaimed { .. } => Self::UnitClaimed,
            EventKind::UnitsMoved { .. } => Self::UnitsMoved,
            EventKind::ClaimDropped { .. } => Self::ClaimDropped,
            EventKind::AllocationBasisChanged { .. } => Self::AllocationBasisChanged,
            EventKind::LevelsChanged { .. } => Self::LevelsChanged,
            EventKind::HostCellsDoubted { .. } => Self::HostCellsDoubted,
            EventKind::JobEligible { .. } => Self::JobEligible,
            EventKind::CheckpointDamaged { .. } => Self::CheckpointDamaged,
        }
    }
}
