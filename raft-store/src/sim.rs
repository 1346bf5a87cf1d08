//! The seams through which a deterministic simulation runs a replica.
//!
//! A simulation supplies a [`Runtime`] (spawn, time, randomness), a [`Transport`], disks
//! ([`crate::memory`] or its own) and a [`Clock`], and opens the same code with [`Seams`].
//! Every task of a replica is spawned through the runtime, so killing the tasks that a node
//! spawned kills the replica. Nothing in the crate starts an operating-system thread except the
//! RocksDB disk; blocking work goes through [`Runtime`]'s `spawn_blocking`, which a simulation
//! runs in place.

use std::fmt;

pub use openraft::AsyncRuntime;
pub use openraft::async_runtime;

pub use crate::disk::{LogDisk, SnapshotDisk};
pub use crate::network::{Transport, TransportError};
pub use crate::refound::Founder;
pub use crate::seams::{Clock, Seams};
use crate::state_machine::StateMachine;

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
    /// The replica that led in that term.
    pub leader: u64,
    /// Hash of what it carries: entries of Raft itself hash their kind and members.
    pub digest: u64,
    /// The commands, in the order in which they were applied; none of an entry of Raft itself.
    pub commands: &'a [M::Command],
    /// What each command came to.
    pub outcomes: &'a [M::Outcome],
    /// The state behind it.
    pub state: &'a M,
}

/// Sees everything that a replica applies, entry by entry and before anybody is answered: a channel of revisions tells only of
/// the newest. For the judges of a simulation; a replica in production has none.
pub trait Observer<M: StateMachine>: Send + Sync + 'static {
    /// An entry was applied.
    fn applied(&self, entry: &AppliedEntry<'_, M>);

    /// A snapshot that covers the log up to `index` took the place of the state.
    fn installed(&self, index: u64, state: &M);
}

/// Spawns a task that nobody awaits: it ends with its replica.
pub(crate) fn detach<R: Runtime>(task: impl Future<Output = ()> + Send + 'static) {
    drop(R::spawn(task));
}

/// The runtime of a replica in production: tokio.
pub type ProductionRuntime = openraft::impls::TokioRuntime;
