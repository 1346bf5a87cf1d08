//! Snapshot store of one replica.

use std::fmt;
use std::io::{self, Write as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use muster_proto::raft::v1::SnapshotHeader;
use tokio::time::Instant;

use crate::apply::shared::Applied;
use crate::apply::state_machine::{DecodeError, StateMachine};
use crate::replica::telemetry;
use crate::storage::codec::convert;
use crate::storage::disk::{SnapshotDisk, SnapshotWrite};
use crate::storage::snapshot::format::{SnapshotReader, SnapshotWriter};
use crate::storage::snapshot::verified::VerifiedSnapshot;
use crate::types::{LogId, SnapshotMeta};

/// Suffix of snapshot files.
const SUFFIX: &str = ".snapshot";
/// Fewest published snapshots kept: the newest, and one that a follower may still be reading.
const KEPT_MIN: usize = 2;

/// Snapshot file in its storage; staged until it is published.
#[derive(Clone)]
pub(crate) struct SnapshotFile {
    pub(crate) name: String,
    disk: Arc<dyn SnapshotDisk>,
    trust: Arc<VerifiedSnapshot>,
    // Held, not read: the last clone of an unpublished file removes it.
    staging: Option<Arc<Staging>>,
}

/// Removes a staged file that was not published.
struct Staging {
    name: String,
    disk: Arc<dyn SnapshotDisk>,
    published: AtomicBool,
}

impl Drop for Staging {
    fn drop(&mut self) {
        if self.published.load(Ordering::Acquire) {
            return;
        }
        // A file left behind is removed at the next start.
        if let Err(error) = self.disk.remove(&self.name) {
            tracing::warn!(%error, name = self.name, "a staged snapshot was not removed");
        }
    }
}

impl SnapshotFile {
    /// Reads the file.
    pub(crate) fn open(&self) -> io::Result<Box<dyn io::Read + Send>> {
        self.disk.open(&self.name)
    }

    /// Marks the file as possibly decayed: it is read completely before it is sent again.
    pub(crate) fn mark_suspect(&self) {
        self.trust.mark_suspect(&self.name);
    }
}

impl fmt::Debug for SnapshotFile {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.name)
    }
}

/// Writes, loads and prunes snapshots.
pub(crate) struct SnapshotStore {
    disk: Arc<dyn SnapshotDisk>,
    cluster_id: String,
    /// Number of published snapshots kept.
    kept: usize,
    /// Distinguishes files of one position: two transfers, or a transfer and a snapshot of our own.
    serial: AtomicU64,
    /// Whether the newest snapshot need not be read again.
    trust: Arc<VerifiedSnapshot>,
}

impl SnapshotStore {
    pub(crate) fn new(disk: Arc<dyn SnapshotDisk>, cluster_id: String) -> Self {
        Self {
            disk,
            cluster_id,
            kept: KEPT_MIN,
            serial: AtomicU64::new(0),
            trust: Arc::default(),
        }
    }

    /// Keeps this number of published snapshots, and at least two.
    pub(crate) fn keeping(self, snapshots: usize) -> Self {
        Self {
            kept: snapshots.max(KEPT_MIN),
            ..self
        }
    }

    pub(crate) fn disk(&self) -> &dyn SnapshotDisk {
        &*self.disk
    }

    /// Creates a staged file that covers the log up to `last`, with a unique name. Names sort by position.
    pub(crate) fn create(
        &self,
        last: Option<&LogId>,
    ) -> io::Result<(SnapshotFile, Box<dyn SnapshotWrite>)> {
        let (index, term, node) = last.map_or((0, 0, 0), |id| {
            (id.index, id.leader_id.term, id.leader_id.node_id)
        });
        let published = self.published()?;
        let name = loop {
            let serial = self.serial.fetch_add(1, Ordering::Relaxed);
            let name = format!("{index:020}-{term:020}-{node:020}-{serial:010}{SUFFIX}");
            // An earlier run may have used the number.
            if !published.contains(&name) {
                break name;
            }
        };
        let writer = self.disk.create(&name)?;
        let staging = Staging {
            name: name.clone(),
            disk: Arc::clone(&self.disk),
            published: AtomicBool::new(false),
        };
        let file = SnapshotFile {
            staging: Some(Arc::new(staging)),
            ..self.file_named(name)
        };
        Ok((file, writer))
    }

