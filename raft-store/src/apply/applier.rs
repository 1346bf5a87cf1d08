//! openraft's state machine: feeds committed entries to the application.

use std::io;
use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use futures::{Stream, StreamExt as _};
use muster_proto::raft::v1::HashCheck;
use openraft::impls::EntryPayload;
use openraft::storage::{EntryResponder, RaftSnapshotBuilder, RaftStateMachine};
use openraft::{OptionalSend, Snapshot};
use tokio::time::Instant;
use xxhash_rust::xxh3::xxh3_64;

use crate::apply::hash_ledger::HashLedger;
use crate::apply::shared::{Applied, SharedState};
use crate::apply::state_machine::{DecodeError, StateMachine};
use crate::replica::telemetry;
use crate::sim::{AppliedEntry, Observer, Runtime, detach};
use crate::storage::snapshot::{SnapshotFile, SnapshotStore};
use crate::types::{Entry, LeaderId, LogId, Node, Outcomes, SnapshotMeta, StoredMembership, Types};

/// State shared between the applier and the rest of the replica.
pub(crate) struct ApplierParts<M> {
    pub(crate) shared: Arc<SharedState<M>>,
    pub(crate) snapshots: Arc<SnapshotStore>,
    pub(crate) ledger: Arc<HashLedger>,
    /// Bytes of commands applied since the last snapshot was begun.
    pub(crate) bytes_since_snapshot: Arc<AtomicU64>,
    /// Observer of a simulation, if any.
    pub(crate) observer: Option<Arc<dyn Observer<M>>>,
}

impl<M> Clone for ApplierParts<M> {
    fn clone(&self) -> Self {
        Self {
            shared: Arc::clone(&self.shared),
            snapshots: Arc::clone(&self.snapshots),
            ledger: Arc::clone(&self.ledger),
            bytes_since_snapshot: Arc::clone(&self.bytes_since_snapshot),
            observer: self.observer.clone(),
        }
    }
}

/// Applies entries in log order.
pub(crate) struct Applier<M, R> {
    parts: ApplierParts<M>,
    hash_every_entries: u64,
    runtime: PhantomData<fn() -> R>,
}

impl<M: StateMachine, R: Runtime> Applier<M, R> {
    pub(crate) fn new(parts: ApplierParts<M>, hash_every_entries: u64) -> Self {
        Self {
            parts,
            hash_every_entries,
            runtime: PhantomData,
        }
    }

    fn apply_entry(&self, entry: &Entry<M>) -> Outcomes<M> {
        let outcomes = self.parts.shared.update(|applied| {
            applied.last = Some(entry.log_id);
            match &entry.payload {
                EntryPayload::Blank => Vec::new(),
                EntryPayload::Normal(batch) => batch
                    .commands()
                    .iter()
                    .map(|command| applied.state.apply(batch.time_ms(), command))
                    .collect(),
                EntryPayload::Membership(membership) => {
                    applied.membership =
                        StoredMembership::new(Some(entry.log_id), membership.clone());
                    Vec::new()
                }
            }
        });
        if let EntryPayload::Normal(batch) = &entry.payload {
            let bytes = batch.encoded().len() as u64;
            self.parts
                .bytes_since_snapshot
                .fetch_add(bytes, Ordering::Relaxed);
            if let Some(check) = batch.check() {
                self.parts.ledger.expect(*check);
            }
        }
        Outcomes(outcomes)
    }

    /// Notifies the observer of an applied entry.
    fn notify_observer(&self, entry: &Entry<M>, outcomes: &Outcomes<M>) {
        let Some(observer) = &self.parts.observer else {
            return;
        };
        let commands = match &entry.payload {
            EntryPayload::Normal(batch) => batch.commands(),
            EntryPayload::Blank | EntryPayload::Membership(_) => &[],
        };
        observer.applied(&AppliedEntry {
            index: entry.log_id.index,
            term: entry.log_id.leader_id.term,
            leader: entry.log_id.leader_id.node_id,
            digest: digest_of(entry),
            commands,
            outcomes: &outcomes.0,
            state: &self.parts.shared.read().state,
        });
    }

    /// Hashes the state after an index that is due, on a clone and off the apply path.
    fn hash_if_due(&self, id: &LogId) {
        if self.hash_every_entries == 0 || !id.index.is_multiple_of(self.hash_every_entries) {
            return;
        }
        let state = self.parts.shared.read().state.clone();
        let ledger = Arc::clone(&self.parts.ledger);
        let index = id.index;
        let hashing = R::spawn_blocking(move || {
            ledger.record(HashCheck {
                index,
                hash: state.state_hash(),
                hash_version: M::state_hash_version(),
            });
        });
        detach::<R>(async move {
            if let Err(error) = hashing.await {
                tracing::error!(%error, index, "hashing the state failed");
            }
        });
    }

    fn refuse_if_diverged(&self) -> io::Result<()> {
        match &*self.parts.ledger.divergence().borrow() {
            Some(detail) => Err(io::Error::other(detail.clone())),
            None => Ok(()),
        }
    }
}

