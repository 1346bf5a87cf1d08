//! A simulated disk: what was not synced is lost at a kill, in whole or from some point on.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use muster_raft_store::disk::{LogChange, LogDisk, MetaKey, SnapshotDisk, SnapshotWrite, Synced};

/// The log of one replica's machine; survives the replica's kills.
#[derive(Clone, Debug)]
pub struct SimDisk {
    medium: Arc<Mutex<Medium>>,
}

/// The disk as one incarnation of the replica sees it: dead after the next kill.
#[derive(Clone, Debug)]
pub struct MountedDisk {
    medium: Arc<Mutex<Medium>>,
    mount: u64,
    sync_latency: Duration,
}

/// What a disk says is durable and is not: a mutant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Deceit {
    /// Nothing: what it says is so.
    #[default]
    None,
    /// Nothing that is synced is durable.
    Syncs,
    /// The snapshot that was published last is not.
    Snapshots,
}

#[derive(Debug, Default)]
struct Medium {
    /// What a reader sees: durable and not yet durable alike.
    visible: Contents,
    /// What survives a kill for certain.
    durable: Contents,
    /// Writes after `durable`, in order; each is atomic.
    pending: Vec<Vec<LogChange>>,
    /// Published snapshots (durable) and staged ones (lost at a kill).
    published: BTreeMap<String, Arc<[u8]>>,
    staged: BTreeMap<String, Arc<[u8]>>,
    /// Counts mounts; an older mount can no longer write.
    mount: u64,
    deceit: Deceit,
    /// Writes and syncs fail while it is set.
    full: bool,
    /// Whether a write of this mount failed because of that.
    ran_out_of_space: bool,
}

#[derive(Clone, Debug, Default)]
struct Contents {
    entries: BTreeMap<u64, Vec<u8>>,
    meta: BTreeMap<MetaKey, Vec<u8>>,
}

impl Contents {
    fn change(&mut self, change: &LogChange) {
        match change {
            LogChange::PutEntry { index, record } => {
                self.entries.insert(*index, record.clone());
            }
            LogChange::RemoveEntries { from, to } => {
                self.entries
                    .retain(|index, _| !(*from..*to).contains(index));
            }
            LogChange::PutMeta { key, record } => {
                self.meta.insert(*key, record.clone());
            }
        }
    }
}

impl SimDisk {
    /// An empty disk; one that deceives models a replica that goes on before what it wrote is durable.
    #[must_use]
    pub fn new(deceit: Deceit) -> Self {
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
        MountedDisk {
            medium: Arc::clone(&self.medium),
            mount: medium.mount,
            sync_latency,
        }
    }

    /// A kill: everything staged is gone, and of the writes that were not synced only the first `kept` of
    /// 1,000 parts are left, because the operating system had written those out by itself. No write is torn:
    /// the real log's batches have checksums. Returns how many writes are lost.
    pub fn kill(&self, kept_permille: usize) -> usize {
        let mut medium = lock(&self.medium);
        medium.mount += 1;
        medium.staged.clear();
        if medium.deceit == Deceit::Snapshots {
            medium.published.pop_last();
        }
        let pending = std::mem::take(&mut medium.pending);
        let kept = pending.len() * kept_permille.min(1_000) / 1_000;
        for change in pending[..kept].iter().flatten() {
            medium.durable.change(change);
        }
        medium.visible = medium.durable.clone();
        pending.len() - kept
    }

    /// Loses everything, as a replaced disk does.
    pub fn wipe(&self) {
        let mut medium = lock(&self.medium);
        let (mount, deceit) = (medium.mount + 1, medium.deceit);
        *medium = Medium {
            mount,
            deceit,
            ..Medium::default()
        };
    }

    /// Whether a write failed for want of space since the disk was mounted last.
    #[must_use]
    pub fn ran_out_of_space(&self) -> bool {
        lock(&self.medium).ran_out_of_space
    }

    /// Lets the disk run full, or frees space.
    pub fn set_full(&self, full: bool) {
        lock(&self.medium).full = full;
    }
}

impl MountedDisk {
    fn writable(&self) -> io::Result<MutexGuard<'_, Medium>> {
        let mut medium = self.readable()?;
        if medium.full {
            medium.ran_out_of_space = true;
            return Err(io::Error::from(io::ErrorKind::StorageFull));
        }
        Ok(medium)
    }

    fn readable(&self) -> io::Result<MutexGuard<'_, Medium>> {
        let medium = lock(&self.medium);
        if medium.mount != self.mount {
            return Err(io::Error::other("this incarnation was killed"));
        }
        Ok(medium)
    }

    fn make_durable(&self, upto: usize) -> io::Result<()> {
        let mut medium = self.writable()?;
        if medium.deceit == Deceit::Syncs {
            return Ok(());
        }
        let count = upto.min(medium.pending.len());
        let synced: Vec<_> = medium.pending.drain(..count).collect();
        for change in synced.iter().flatten() {
            medium.durable.change(change);
        }
        Ok(())
    }
}

impl LogDisk for MountedDisk {
    fn write(&self, changes: Vec<LogChange>) -> io::Result<()> {
        let mut medium = self.writable()?;
        for change in &changes {
            medium.visible.change(change);
        }
        medium.pending.push(changes);
        Ok(())
    }

    fn sync(&self, done: Synced) {
        let disk = self.clone();
        let upto = match self.readable() {
            Ok(medium) => medium.pending.len(),
            Err(dead) => return done(Err(dead)),
        };
        // Syncs of one disk take equally long, so they complete in order, each over what was written
        // before it began.
        let _task = <super::runtime::SimRuntime as openraft_rt::AsyncRuntime>::spawn(async move {
            tokio::time::sleep(disk.sync_latency).await;
            let result = disk.make_durable(upto);
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

// A panic while the lock is held ends the world anyway; what is behind it is plain data.
fn lock(medium: &Mutex<Medium>) -> MutexGuard<'_, Medium> {
    medium.lock().unwrap_or_else(PoisonError::into_inner)
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
        for kept_permille in 0..=1_000 {
            let disk = SimDisk::new(Deceit::None);
            let mounted = disk.mount(Duration::ZERO);
            mounted.write(vec![put(1), put(2), put(3)]).unwrap();
            mounted.write(vec![put(4), put(5)]).unwrap();
            let lost = disk.kill(kept_permille);
            assert!(mounted.write(vec![put(6)]).is_err(), "it was killed");
            let left = disk.mount(Duration::ZERO).read_entries(0, 9, 99).unwrap();
            assert_eq!(left.len(), [5, 3, 0][lost]);
        }
    }
}