    /// The published file of that name.
    pub(crate) fn file_named(&self, name: String) -> SnapshotFile {
        SnapshotFile {
            name,
            disk: Arc::clone(&self.disk),
            trust: Arc::clone(&self.trust),
            staging: None,
        }
    }

    /// The published snapshot with the highest position.
    pub(crate) fn newest(&self) -> io::Result<Option<SnapshotFile>> {
        let names = self.published()?;
        Ok(names
            .into_iter()
            .next_back()
            .map(|name| self.file_named(name)))
    }

    /// All published snapshots, oldest first.
    pub(crate) fn all(&self) -> io::Result<Vec<SnapshotFile>> {
        let names = self.published()?.into_iter();
        Ok(names.map(|name| self.file_named(name)).collect())
    }

    /// Writes and publishes the state.
    pub(crate) fn write<M: StateMachine>(
        &self,
        applied: &Applied<M>,
    ) -> io::Result<(SnapshotMeta, SnapshotFile)> {
        let started = Instant::now();
        let (file, staged) = self.create(applied.last.as_ref())?;
        let header = SnapshotHeader {
            cluster_id: self.cluster_id.clone(),
            last: applied.last.as_ref().map(convert::log_id_to_proto),
            membership: Some(convert::stored_membership_to_proto(&applied.membership)),
            revision: applied.state.revision(),
        };
        let mut writer = SnapshotWriter::start(staged, &header)?;
        applied.state.write_snapshot(&mut writer)?;
        writer.flush()?;
        let staged: Box<dyn SnapshotWrite> = writer.finish()?;
        staged.finish()?;
        self.publish(&file)?;
        telemetry::snapshot_written(started.elapsed());
        let meta = SnapshotMeta {
            last_log_id: applied.last,
            last_membership: applied.membership.clone(),
        };
        Ok((meta, file))
    }

    /// Publishes a finished file, of this or another disk, as the replica's own and removes outdated
    /// snapshots.
    pub(crate) fn publish(&self, file: &SnapshotFile) -> io::Result<()> {
        if !Arc::ptr_eq(&self.disk, &file.disk) {
            let mut copy = self.disk.create(&file.name)?;
            io::copy(&mut file.open()?, &mut copy)?;
            copy.finish()?;
        }
        self.disk.publish(&file.name)?;
        if let Some(staging) = &file.staging {
            staging.published.store(true, Ordering::Release);
        }
        let names = self.published()?;
        for name in names.iter().rev().skip(self.kept) {
            self.disk.remove(name)?;
        }
        Ok(())
    }

    /// The newest snapshot, verified, with its metadata. One that has decayed on the disk since it was
    /// written is replaced by a new one of `applied`: the caller is about to send it to a replica that
    /// depends on it. It is read completely only from time to time, and once it is in doubt: its receiver
    /// verifies all of it as well.
    pub(crate) fn newest_verified<M: StateMachine>(
        &self,
        applied: &Applied<M>,
    ) -> io::Result<Option<(SnapshotMeta, SnapshotFile)>> {
        let Some(file) = self.newest()? else {
            return Ok(None);
        };
        let damage = match self.check_unless_trusted(&file) {
            Ok(meta) => return Ok(Some((meta, file))),
            Err(damage) => damage,
        };
        tracing::error!(
            snapshot = file.name,
            %damage,
            "the newest snapshot has decayed on this replica's disk and is rewritten from memory: check that disk"
        );
        telemetry::snapshot_decayed();
        let written = self.write(applied)?;
        self.disk.remove(&file.name)?;
        Ok(Some(written))
    }

    fn check_unless_trusted(&self, file: &SnapshotFile) -> Result<SnapshotMeta, DecodeError> {
        if self.trust.covers(&file.name) {
            return self.read_meta(file);
        }
        let meta = self.check(file)?;
        self.trust.mark_verified(&file.name);
        Ok(meta)
    }

