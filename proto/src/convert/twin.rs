//! Fields and variants with the same meaning in the core and on the wire.

use std::sync::Arc;

use bytes::Bytes;
use muster_model::command::{
    Block, BlockTarget, Exit, GpuHealth, HostHealth, HostRegistration, Standing, StopCause,
    StopReason, Victim,
};
use muster_model::desired::RestartReason;
use muster_model::ids::{
    AttemptEpoch, GpuUuid, HostId, JobId, LeadershipEpoch, ReplicaId, TaskIndex, UnitIndex,
};
use muster_model::lifecycle::JobPhase;
use muster_model::quota::QueueTree;
use muster_model::spec::{JobSpec, SuspendMode};
use muster_model::time::TimeMs;
use muster_model::topology::Topology;

use crate::convert::packed::{pack_gpu, unpack_gpu};
use crate::convert::{InvalidField, enumeration, gpu_uuid, required};
use crate::v1;

/// A core value carried by a wire field of type `Wire`.
pub(crate) trait Twin<Wire>: Sized {
    /// The wire field.
    fn to_wire(&self) -> Wire;

    /// Converts to the core value; errors name `field`.
    fn from_wire(field: &str, wire: Wire) -> Result<Self, InvalidField>;
}

/// Generates both directions between a core enumeration and a oneof whose members are messages of the same
/// names: `Variant { core_field: wire_field, ... }`. Members that the core groups in an enumeration of their own
/// follow after `within Group(Enumeration)`, members of another shape after `also`, as two match arms each: core
/// to wire, and wire to core.
macro_rules! twin_variants {
    (
        $to:ident, $from:ident: $core:ident <=> $kind:ident in $wire:ident {
            $($variant:ident { $($field:ident: $name:ident),+ $(,)? },)+
        }
        $(within $group:ident($inner:ident) {
            $($member:ident { $($inner_field:ident: $inner_name:ident),+ $(,)? },)+
        })*
        $(also { $($core_arm:pat => $to_wire:expr, $wire_arm:pat => $from_wire:expr;)+ })?
    ) => {
        fn $to(value: &$core) -> $kind {
            match value {
                $($core::$variant { $($field),+ } => $kind::$variant($wire::$variant {
                    $($name: $crate::convert::Twin::to_wire($field),)+
                }),)+
                $($($core::$group($inner::$member { $($inner_field),+ }) => $kind::$member($wire::$member {
                    $($inner_name: $crate::convert::Twin::to_wire($inner_field),)+
                }),)+)*
                $($($core_arm => $to_wire,)+)?
            }
        }

        fn $from(kind: $kind) -> Result<$core, $crate::convert::InvalidField> {
            Ok(match kind {
                $($kind::$variant(wire) => $core::$variant {
                    $($field: $crate::convert::Twin::from_wire(
                        concat!(stringify!($variant), ".", stringify!($name)),
                        wire.$name,
                    )?,)+
                },)+
                $($($kind::$member(wire) => $core::$group($inner::$member {
                    $($inner_field: $crate::convert::Twin::from_wire(
                        concat!(stringify!($member), ".", stringify!($inner_name)),
                        wire.$inner_name,
                    )?,)+
                }),)+)*
                $($($wire_arm => $from_wire,)+)?
            })
        }
    };
}
pub(crate) use twin_variants;

/// Values that are their own wire form.
macro_rules! same {
    ($($kind:ty),+) => {$(
        impl Twin<$kind> for $kind {
            fn to_wire(&self) -> $kind {
                self.clone()
            }

            fn from_wire(_: &str, wire: $kind) -> Result<Self, InvalidField> {
                Ok(wire)
            }
        }
    )+};
}
same!(
    String,
    bool,
    u32,
    u64,
    Option<u32>,
    Option<String>,
    Vec<u64>,
    Vec<String>
);

impl Twin<u32> for u16 {
    fn to_wire(&self) -> u32 {
        u32::from(*self)
    }

    fn from_wire(field: &str, wire: u32) -> Result<Self, InvalidField> {
        Self::try_from(wire).map_err(|_| InvalidField::new(field, "must be at most 65535"))
    }
}

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

/// Messages that must be present.
macro_rules! messages {
    ($($name:ident),+) => {$(
        impl Twin<Option<v1::$name>> for $name {
            fn to_wire(&self) -> Option<v1::$name> {
                Some(self.into())
            }

            fn from_wire(field: &str, wire: Option<v1::$name>) -> Result<Self, InvalidField> {
                let result = Self::try_from(required(field, wire)?);
                result.map_err(|invalid| InvalidField::from(invalid).within(field))
            }
        }
    )+};
}
messages!(
    Block,
    BlockTarget,
    Exit,
    GpuHealth,
    StopReason,
    JobSpec,
    HostRegistration,
    QueueTree,
    Topology,
    Standing
);

impl Twin<Option<v1::StopReason>> for StopCause {
    fn to_wire(&self) -> Option<v1::StopReason> {
        Some(self.into())
    }

    fn from_wire(field: &str, wire: Option<v1::StopReason>) -> Result<Self, InvalidField> {
        let result = Self::try_from(required(field, wire)?);
        result.map_err(|invalid| invalid.within(field))
    }
}

impl<Wire, Core: Twin<Wire>> Twin<Wire> for Arc<Core> {
    fn to_wire(&self) -> Wire {
        self.as_ref().to_wire()
    }

    fn from_wire(field: &str, wire: Wire) -> Result<Self, InvalidField> {
        Core::from_wire(field, wire).map(Self::new)
    }
}

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

impl Twin<Self> for Option<u64> {
    fn to_wire(&self) -> Self {
        *self
    }

    fn from_wire(_: &str, wire: Self) -> Result<Self, InvalidField> {
        Ok(wire)
    }
}

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
