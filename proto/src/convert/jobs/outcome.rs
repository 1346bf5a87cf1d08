//! Health, blocks, exits and stop reasons.

use muster_model::command::{
    Block, BlockTarget, Exit, GpuHealth, LastMeasurements, MemoryUsage, Planned, SignalSender,
    StopCause, StopReason,
};
use muster_model::ids::HostId;
use muster_model::time::TimeMs;

use crate::convert::gpu_uuid;
use crate::field::{InvalidField, Twin, required};
use crate::v1;

impl From<v1::GpuHealth> for GpuHealth {
    fn from(wire: v1::GpuHealth) -> Self {
        match wire.fault {
            None => Self::Healthy,
            Some(v1::GpuFault { signal, detail }) => Self::Faulted { signal, detail },
        }
    }
}

impl From<&GpuHealth> for v1::GpuHealth {
    fn from(health: &GpuHealth) -> Self {
        let fault = match health {
            GpuHealth::Healthy => None,
            GpuHealth::Faulted { signal, detail } => Some(v1::GpuFault {
                signal: signal.clone(),
                detail: detail.clone(),
            }),
        };
        Self { fault }
    }
}

impl TryFrom<v1::BlockTarget> for BlockTarget {
    type Error = InvalidField;

    fn try_from(wire: v1::BlockTarget) -> Result<Self, InvalidField> {
        use v1::block_target::Target;
        match wire.target {
            Some(Target::Host(name)) => Ok(Self::Host(name)),
            Some(Target::Gpu(text)) => gpu_uuid("gpu", &text).map(Self::Gpu),
            None => Err(InvalidField::new("", "must name a host or a GPU")),
        }
    }
}

impl From<&BlockTarget> for v1::BlockTarget {
    fn from(target: &BlockTarget) -> Self {
        use v1::block_target::Target;
        let target = match target {
            BlockTarget::Host(name) => Target::Host(name.clone()),
            BlockTarget::Gpu(gpu) => Target::Gpu(gpu.to_string()),
        };
        Self {
            target: Some(target),
        }
    }
}

impl Twin<Option<v1::Block>> for Option<Block> {
    fn to_wire(&self) -> Option<v1::Block> {
        self.as_ref().map(Into::into)
    }

    fn from_wire(_: &str, wire: Option<v1::Block>) -> Result<Self, InvalidField> {
        Ok(wire.map(Into::into))
    }
}

impl From<v1::Block> for Block {
    fn from(wire: v1::Block) -> Self {
        Self {
            reason: wire.reason,
            author: wire.author,
            evidence: wire.evidence,
            since: TimeMs(wire.since_ms),
            expires_at: wire.expires_at_ms.map(TimeMs),
            drain_deadline: wire.drain_deadline_ms.map(TimeMs),
            planned: wire.planned.map(|planned| Planned {
                at: TimeMs(planned.at_ms),
                notice_ms: planned.notice_ms,
            }),
        }
    }
}

impl From<&Block> for v1::Block {
    fn from(block: &Block) -> Self {
        Self {
            reason: block.reason.clone(),
            author: block.author.clone(),
            evidence: block.evidence.clone(),
            since_ms: block.since.0,
            expires_at_ms: block.expires_at.map(|at| at.0),
            drain_deadline_ms: block.drain_deadline.map(|at| at.0),
            planned: block.planned.map(|planned| v1::Planned {
                at_ms: planned.at.0,
                notice_ms: planned.notice_ms,
            }),
        }
    }
}

impl From<v1::Exit> for Exit {
    fn from(wire: v1::Exit) -> Self {
        Self {
            code: wire.code,
            signal: wire.signal,
            out_of_memory: wire.out_of_memory,
            lease_expired: wire.lease_expired,
            memory: wire.memory.map(|memory| MemoryUsage {
                limit_bytes: memory.limit_bytes,
                peak_bytes: memory.peak_bytes,
            }),
            sender: match wire.sender() {
                v1::SignalSender::Unspecified => None,
                v1::SignalSender::Supervisor => Some(SignalSender::Supervisor),
                v1::SignalSender::Kernel => Some(SignalSender::Kernel),
                v1::SignalSender::Other => Some(SignalSender::Other),
            },
            start_error: wire.start_error,
            evidence: wire.evidence,
            last_measurements: wire.last_seen.map(|seen| {
                Box::new(LastMeasurements {
                    busy_permille: seen
                        .busy_permille
                        .map(|it| u16::try_from(it).unwrap_or(u16::MAX)),
                    leftover_mib: seen.held_before_mib,
                    step: seen.step,
                })
            }),
        }
    }
}

