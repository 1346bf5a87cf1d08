//! Interface of the replicated state machine.

use std::fmt::Debug;
use std::io;

use crate::member::peer::Peer;

/// Error of invalid bytes.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// The bytes were written by a newer build.
    #[error("format version {found} is newer than {supported}, the newest this build reads")]
    NewerVersion {
        /// The version found.
        found: u32,
        /// The newest version understood.
        supported: u32,
    },
    /// The bytes were written by a build whose format is no longer read.
    #[error("format version {found} is older than {oldest}, the oldest this build reads")]
    OlderVersion {
        /// The version found.
        found: u32,
        /// The oldest version understood.
        oldest: u32,
    },
    /// Checksum, structure or content is wrong.
    #[error("malformed bytes: {0}")]
    Malformed(String),
}

impl DecodeError {
    /// Error of malformed bytes, with the detail.
    pub fn malformed(detail: impl Into<String>) -> Self {
        Self::Malformed(detail.into())
    }
}

impl From<io::Error> for DecodeError {
    fn from(error: io::Error) -> Self {
        Self::Malformed(error.to_string())
    }
}

/// The replicated application.
///
/// `apply` must be deterministic: the same commands in the same order give the same state and the
/// same outcomes on every replica, in every build. Only deterministic refusals belong in
/// `Outcome`. `Clone` must be cheap (persistent maps): snapshots and hashes are taken from clones.
pub trait StateMachine: Clone + Default + Send + Sync + 'static {
    /// A replicated command.
    type Command: Clone + Debug + Send + Sync + 'static;
    /// Answer of applying a command.
    type Outcome: Clone + Debug + Send + Sync + 'static;

    /// Appends the command's versioned bytes to `out`.
    fn encode_command(command: &Self::Command, out: &mut Vec<u8>);

    /// Reads what [`StateMachine::encode_command`] wrote, in this or an older build.
    fn decode_command(bytes: &[u8]) -> Result<Self::Command, DecodeError>;

    /// Applies one command. `time_ms` is the leader's wall clock when it packed the entry, in
    /// milliseconds since 1970; it may step backwards, so the machine clamps it.
    fn apply(&mut self, time_ms: u64, command: &Self::Command) -> Self::Outcome;

    /// Commands applied so far.
    fn revision(&self) -> u64;

    /// Newest time stamp applied, in milliseconds since 1970: a new leader stamps no earlier one.
    fn time_ms(&self) -> u64;

    /// Carries the state into a new group of replicas: all fencing numbers continue above anything that the
    /// old group can have reached by `now_ms`, in milliseconds since 1970. `former` are the members of the
    /// old group, with true for a voter.
    fn carry_over(&mut self, former: &[(Peer, bool)], now_ms: u64);

    /// Writes the whole state. Called on a clone, off the apply path.
    fn write_snapshot(&self, sink: &mut dyn io::Write) -> io::Result<()>;

    /// Reads what [`StateMachine::write_snapshot`] wrote, in this or an older build.
    fn read_snapshot(source: &mut dyn io::Read) -> Result<Self, DecodeError>;

    /// A hash of the whole state, equal on replicas with equal state.
    fn state_hash(&self) -> u64;

    /// Version of the way [`StateMachine::state_hash`] is computed. Replicas compare hashes only
    /// between equal versions, so raise it whenever the hashed structure changes.
    fn state_hash_version() -> u64 {
        1
    }
}
