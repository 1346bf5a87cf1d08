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
pub use crate::seams::{Clock, Seams};

/// The asynchronous runtime of a replica.
pub trait Runtime: AsyncRuntime + Send + Sync + fmt::Debug + 'static {}

impl<T: AsyncRuntime + Send + Sync + fmt::Debug + 'static> Runtime for T {}

/// Spawns a task that nobody awaits: it ends with its replica.
pub(crate) fn detach<R: Runtime>(task: impl Future<Output = ()> + Send + 'static) {
    drop(R::spawn(task));
}

/// The runtime of a replica in production: tokio.
pub type ProductionRuntime = openraft::impls::TokioRuntime;