    /// Reads all of a file, published or not, and verifies its checksums; returns its metadata.
    pub(crate) fn check(&self, file: &SnapshotFile) -> Result<SnapshotMeta, DecodeError> {
        let reader = self.start(file)?;
        let meta = to_meta(reader.header())?;
        reader.check()?;
        Ok(meta)
    }

    /// Reads the metadata of a snapshot.
    pub(crate) fn read_meta(&self, file: &SnapshotFile) -> Result<SnapshotMeta, DecodeError> {
        let reader = self.start(file)?;
        to_meta(reader.header())
    }

    /// Reads the revision of a snapshot and the last log index that it covers.
    pub(crate) fn read_position(
        &self,
        file: &SnapshotFile,
    ) -> Result<(u64, Option<LogId>), DecodeError> {
        let reader = self.start(file)?;
        let header = reader.header();
        Ok((header.revision, convert::optional_log_id(header.last)?))
    }

    /// Loads a snapshot and verifies all of it.
    pub(crate) fn load<M: StateMachine>(
        &self,
        file: &SnapshotFile,
    ) -> Result<Applied<M>, DecodeError> {
        let loaded = self.read_state(file);
        if loaded.is_err() {
            file.mark_suspect();
        }
        loaded
    }

    fn read_state<M: StateMachine>(&self, file: &SnapshotFile) -> Result<Applied<M>, DecodeError> {
        let mut reader = self.start(file)?;
        let meta = to_meta(reader.header())?;
        let revision = reader.header().revision;
        let state = M::read_snapshot(&mut reader)?;
        reader.finish()?;
        if state.revision() != revision {
            return Err(DecodeError::malformed(format!(
                "its state has revision {}, its header says {revision}",
                state.revision()
            )));
        }
        Ok(Applied {
            state,
            last: meta.last_log_id,
            membership: meta.last_membership,
        })
    }

    fn start(
        &self,
        file: &SnapshotFile,
    ) -> Result<SnapshotReader<Box<dyn io::Read + Send>>, DecodeError> {
        let reader = SnapshotReader::start(file.open()?)?;
        let found = &reader.header().cluster_id;
        if *found != self.cluster_id {
            return Err(DecodeError::malformed(format!(
                "it belongs to cluster {found:?}"
            )));
        }
        Ok(reader)
    }

    fn published(&self) -> io::Result<Vec<String>> {
        let mut names = self.disk.list()?;
        names.retain(|name| name.ends_with(SUFFIX));
        Ok(names)
    }
}

/// Reads a file as [`SnapshotStore::load`] does, of any cluster; returns it as this build encodes it.
pub(crate) fn reread<M: StateMachine>(bytes: &[u8]) -> Result<Vec<u8>, DecodeError> {
    let mut reader = SnapshotReader::start(bytes)?;
    let header = reader.header().clone();
    let meta = to_meta(&header)?;
    let state = M::read_snapshot(&mut reader)?;
    reader.finish()?;
    let header = SnapshotHeader {
        last: meta.last_log_id.as_ref().map(convert::log_id_to_proto),
        membership: Some(convert::stored_membership_to_proto(&meta.last_membership)),
        ..header
    };
    let mut writer = SnapshotWriter::start(Vec::new(), &header)?;
    state.write_snapshot(&mut writer)?;
    Ok(writer.finish()?)
}