impl<M: StateMachine, R: Runtime> RaftStateMachine<Types<M, R>> for Applier<M, R> {
    type SnapshotData = SnapshotFile;
    type SnapshotBuilder = Builder<M, R>;

    async fn applied_state(&mut self) -> Result<(Option<LogId>, StoredMembership), io::Error> {
        let applied = self.parts.shared.read();
        Ok((applied.last, applied.membership.clone()))
    }

    async fn apply<S>(&mut self, mut entries: S) -> Result<(), io::Error>
    where
        S: Stream<Item = Result<EntryResponder<Types<M, R>>, io::Error>> + Unpin + OptionalSend,
    {
        let started = Instant::now();
        let mut commands = 0;
        while let Some(item) = entries.next().await {
            self.refuse_if_diverged()?;
            let (entry, responder) = item?;
            let outcomes = self.apply_entry(&entry);
            commands += outcomes.0.len();
            self.notify_observer(&entry, &outcomes);
            if let Some(responder) = responder {
                responder.send(outcomes);
            }
            self.hash_if_due(&entry.log_id);
        }
        telemetry::applied(commands, started.elapsed());
        Ok(())
    }

    async fn get_snapshot_builder(&mut self) -> Self::SnapshotBuilder {
        self.parts.bytes_since_snapshot.store(0, Ordering::Relaxed);
        Builder {
            applied: Some(self.parts.shared.read().clone()),
            snapshots: Arc::clone(&self.parts.snapshots),
            runtime: PhantomData,
        }
    }

    async fn install_snapshot(
        &mut self,
        meta: &SnapshotMeta,
        file: SnapshotFile,
    ) -> Result<(), io::Error> {
        let snapshots = Arc::clone(&self.parts.snapshots);
        let loading = file.clone();
        let loaded = R::spawn_blocking(move || snapshots.load::<M>(&loading)).await?;
        let applied = loaded.map_err(|error| unreadable(&file, &error))?;
        if applied.last != meta.last_log_id {
            let error = DecodeError::malformed("it covers a position other than the announced one");
            return Err(unreadable(&file, &error));
        }
        let (snapshots, publishing) = (Arc::clone(&self.parts.snapshots), file.clone());
        R::spawn_blocking(move || snapshots.publish(&publishing)).await??;
        let old = self
            .parts
            .shared
            .update(|current| std::mem::replace(current, applied));
        if let (Some(observer), Some(last)) = (&self.parts.observer, &meta.last_log_id) {
            observer.installed(last.index, &self.parts.shared.read().state);
        }
        drop_on_blocking_thread::<R, _>(old);
        Ok(())
    }

    async fn get_current_snapshot(
        &mut self,
    ) -> Result<Option<Snapshot<LeaderId, u64, Node, SnapshotFile>>, io::Error> {
        let snapshots = Arc::clone(&self.parts.snapshots);
        let applied = self.parts.shared.read().clone();
        let newest = R::spawn_blocking(move || snapshots.newest_verified(&applied)).await??;
        Ok(newest.map(|(meta, snapshot)| Snapshot { meta, snapshot }))
    }
}

/// Writes a snapshot of the state it was made from.
pub(crate) struct Builder<M, R> {
    applied: Option<Applied<M>>,
    snapshots: Arc<SnapshotStore>,
    runtime: PhantomData<fn() -> R>,
}

impl<M: StateMachine, R: Runtime> RaftSnapshotBuilder<Types<M, R>> for Builder<M, R> {
    type SnapshotData = SnapshotFile;

    async fn build_snapshot(
        &mut self,
    ) -> Result<Snapshot<LeaderId, u64, Node, SnapshotFile>, io::Error> {
        let applied = self
            .applied
            .take()
            .ok_or_else(|| io::Error::other("a snapshot builder builds once"))?;
        let snapshots = Arc::clone(&self.snapshots);
        // Drop the clone on the blocking thread too: releasing 100k entries takes up to 160 ms.
        let (meta, snapshot) = R::spawn_blocking(move || snapshots.write(&applied)).await??;
        Ok(Snapshot { meta, snapshot })
    }
}

/// Hash of an entry's payload.
fn digest_of<M: StateMachine>(entry: &Entry<M>) -> u64 {
    match &entry.payload {
        EntryPayload::Blank => xxh3_64(b"blank"),
        EntryPayload::Normal(batch) => xxh3_64(batch.encoded()),
        EntryPayload::Membership(membership) => xxh3_64(format!("{membership:?}").as_bytes()),
    }
}

fn drop_on_blocking_thread<R: Runtime, T: Send + 'static>(value: T) {
    let dropping = R::spawn_blocking(move || drop(value));
    detach::<R>(async move {
        if let Err(error) = dropping.await {
            tracing::error!(%error, "dropping a replaced state failed");
        }
    });
}

fn unreadable(file: &SnapshotFile, error: &DecodeError) -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidData,
        format!("snapshot {} is unreadable: {error}", file.name),
    )
}
