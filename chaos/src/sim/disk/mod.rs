//! Simulated disk: a kill loses unsynced data, entirely or from some byte on. It can be full, fail or
//! stall, and its contents can decay.

mod journal;
mod medium;

use std::io::{self, Read, Write};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use medium::{Medium, lock};
use muster_raft_store::storage::disk::{
    LogChange, LogDisk, MetaKey, SnapshotDisk, SnapshotWrite, Synced,
};
use tokio::time::Instant;

/// Interval at which a sync checks whether its turn has come.
const STALL_LOOK: Duration = Duration::from_millis(20);

/// Disk of one replica's machine; survives the replica's kills.
#[derive(Clone, Debug)]
pub struct SimDisk {
    medium: Arc<Mutex<Medium>>,
}

/// The disk as mounted by one incarnation of the replica: unusable after the next kill.
#[derive(Clone, Debug)]
pub struct MountedDisk {
    medium: Arc<Mutex<Medium>>,
    mount: u64,
    sync_latency: Duration,
}

/// Data that a disk reports as durable although it is not: a mutant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FalseDurability {
    /// No deceit.
    #[default]
    None,
    /// No synced data is durable.
    Syncs,
    /// The snapshot published last is not durable.
    Snapshots,
    /// The newest votes are not durable.
    Votes,
    /// Data given to a failing disk is not durable, and no error is reported: the replica continues after
    /// the failure.
    Errors,
}

/// Data lost from a disk by a kill.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Loss {
    /// Number of lost writes, including a torn one.
    pub writes: usize,
    /// Whether a part of one of them was on the disk.
    pub is_torn: bool,
}

/// Fault of a disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiskFault {
    /// Writes and syncs fail for lack of space.
    pub full: bool,
    /// Writes and syncs fail with an I/O error.
    pub failing: bool,
    /// Syncs do not complete.
    pub stalled: bool,
}

impl SimDisk {
    /// An empty disk; a deceitful one models a replica that continues before its writes are durable.
    #[must_use]
    pub fn new(deceit: FalseDurability) -> Self {
        let medium = Medium {
            deceit,
            ..Medium::default()
        };
        Self {
            medium: Arc::new(Mutex::new(medium)),
        }
    }

    /// Opens the disk for a new incarnation.
    #[must_use]
    pub fn mount(&self, sync_latency: Duration) -> MountedDisk {
        let mut medium = lock(&self.medium);
        medium.mount += 1;
        medium.ran_out_of_space = false;
        medium.failed = None;
        medium.was_damaged = medium.damage.is_some();
        medium.made_durable = 0;
        medium.syncs_asked = 0;
        medium.syncs_done = 0;
        MountedDisk {
            medium: Arc::clone(&self.medium),
            mount: medium.mount,
            sync_latency,
        }
    }

    /// Simulates a kill: all staged data is lost, and of the bytes of unsynced writes only the first
    /// `kept_permille` thousandths remain, which the operating system had written out by itself. The write
    /// at the cut is torn; the next reader detects it by its checksum and continues with the writes before
    /// it.
    pub fn kill(&self, kept_permille: usize) -> Loss {
        let mut medium = lock(&self.medium);
        medium.mount += 1;
        medium.staged.clear();
        if medium.deceit == FalseDurability::Snapshots {
            medium.published.pop_last();
        }
        let pending = std::mem::take(&mut medium.pending);
        let written: Vec<u8> = pending
            .iter()
            .flat_map(|write| journal::frame(write))
            .collect();
        let kept = written.len() * kept_permille.min(1_000) / 1_000;
        let found = journal::read(&written[..kept]);
        for change in found.writes.iter().flatten() {
            medium.durable.change(change);
        }
        if medium.deceit == FalseDurability::Votes {
            medium.durable.forget_votes();
        }
        medium.visible = medium.durable.clone();
        Loss {
            writes: pending.len() - found.writes.len(),
            is_torn: found.is_torn,
        }
    }

    /// Makes all written data durable, like a tool that exits only then.
    pub fn settle(&self) {
        let mut medium = lock(&self.medium);
        for change in std::mem::take(&mut medium.pending).iter().flatten() {
            medium.durable.change(change);
        }
    }

    /// Loses everything, like a replaced disk.
    pub fn wipe(&self) {
        let mut medium = lock(&self.medium);
        let (mount, deceit) = (medium.mount + 1, medium.deceit);
        *medium = Medium {
            mount,
            deceit,
            ..Medium::default()
        };
    }

    /// Whether a write failed for lack of space since the last mount.
    #[must_use]
    pub fn ran_out_of_space(&self) -> bool {
        lock(&self.medium).ran_out_of_space
    }

    /// Time of the first log write or sync since the last mount that failed because of the disk.
    #[must_use]
    pub fn failed(&self) -> Option<Instant> {
        lock(&self.medium).failed
    }

    /// Whether the disk decayed since the last mount, or was damaged then.
    #[must_use]
    pub fn was_damaged(&self) -> bool {
        lock(&self.medium).was_damaged
    }