fn to_meta(header: &SnapshotHeader) -> Result<SnapshotMeta, DecodeError> {
    Ok(SnapshotMeta {
        last_log_id: convert::optional_log_id(header.last)?,
        last_membership: convert::stored_membership_from_proto(header.membership.clone())?,
    })
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use std::io::Read;
    use std::sync::atomic::AtomicUsize;

    use super::super::verified::TRUST_MAX;
    use super::*;
    use crate::counter::{Add, Counter};
    use crate::storage::memory::MemorySnapshots;
    use crate::types::{LeaderId, StoredMembership};

    /// Counts the files that are read to their end.
    #[derive(Default)]
    struct Counting {
        files: MemorySnapshots,
        read_whole: Arc<AtomicUsize>,
    }

    impl Counting {
        fn read_whole(&self) -> usize {
            self.read_whole.load(Ordering::Relaxed)
        }

        /// Flips a bit in the part that is not read while the file is trusted.
        fn decay(&self, name: &str) {
            let mut bytes = self.files.bytes(name).unwrap();
            *bytes.last_mut().unwrap() ^= 1;
            self.files.insert(name, bytes);
        }
    }

    struct Reading {
        file: Box<dyn Read + Send>,
        left: usize,
        read_whole: Arc<AtomicUsize>,
    }

    impl Read for Reading {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let read = self.file.read(buffer)?;
            self.left -= read;
            if read > 0 && self.left == 0 {
                self.read_whole.fetch_add(1, Ordering::Relaxed);
            }
            Ok(read)
        }
    }

    impl SnapshotDisk for Counting {
        fn create(&self, name: &str) -> io::Result<Box<dyn SnapshotWrite>> {
            self.files.create(name)
        }

        fn publish(&self, name: &str) -> io::Result<()> {
            self.files.publish(name)
        }

        fn open(&self, name: &str) -> io::Result<Box<dyn Read + Send>> {
            Ok(Box::new(Reading {
                file: self.files.open(name)?,
                left: self.files.bytes(name).unwrap().len(),
                read_whole: Arc::clone(&self.read_whole),
            }))
        }

        fn list(&self) -> io::Result<Vec<String>> {
            self.files.list()
        }

        fn remove(&self, name: &str) -> io::Result<()> {
            self.files.remove(name)
        }

        fn discard_staged(&self) -> io::Result<()> {
            self.files.discard_staged()
        }
    }

    /// A state after the log up to an index.
    fn applied(index: u64) -> Applied<Counter> {
        let mut state = Counter::default();
        state.apply(1_700_000_000_000, &Add::new("a", 1));
        let leader = LeaderId {
            term: 1,
            node_id: 1,
        };
        Applied {
            state,
            last: Some(LogId::new(leader, index)),
            membership: StoredMembership::default(),
        }
    }

    fn store() -> (Arc<Counting>, SnapshotStore) {
        let disk = Arc::new(Counting::default());
        let store = SnapshotStore::new(Arc::clone(&disk) as _, "test".to_owned());
        (disk, store)
    }

    /// Name of the snapshot that would be sent, requested as often as while a member is down.
    fn newest_of_many(store: &SnapshotStore) -> String {
        let ask = || store.newest_verified(&applied(9)).unwrap().unwrap().1.name;
        let name = ask();
        for _ in 0..100 {
            assert_eq!(ask(), name);
        }
        name
    }

    #[tokio::test(start_paused = true)]
    async fn the_newest_snapshot_is_verified_periodically_however_often_it_is_requested() {
        let (disk, store) = store();
        let (_, first) = store.write(&applied(9)).unwrap();
        assert_eq!(newest_of_many(&store), first.name);
        assert_eq!(disk.read_whole(), 1);
        tokio::time::advance(TRUST_MAX).await;
        assert_eq!(newest_of_many(&store), first.name);
        assert_eq!(disk.read_whole(), 2);
        let (_, second) = store.write(&applied(10)).unwrap();
        assert_eq!(newest_of_many(&store), second.name);
        assert_eq!(disk.read_whole(), 3);
    }

    #[tokio::test(start_paused = true)]
    async fn a_decayed_snapshot_is_found_on_suspicion_and_by_the_periodic_check() {
        let (disk, store) = store();
        let (_, first) = store.write(&applied(9)).unwrap();
        assert_eq!(newest_of_many(&store), first.name);
        disk.decay(&first.name);
        assert_eq!(
            newest_of_many(&store),
            first.name,
            "its receiver rejects it"
        );
        first.mark_suspect();
        let second = newest_of_many(&store);
        assert_ne!(second, first.name);

        disk.decay(&second);
        tokio::time::advance(TRUST_MAX).await;
        let third = newest_of_many(&store);
        assert_ne!(third, second);

        disk.decay(&third);
        let loaded = store.load::<Counter>(&store.file_named(third.clone()));
        assert!(loaded.is_err());
        assert_ne!(
            newest_of_many(&store),
            third,
            "a detected defect revokes trust"
        );
    }
}