impl From<&Exit> for v1::Exit {
    fn from(exit: &Exit) -> Self {
        Self {
            code: exit.code,
            signal: exit.signal,
            out_of_memory: exit.out_of_memory,
            lease_expired: exit.lease_expired,
            start_error: exit.start_error.clone(),
            memory: exit.memory.map(|memory| v1::MemoryEnd {
                limit_bytes: memory.limit_bytes,
                peak_bytes: memory.peak_bytes,
            }),
            sender: i32::from(match exit.sender {
                None => v1::SignalSender::Unspecified,
                Some(SignalSender::Supervisor) => v1::SignalSender::Supervisor,
                Some(SignalSender::Kernel) => v1::SignalSender::Kernel,
                Some(SignalSender::Other) => v1::SignalSender::Other,
            }),
            evidence: exit.evidence.clone(),
            last_seen: exit.last_measurements.as_ref().map(|seen| v1::LastSeen {
                busy_permille: seen.busy_permille.map(u32::from),
                held_before_mib: seen.leftover_mib,
                step: seen.step,
            }),
        }
    }
}

impl TryFrom<v1::StopReason> for StopReason {
    type Error = InvalidField;

    fn try_from(wire: v1::StopReason) -> Result<Self, InvalidField> {
        use v1::stop_reason::Kind;
        Ok(match required("kind", wire.kind)? {
            Kind::Cancelled(_) => Self::Cancelled,
            Kind::MemberFailed(_) => Self::MemberFailed,
            Kind::MemberLost(_) => Self::MemberLost,
            Kind::GpuFault(gpu) => Self::GpuFault {
                gpu: gpu_uuid("gpu_fault", &gpu)?,
            },
            Kind::DrainHostId(host) => Self::Drain { host: HostId(host) },
            Kind::Preempted(_) => Self::Preempted,
            Kind::RunTime(_) => Self::TimeLimit,
            Kind::Assembly(_) => Self::AssemblyTimeout,
            Kind::Moved(_) => Self::Defragmented,
            Kind::Suspended(_) => Self::Suspended,
            Kind::NotSwapped(_) => Self::NotSwapped,
            Kind::HostFaultId(host) => Self::HostFault { host: HostId(host) },
        })
    }
}

impl From<&StopReason> for v1::StopReason {
    fn from(reason: &StopReason) -> Self {
        use v1::stop_reason::{Kind, Plain};
        let kind = match reason {
            StopReason::Cancelled => Kind::Cancelled(Plain {}),
            StopReason::MemberFailed => Kind::MemberFailed(Plain {}),
            StopReason::MemberLost => Kind::MemberLost(Plain {}),
            StopReason::GpuFault { gpu } => Kind::GpuFault(gpu.to_string()),
            StopReason::Drain { host } => Kind::DrainHostId(host.get()),
            StopReason::Preempted => Kind::Preempted(Plain {}),
            StopReason::TimeLimit => Kind::RunTime(Plain {}),
            StopReason::AssemblyTimeout => Kind::Assembly(Plain {}),
            StopReason::Defragmented => Kind::Moved(Plain {}),
            StopReason::Suspended => Kind::Suspended(Plain {}),
            StopReason::NotSwapped => Kind::NotSwapped(Plain {}),
            StopReason::HostFault { host } => Kind::HostFaultId(host.get()),
        };
        Self {
            kind: Some(kind),
            ..Self::default()
        }
    }
}

impl TryFrom<v1::StopReason> for StopCause {
    type Error = InvalidField;

    fn try_from(mut wire: v1::StopReason) -> Result<Self, InvalidField> {
        let detail = std::mem::take(&mut wire.detail);
        Ok(Self::new(wire.try_into()?, detail))
    }
}

impl From<&StopCause> for v1::StopReason {
    fn from(cause: &StopCause) -> Self {
        Self {
            detail: cause.detail.clone(),
            ..(&cause.reason).into()
        }
    }
}