    /// Changes the condition of the disk.
    pub fn set_condition(&self, change: impl FnOnce(&mut DiskFault)) {
        change(&mut lock(&self.medium).condition);
    }

    /// Flips a bit of an entry of the log or, now and then, of the newest snapshot; returns false if there
    /// is neither, or if the disk is already damaged.
    #[must_use]
    pub fn decay(&self, at: u32) -> bool {
        lock(&self.medium).decay(at as usize)
    }

    /// Whether the damaged content is still there.
    #[must_use]
    pub fn is_damaged(&self) -> bool {
        lock(&self.medium).is_damaged()
    }

    /// Restores the damaged content, if it is still there.
    pub fn restore(&self) {
        lock(&self.medium).restore();
    }
}

impl MountedDisk {
    fn writable(&self) -> io::Result<MutexGuard<'_, Medium>> {
        let mut medium = self.readable()?;
        match medium.refusal() {
            Some(refusal) => Err(refusal),
            None => Ok(medium),
        }
    }

    /// Lock for log writes; an error must stop the replica.
    fn log_writable(&self) -> io::Result<MutexGuard<'_, Medium>> {
        let mut medium = self.readable()?;
        if medium.condition.failing {
            medium.failed.get_or_insert_with(Instant::now);
        }
        let Some(refusal) = medium.refusal() else {
            return Ok(medium);
        };
        Err(refusal)
    }

    /// Waits for a sync's turn on a disk that may stall.
    async fn await_turn(&self, ticket: u64) -> io::Result<()> {
        tokio::time::sleep(self.sync_latency).await;
        loop {
            {
                let medium = self.readable()?;
                if !medium.condition.stalled && medium.syncs_done == ticket {
                    return Ok(());
                }
            }
            tokio::time::sleep(STALL_LOOK).await;
        }
    }

    fn readable(&self) -> io::Result<MutexGuard<'_, Medium>> {
        let medium = lock(&self.medium);
        if medium.mount != self.mount {
            return Err(io::Error::other("this incarnation was killed"));
        }
        Ok(medium)
    }

    fn make_durable(&self, upto: usize) -> io::Result<()> {
        let mut medium = self.log_writable()?;
        if medium.deceit == FalseDurability::Syncs {
            return Ok(());
        }
        let is_lost = medium.condition.failing;
        let count = upto.saturating_sub(medium.made_durable);
        let synced: Vec<_> = medium.pending.drain(..count).collect();
        medium.made_durable += count;
        for change in synced.iter().flatten().filter(|_| !is_lost) {
            medium.durable.change(change);
        }
        Ok(())
    }
}

impl LogDisk for MountedDisk {
    fn write(&self, changes: Vec<LogChange>) -> io::Result<()> {
        let mut medium = self.log_writable()?;
        for change in &changes {
            medium.visible.change(change);
        }
        medium.pending.push(changes);
        Ok(())
    }

    fn sync(&self, done: Synced) {
        let disk = self.clone();
        let (upto, ticket) = match self.readable() {
            Ok(mut medium) => {
                medium.syncs_asked += 1;
                let upto = medium.made_durable + medium.pending.len();
                (upto, medium.syncs_asked - 1)
            }
            Err(dead) => return done(Err(dead)),
        };
        // Syncs of one disk complete in order, each covering the writes before its start.
        let _task = <super::runtime::SimRuntime as openraft_rt::AsyncRuntime>::spawn(async move {
            let turn = disk.await_turn(ticket).await;
            let result = turn.and_then(|()| disk.make_durable(upto));
            if let Ok(mut medium) = disk.readable() {
                medium.syncs_done += 1;
            }
            done(result);
        });
    }

    fn read_entries(
        &self,
        from: u64,
        to: u64,
        bytes_max: usize,
    ) -> io::Result<Vec<(u64, Vec<u8>)>> {
        let medium = self.readable()?;
        let mut records: Vec<(u64, Vec<u8>)> = Vec::new();
        let mut bytes = 0;
        for (index, record) in medium.visible.entries.range(from..to.max(from)) {
            let hole = records.last().is_some_and(|(last, _)| last + 1 != *index);
            if hole || (!records.is_empty() && bytes + record.len() > bytes_max) {
                break;
            }
            bytes += record.len();
            records.push((*index, record.clone()));
        }
        Ok(records)
    }

    fn last_entry(&self) -> io::Result<Option<(u64, Vec<u8>)>> {
        let medium = self.readable()?;
        Ok(medium
            .visible
            .entries
            .last_key_value()
            .map(|(index, record)| (*index, record.clone())))
    }

    fn read_meta(&self, key: MetaKey) -> io::Result<Option<Vec<u8>>> {
        Ok(self.readable()?.visible.meta.get(&key).cloned())
    }
}

impl SnapshotDisk for MountedDisk {
    fn create(&self, name: &str) -> io::Result<Box<dyn SnapshotWrite>> {
        drop(self.writable()?);
        Ok(Box::new(StagedSnapshot {
            disk: self.clone(),
            name: name.to_owned(),
            bytes: Vec::new(),
        }))
    }

