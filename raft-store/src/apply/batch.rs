//! Application data of one log entry: a batch of commands with one time stamp.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use muster_proto::raft::v1 as proto;
use prost::Message as _;

use crate::apply::state_machine::{DecodeError, StateMachine};

/// Version written into every batch.
const VERSION: u32 = 1;

/// Commands proposed as one entry, decoded once and shared by log, network and applier.
pub(crate) struct Batch<M: StateMachine>(Arc<Contents<M>>);

struct Contents<M: StateMachine> {
    time_ms: u64,
    commands: Vec<M::Command>,
    check: Option<proto::HashCheck>,
    encoded: Bytes,
}

impl<M: StateMachine> Batch<M> {
    /// Packs commands with their encoded bytes, which must match one to one.
    pub(crate) fn pack(
        time_ms: u64,
        commands: Vec<M::Command>,
        encoded_commands: Vec<Bytes>,
        check: Option<proto::HashCheck>,
    ) -> Self {
        let message = proto::Batch {
            version: VERSION,
            time_ms,
            commands: encoded_commands,
            check,
        };
        let encoded = Bytes::from(message.encode_to_vec());
        Self(Arc::new(Contents {
            time_ms,
            commands,
            check,
            encoded,
        }))
    }

    /// Reads an encoded batch and all its commands.
    pub(crate) fn decode(encoded: Bytes) -> Result<Self, DecodeError> {
        let message = proto::Batch::decode(encoded.clone())
            .map_err(|error| DecodeError::malformed(format!("batch: {error}")))?;
        if message.version > VERSION {
            return Err(DecodeError::NewerVersion {
                found: message.version,
                supported: VERSION,
            });
        }
        let commands = message
            .commands
            .iter()
            .map(|bytes| M::decode_command(bytes))
            .collect::<Result<Vec<_>, _>>()?;
        Ok(Self(Arc::new(Contents {
            time_ms: message.time_ms,
            commands,
            check: message.check,
            encoded,
        })))
    }

    /// The leader's clock, in milliseconds since 1970.
    pub(crate) fn time_ms(&self) -> u64 {
        self.0.time_ms
    }

    /// The commands, in the order they are applied.
    pub(crate) fn commands(&self) -> &[M::Command] {
        &self.0.commands
    }

    /// State hash of the leader, to be compared by every replica.
    pub(crate) fn check(&self) -> Option<&proto::HashCheck> {
        self.0.check.as_ref()
    }

    /// Encoded bytes of the batch.
    pub(crate) fn encoded(&self) -> &Bytes {
        &self.0.encoded
    }
}

impl<M: StateMachine> Clone for Batch<M> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<M: StateMachine> fmt::Debug for Batch<M> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, formatter)
    }
}

impl<M: StateMachine> fmt::Display for Batch<M> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "batch of {} commands at {} ms",
            self.0.commands.len(),
            self.0.time_ms
        )
    }
}

/// Batches are equal if their encoded bytes are equal.
impl<M: StateMachine> PartialEq for Batch<M> {
    fn eq(&self, other: &Self) -> bool {
        self.0.encoded == other.0.encoded
    }
}
