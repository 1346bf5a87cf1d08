//! Conversion of fields of messages into fields of documents.

use muster_model::quota::Amounts;
use muster_proto::v1;

use crate::instant::Instant;

/// Conversion from a field of a message, which has its own conventions: instants are milliseconds, enumerations
/// numbers, and required messages optional.
pub(crate) trait FromWire<W> {
    fn from_wire(wire: W) -> Self;
}

macro_rules! unchanged {
    ($($kind:ty),*) => {
        $(
            impl FromWire<$kind> for $kind {
                fn from_wire(wire: $kind) -> Self {
                    wire
                }
            }
        )*
    };
}

unchanged!(bool, i32, u32, u64, String);

impl<W, T: FromWire<W>> FromWire<Option<W>> for Option<T> {
    fn from_wire(wire: Option<W>) -> Self {
        wire.map(T::from_wire)
    }
}

impl<W, T: FromWire<W>> FromWire<Vec<W>> for Vec<T> {
    fn from_wire(wire: Vec<W>) -> Self {
        wire.into_iter().map(T::from_wire).collect()
    }
}

impl FromWire<u64> for Instant {
    fn from_wire(ms: u64) -> Self {
        Self { ms }
    }
}

/// Zero is no instant.
impl FromWire<u64> for Option<Instant> {
    fn from_wire(ms: u64) -> Self {
        (ms > 0).then_some(Instant { ms })
    }
}

/// Zero is no revision.
impl FromWire<u64> for Option<u64> {
    fn from_wire(number: u64) -> Self {
        (number > 0).then_some(number)
    }
}

from_wire!(Amounts, v1::Amounts);