    fn publish(&self, name: &str) -> io::Result<()> {
        let mut medium = self.writable()?;
        let bytes = medium.staged.remove(name).ok_or(io::ErrorKind::NotFound)?;
        medium.published.insert(name.to_owned(), bytes);
        Ok(())
    }

    fn open(&self, name: &str) -> io::Result<Box<dyn Read + Send>> {
        let medium = self.readable()?;
        let found = medium
            .published
            .get(name)
            .or_else(|| medium.staged.get(name));
        let bytes = Arc::clone(found.ok_or(io::ErrorKind::NotFound)?);
        Ok(Box::new(io::Cursor::new(bytes)))
    }

    fn list(&self) -> io::Result<Vec<String>> {
        Ok(self.readable()?.published.keys().cloned().collect())
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let mut medium = self.writable()?;
        medium.published.remove(name);
        medium.staged.remove(name);
        Ok(())
    }

    fn discard_staged(&self) -> io::Result<()> {
        self.writable()?.staged.clear();
        Ok(())
    }
}

struct StagedSnapshot {
    disk: MountedDisk,
    name: String,
    bytes: Vec<u8>,
}

impl Write for StagedSnapshot {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl SnapshotWrite for StagedSnapshot {
    fn finish(self: Box<Self>) -> io::Result<()> {
        let mut medium = self.disk.writable()?;
        medium
            .staged
            .insert(self.name.clone(), Arc::from(self.bytes.as_slice()));
        Ok(())
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    fn put(index: u64) -> LogChange {
        LogChange::PutEntry {
            index,
            record: Vec::new(),
        }
    }

    #[test]
    fn a_kill_loses_whole_writes_from_some_point_on() {
        let mut torn = 0;
        for kept_permille in 0..=1_000 {
            let disk = SimDisk::new(FalseDurability::None);
            let mounted = disk.mount(Duration::ZERO);
            mounted.write(vec![put(1), put(2), put(3)]).unwrap();
            mounted.write(vec![put(4), put(5)]).unwrap();
            let lost = disk.kill(kept_permille);
            assert!(
                mounted.write(vec![put(6)]).is_err(),
                "the replica was killed"
            );
            let left = disk.mount(Duration::ZERO).read_entries(0, 9, 99).unwrap();
            assert_eq!(left.len(), [5, 3, 0][lost.writes]);
            torn += usize::from(lost.is_torn);
        }
        assert!(torn > 500, "{torn} of 1,001 cuts tore a write");
    }

    #[test]
    fn a_sync_covers_what_was_written_before_it_began_and_no_more() {
        let disk = SimDisk::new(FalseDurability::None);
        let mounted = disk.mount(Duration::ZERO);
        mounted.write(vec![put(1)]).unwrap();
        mounted.write(vec![put(2)]).unwrap();
        // Two syncs cover both; a third write arrives before the second sync is done.
        mounted.make_durable(2).unwrap();
        mounted.write(vec![put(3)]).unwrap();
        mounted.make_durable(2).unwrap();
        assert_eq!(disk.kill(0).writes, 1);
    }

    #[test]
    fn decayed_bytes_are_restored_where_they_still_exist() {
        let disk = SimDisk::new(FalseDurability::None);
        assert!(!disk.decay(3), "the disk is empty");
        let mounted = disk.mount(Duration::ZERO);
        let record = vec![7; 4];
        let put = |record: &[u8]| LogChange::PutEntry {
            index: 1,
            record: record.to_vec(),
        };
        mounted.write(vec![put(&record)]).unwrap();
        mounted.make_durable(1).unwrap();
        assert!(disk.decay(3) && disk.is_damaged() && disk.was_damaged());
        let read = |disk: &MountedDisk| disk.read_entries(1, 2, 99).unwrap()[0].1.clone();
        assert_eq!(read(&mounted), [15, 7, 7, 7]);
        disk.restore();
        assert_eq!((read(&mounted), disk.is_damaged()), (record.clone(), false));
        // Replaced by another entry meanwhile.
        assert!(disk.decay(3));
        mounted.write(vec![put(&[1])]).unwrap();
        assert!(!disk.is_damaged());
        disk.restore();
        assert_eq!(read(&mounted), [1]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_failing_disk_says_so_unless_it_deceives() {
        let honest = SimDisk::new(FalseDurability::None);
        let mounted = honest.mount(Duration::ZERO);
        honest.set_condition(|now| now.failing = true);
        assert!(mounted.write(vec![put(1)]).is_err() && honest.failed().is_some());
        let deceitful = SimDisk::new(FalseDurability::Errors);
        let mounted = deceitful.mount(Duration::ZERO);
        deceitful.set_condition(|now| now.failing = true);
        mounted.write(vec![put(1)]).unwrap();
        mounted.make_durable(1).unwrap();
        deceitful.kill(1_000);
        let left = deceitful.mount(Duration::ZERO).last_entry().unwrap();
        assert_eq!(left, None);
    }
}
