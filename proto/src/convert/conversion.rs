//! Types of the model as fields of messages.

use std::sync::Arc;

use bytes::Bytes;
use muster_model::access::TokenHash;
use muster_model::command::{
    AllocationBasis, Block, BlockTarget, Exit, GpuHealth, HostHealth, HostRegistration, StopCause,
    StopReason, Victim,
};
use muster_model::desired::RestartReason;
use muster_model::health::Component;
use muster_model::ids::{
    AttemptEpoch, GpuUuid, HostId, JobId, LeadershipEpoch, ReplicaId, TaskIndex, UnitIndex,
};
use muster_model::lifecycle::JobPhase;
use muster_model::quota::QueueTree;
use muster_model::spec::{JobSpec, SuspendMode};
use muster_model::time::TimeMs;
use muster_model::topology::Topology;

use crate::convert::gpu_uuid;
use crate::field::packed::{pack_gpu, unpack_gpu};
use crate::field::{InvalidField, MessageTwin, Twin, enumeration};
use crate::v1;

/// Newtypes over a number.
macro_rules! numbers {
    ($($name:ident($inner:ty)),+ $(,)?) => {$(
        impl Twin<$inner> for $name {
            fn to_wire(&self) -> $inner {
                self.0
            }

            fn from_wire(_: &str, wire: $inner) -> Result<Self, InvalidField> {
                Ok(Self(wire))
            }
        }
    )+};
}
numbers!(
    JobId(u64),
    HostId(u32),
    ReplicaId(u64),
    TaskIndex(u32),
    UnitIndex(u32),
    AttemptEpoch(u64),
    LeadershipEpoch(u64),
    TimeMs(u64),
);

/// Enumerations without data.
macro_rules! enumerations {
    ($($name:ident),+) => {$(
        impl Twin<i32> for $name {
            fn to_wire(&self) -> i32 {
                v1::$name::from(*self).into()
            }

            fn from_wire(field: &str, wire: i32) -> Result<Self, InvalidField> {
                enumeration::<v1::$name, _>(field, wire)
            }
        }
    )+};
}
enumerations!(JobPhase, RestartReason, HostHealth, SuspendMode);

/// Types with a message of their own.
macro_rules! messages {
    ($($name:ident => $wire:ident),+ $(,)?) => {$(
        impl MessageTwin<v1::$wire> for $name {
            fn to_message(&self) -> v1::$wire {
                self.into()
            }

            fn from_message(wire: v1::$wire) -> Result<Self, InvalidField> {
                Self::try_from(wire).map_err(InvalidField::from)
            }
        }
    )+};
}
messages!(
    Block => Block,
    BlockTarget => BlockTarget,
    Component => Component,
    Exit => Exit,
    GpuHealth => GpuHealth,
    StopReason => StopReason,
    StopCause => StopReason,
    JobSpec => JobSpec,
    HostRegistration => HostRegistration,
    QueueTree => QueueTree,
    Topology => Topology,
    AllocationBasis => AllocationBasis,
);

/// Numbers that may be absent.
macro_rules! optional {
    ($($name:ident),+ $(,)?) => {$(
        impl Twin<Option<u64>> for Option<$name> {
            fn to_wire(&self) -> Option<u64> {
                self.map(|number| number.0)
            }

            fn from_wire(_: &str, wire: Option<u64>) -> Result<Self, InvalidField> {
                Ok(wire.map($name))
            }
        }
    )+};
}

optional!(JobId, TimeMs);

impl Twin<Vec<u32>> for Vec<HostId> {
    fn to_wire(&self) -> Vec<u32> {
        self.iter().map(|host| host.get()).collect()
    }

    fn from_wire(_: &str, wire: Vec<u32>) -> Result<Self, InvalidField> {
        Ok(wire.into_iter().map(HostId).collect())
    }
}

impl Twin<Vec<v1::Victim>> for Vec<Victim> {
    fn to_wire(&self) -> Vec<v1::Victim> {
        self.iter().map(|victim| (*victim).into()).collect()
    }

    fn from_wire(_: &str, wire: Vec<v1::Victim>) -> Result<Self, InvalidField> {
        Ok(wire.into_iter().map(Into::into).collect())
    }
}

impl Twin<String> for GpuUuid {
    fn to_wire(&self) -> String {
        self.to_string()
    }

    fn from_wire(field: &str, wire: String) -> Result<Self, InvalidField> {
        gpu_uuid(field, &wire)
    }
}

impl Twin<Bytes> for GpuUuid {
    fn to_wire(&self) -> Bytes {
        pack_gpu(*self)
    }

    fn from_wire(field: &str, wire: Bytes) -> Result<Self, InvalidField> {
        unpack_gpu(field, &wire)
    }
}

impl Twin<String> for Arc<str> {
    fn to_wire(&self) -> String {
        self.to_string()
    }

    fn from_wire(_: &str, wire: String) -> Result<Self, InvalidField> {
        Ok(wire.into())
    }
}

impl Twin<Bytes> for TokenHash {
    fn to_wire(&self) -> Bytes {
        Bytes::copy_from_slice(&self.0)
    }

    fn from_wire(field: &str, wire: Bytes) -> Result<Self, InvalidField> {
        let hash = wire.as_ref().try_into().map(TokenHash);
        hash.map_err(|_| InvalidField::new(field, "must have a token's hash of 32 bytes"))
    }
}
