//! Interfaces through which a deterministic simulation runs a replica.
//!
//! A simulation supplies a [`Runtime`] (spawn, time, randomness), a [`Transport`], disks ([`crate::storage::memory`]
//! or its own) and a [`Clock`], and opens the same code with [`Environment`]. Every task of a replica is spawned
//! through the runtime, so killing the tasks that a node spawned kills the replica. Nothing in the crate
//! starts an operating-system thread except the RocksDB disk; blocking work goes through [`Runtime`]'s
//! `spawn_blocking`, which a simulation runs in place.

use std::fmt;

pub use openraft::AsyncRuntime;
pub use openraft::async_runtime;

use crate::apply::state_machine::StateMachine;
pub use crate::network::{Transport, TransportError};
pub use crate::recovery::disaster_recovery::FirstMember;
pub use crate::replica::environment::{Clock, Environment};
pub use crate::storage::disk::{LogDisk, SnapshotDisk};

/// The asynchronous runtime of a replica.
pub trait Runtime: AsyncRuntime + Send + Sync + fmt::Debug + 'static {}

impl<T: AsyncRuntime + Send + Sync + fmt::Debug + 'static> Runtime for T {}

/// An entry that a replica has just applied.
#[derive(Debug)]
pub struct AppliedEntry<'a, M: StateMachine> {
    /// Position in the log.
    pub index: u64,
    /// Raft term of the leader that wrote it.
    pub term: u64,
    /// Leader of that term.
    pub leader: u64,
    /// Hash of the entry's payload: Raft's own entries hash their kind and members.
    pub digest: u64,
    /// Commands in the order in which they were applied; empty for Raft's own entries.
    pub commands: &'a [M::Command],
    /// Outcome of each command.
    pub outcomes: &'a [M::Outcome],
    /// State after the entry.
    pub state: &'a M,
}

/// Receives everything that a replica applies, entry by entry and before any proposer is answered: a
/// channel of revisions reports only the newest. For the checkers of a simulation; a replica in production
/// has none.
pub trait Observer<M: StateMachine>: Send + Sync + 'static {
    /// Called after an entry was applied.
    fn applied(&self, entry: &AppliedEntry<'_, M>);

    /// Called after a snapshot that covers the log up to `index` replaced the state.
    fn installed(&self, index: u64, state: &M);
}

/// Spawns a task that is not awaited: it ends with its replica.
pub(crate) fn detach<R: Runtime>(task: impl Future<Output = ()> + Send + 'static) {
    drop(R::spawn(task));
}

/// Runtime of a replica in production: tokio.
pub type ProductionRuntime = openraft::impls::TokioRuntime;
