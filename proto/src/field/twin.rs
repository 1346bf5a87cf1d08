//! Fields and variants with the same meaning in the core and on the wire.

use std::sync::Arc;

use crate::field::{InvalidField, required};

/// A core value carried by a wire field of type `Wire`.
pub trait Twin<Wire>: Sized {
    /// The wire field.
    fn to_wire(&self) -> Wire;

    /// Converts to the core value.
    ///
    /// # Errors
    /// [`InvalidField`] with the name `field`, or a field within it.
    fn from_wire(field: &str, wire: Wire) -> Result<Self, InvalidField>;
}

/// A core value with a message of its own, which must be present where it is a field.
pub trait MessageTwin<Wire>: Sized {
    /// The message.
    fn to_message(&self) -> Wire;

    /// Converts to the core value.
    ///
    /// # Errors
    /// [`InvalidField`] with the name of a field of the message.
    fn from_message(wire: Wire) -> Result<Self, InvalidField>;
}

impl<Wire, Core: MessageTwin<Wire>> Twin<Option<Wire>> for Core {
    fn to_wire(&self) -> Option<Wire> {
        Some(self.to_message())
    }

    fn from_wire(field: &str, wire: Option<Wire>) -> Result<Self, InvalidField> {
        Self::from_message(required(field, wire)?).map_err(|invalid| invalid.within(field))
    }
}

impl<Wire, Core: MessageTwin<Wire>> MessageTwin<Wire> for Arc<Core> {
    fn to_message(&self) -> Wire {
        self.as_ref().to_message()
    }

    fn from_message(wire: Wire) -> Result<Self, InvalidField> {
        Core::from_message(wire).map(Self::new)
    }
}

/// Generates both directions between a core enumeration and a oneof whose members are messages of the same
/// names: `Variant { core_field: wire_field, ... }`. Members that the core groups in an enumeration of their own
/// follow after `within Group(Enumeration)`, members of another shape after `also`, as two match arms each: core
/// to wire, and wire to core.
#[macro_export]
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
                    $($name: $crate::field::Twin::to_wire($field),)+
                }),)+
                $($($core::$group($inner::$member { $($inner_field),+ }) => $kind::$member($wire::$member {
                    $($inner_name: $crate::field::Twin::to_wire($inner_field),)+
                }),)+)*
                $($($core_arm => $to_wire,)+)?
            }
        }

        fn $from(kind: $kind) -> Result<$core, $crate::field::InvalidField> {
            Ok(match kind {
                $($kind::$variant(wire) => $core::$variant {
                    $($field: $crate::field::Twin::from_wire(
                        concat!(stringify!($variant), ".", stringify!($name)),
                        wire.$name,
                    )?,)+
                },)+
                $($($kind::$member(wire) => $core::$group($inner::$member {
                    $($inner_field: $crate::field::Twin::from_wire(
                        concat!(stringify!($member), ".", stringify!($inner_name)),
                        wire.$inner_name,
                    )?,)+
                }),)+)*
                $($($wire_arm => $from_wire,)+)?
            })
        }
    };
}

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
    Option<u64>,
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
