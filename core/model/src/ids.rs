//! Identifiers: one newtype each, so that they cannot be confused.
//!
//! Ids assigned by the cluster derive from the revision of the command that created the object, so every
//! replica computes the same id and none is ever reused.

use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Declares a `Copy` newtype over an unsigned integer with `Display`, `FromStr` and `get`.
macro_rules! integer_id {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(
            Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
        )]
        #[serde(transparent)]
        pub struct $name(pub $inner);

        impl $name {
            /// The underlying integer.
            #[must_use]
            pub const fn get(self) -> $inner {
                self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.0, formatter)
            }
        }

        impl FromStr for $name {
            type Err = std::num::ParseIntError;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                text.parse().map(Self)
            }
        }
    };
}

integer_id! {
    /// Number of a replicated command, counted from 1 in log order; the resume token of every watch.
    Revision(u64)
}
integer_id! {
    /// A job: the revision of its submission.
    JobId(u64)
}
integer_id! {
    /// A pipeline: the revision of its submission; its jobs have the numbers after it.
    PipelineId(u64)
}
integer_id! {
    /// A host in the replicated state, assigned at its first registration.
    HostId(u32)
}
integer_id! {
    /// A scheduler replica, chosen by the operator.
    ReplicaId(u64)
}
integer_id! {
    /// A task within its job, counted from 0 over all task groups in order: its rank.
    TaskIndex(u32)
}
integer_id! {
    /// A unit of placement: the whole gang (always 0) or one independent task (its task index).
    UnitIndex(u32)
}
integer_id! {
    /// One run of a unit: the revision of the `Place` command that allocated it. Strictly increasing.
    AttemptEpoch(u64)
}
integer_id! {
    /// The revision of the current leader's `LeadershipStarted` entry: the fencing token of its commands.
    ///
    /// Different from the Raft term: a restarted leader may continue in the same term.
    LeadershipEpoch(u64)
}

impl Revision {
    /// The revision after this one.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

/// Serializes a UUID as text in human-readable formats (JSON, YAML) and as a number elsewhere.
macro_rules! uuid_serde {
    ($name:ident) => {
        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                if serializer.is_human_readable() {
                    serializer.collect_str(self)
                } else {
                    self.0.serialize(serializer)
                }
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                if deserializer.is_human_readable() {
                    let text = String::deserialize(deserializer)?;
                    text.parse().map_err(serde::de::Error::custom)
                } else {
                    u128::deserialize(deserializer).map(Self)
                }
            }
        }
    };
}

/// A GPU, identified by the UUID that its driver reports, never by its index alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GpuUuid(pub u128);

impl fmt::Display for GpuUuid {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("GPU-")?;
        write_uuid(self.0, formatter)
    }
}

impl FromStr for GpuUuid {
    type Err = InvalidUuid;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let digits = text.strip_prefix("GPU-").unwrap_or(text);
        parse_uuid(digits)
            .map(Self)
            .ok_or_else(|| InvalidUuid(text.to_owned()))
    }
}

uuid_serde!(GpuUuid);

/// The client's idempotency key: the same key means the same request, with the same response for 24 hours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub u128);

impl fmt::Display for RequestId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_uuid(self.0, formatter)
    }
}

impl FromStr for RequestId {
    type Err = InvalidUuid;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        parse_uuid(text)
            .map(Self)
            .ok_or_else(|| InvalidUuid(text.to_owned()))
    }
}

uuid_serde!(RequestId);

/// Identity of a user's request.
///
/// The fingerprint is computed once, when a client's request becomes a command, and replicated with it: it
/// does not depend on the build that applies the command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestKey {
    /// Chosen by the client.
    pub id: RequestId,
    /// Hash of the request's contents: a repetition has the same one, another request under the same id has
    /// another one.
    pub fingerprint: u64,
}

impl RequestKey {
    /// Key of a command that no client sent: its id alone identifies it.
    #[must_use]
    pub const fn of(id: RequestId) -> Self {
        Self { id, fingerprint: 0 }
    }
}

/// A text that is not a UUID of the form `xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a UUID (expected 8-4-4-4-12 hexadecimal digits)")]
pub struct InvalidUuid(pub String);

fn write_uuid(value: u128, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
    write!(
        formatter,
        "{:08x}-{:04x}-{:04x}-{:04x}-{:012x}",
        value >> 96,
        (value >> 80) & 0xffff,
        (value >> 64) & 0xffff,
        (value >> 48) & 0xffff,
        value & 0xffff_ffff_ffff
    )
}

fn parse_uuid(text: &str) -> Option<u128> {
    const GROUPS: [usize; 5] = [8, 4, 4, 4, 12];
    let mut value = 0u128;
    let mut parts = text.split('-');
    for length in GROUPS {
        let part = parts.next()?;
        if part.len() != length || !part.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return None;
        }
        value = (value << (4 * length)) | u128::from_str_radix(part, 16).ok()?;
    }
    parts.next().is_none().then_some(value)
}

/// A unit of placement, independent of its attempts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct UnitId {
    /// The job.
    pub job: JobId,
    /// Index of the unit within its job.
    pub unit: UnitIndex,
}

impl UnitId {
    /// The first id in order, for ranges over all units.
    pub const MIN: Self = Self::new(JobId(0), UnitIndex(0));
    /// The last id in order.
    pub const MAX: Self = Self::new(JobId(u64::MAX), UnitIndex(u32::MAX));

    /// A unit of a job.
    #[must_use]
    pub const fn new(job: JobId, unit: UnitIndex) -> Self {
        Self { job, unit }
    }

    /// The range of all units that a job could have.
    #[must_use]
    pub const fn all_of(job: JobId) -> RangeInclusive<Self> {
        RangeInclusive::new(
            Self::new(job, UnitIndex(0)),
            Self::new(job, UnitIndex(u32::MAX)),
        )
    }
}

impl fmt::Display for UnitId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "unit {} of job {}", self.unit, self.job)
    }
}

/// A task on one host, independent of its attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct TaskKey {
    /// The job.
    pub job: JobId,
    /// Index of the task within its job.
    pub task: TaskIndex,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uuid_survives_its_text() {
        let uuid = GpuUuid(0x0123_4567_89ab_cdef_0011_2233_4455_6677);
        assert_eq!(uuid.to_string(), "GPU-01234567-89ab-cdef-0011-223344556677");
        assert_eq!(uuid.to_string().parse(), Ok(uuid));
    }

    #[test]
    fn a_damaged_uuid_is_refused() {
        for text in [
            "",
            "GPU-",
            "GPU-1",
            "01234567-89ab-cdef-0011-22334455667",
            "+1234567-89ab-cdef-0011-223344556677",
        ] {
            assert!(text.parse::<GpuUuid>().is_err(), "{text}");
        }
    }
}
