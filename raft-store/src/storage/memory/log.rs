//! In-memory log that distinguishes written from durable data.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::{fmt, io};

use crate::storage::disk::{LogChange, LogDisk, MetaKey, Synced};

/// Runs a job after the duration of a sync.
pub type SyncSchedule = Arc<dyn Fn(Box<dyn FnOnce() + Send>) + Send + Sync>;

#[derive(Debug, Clone, Default)]
struct Tables {
    entries: BTreeMap<u64, Vec<u8>>,
    meta: BTreeMap<MetaKey, Vec<u8>>,
}

impl Tables {
    fn apply(&mut self, changes: Vec<LogChange>) {
        for change in changes {
            match change {
                LogChange::PutEntry { index, record } => {
                    self.entries.insert(index, record);
                }
                LogChange::RemoveEntries { from, to } => {
                    self.entries
                        .retain(|index, _| *index < from || *index >= to);
                }
                LogChange::PutMeta { key, record } => {
                    self.meta.insert(key, record);
                }
            }
        }
    }
}

#[derive(Default)]
struct LogState {
    visible: Tables,
    durable: Tables,
    /// Writes not covered by a sync, oldest first.
    unsynced: Vec<Vec<LogChange>>,
    /// Number of writes covered by syncs since the disk was opened.
    synced: u64,
    failure: Option<io::ErrorKind>,
}

impl LogState {
    /// Makes everything up to the `until`-th write durable.
    fn promote(&mut self, until: u64) {
        while self.synced < until && !self.unsynced.is_empty() {
            let changes = self.unsynced.remove(0);
            self.durable.apply(changes);
            self.synced += 1;
        }
    }

    fn check(&self) -> io::Result<()> {
        match self.failure {
            Some(kind) => Err(io::Error::from(kind)),
            None => Ok(()),
        }
    }
}

/// A log in memory.
#[derive(Clone)]
pub struct MemoryLog {
    state: Arc<Mutex<LogState>>,
    schedule: SyncSchedule,
}

impl Default for MemoryLog {
    fn default() -> Self {
        Self::new()
    }
}

impl MemoryLog {
    /// An empty log whose syncs complete at once.
    pub fn new() -> Self {
        Self::with_schedule(Arc::new(|job| job()))
    }

    /// An empty log whose syncs complete when `schedule` runs them. A simulation runs them later,
    /// in order, on a task of the node, so that a kill cancels them.
    pub fn with_schedule(schedule: SyncSchedule) -> Self {
        Self {
            state: Arc::default(),
            schedule,
        }
    }

    /// The disk after a crash: only synced data. The old one no longer changes it.
    pub fn restart(&self, schedule: SyncSchedule) -> Self {
        let durable = self.state().durable.clone();
        let state = LogState {
            visible: durable.clone(),
            durable,
            ..LogState::default()
        };
        Self {
            state: Arc::new(Mutex::new(state)),
            schedule,
        }
    }

    /// Makes every write and sync from now on fail, as a full or broken disk does.
    pub fn fail(&self, kind: io::ErrorKind) {
        self.state().failure = Some(kind);
    }

    fn state(&self) -> MutexGuard<'_, LogState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl LogDisk for MemoryLog {
    fn write(&self, changes: Vec<LogChange>) -> io::Result<()> {
        let mut state = self.state();
        state.check()?;
        state.visible.apply(changes.clone());
        state.unsynced.push(changes);
        Ok(())
    }

    fn sync(&self, done: Synced) {
        let until = {
            let state = self.state();
            state.synced + state.unsynced.len() as u64
        };
        let disk = Arc::clone(&self.state);
        (self.schedule)(Box::new(move || {
            let result = {
                let mut state = disk.lock().unwrap_or_else(PoisonError::into_inner);
                let result = state.check();
                if result.is_ok() {
                    state.promote(until);
                }
                result
            };
            done(result);
        }));
    }

    fn read_entries(
        &self,
        from: u64,
        to: u64,
        bytes_max: usize,
    ) -> io::Result<Vec<(u64, Vec<u8>)>> {
        let state = self.state();
        let mut records: Vec<(u64, Vec<u8>)> = Vec::new();
        let mut bytes = 0;
        if from >= to {
            return Ok(records);
        }
        for (&index, record) in state.visible.entries.range(from..to) {
            let hole = records.last().is_some_and(|(last, _)| last + 1 != index);
            if hole || (!records.is_empty() && bytes + record.len() > bytes_max) {
                break;
            }
            bytes += record.len();
            records.push((index, record.clone()));
        }
        Ok(records)
    }

    fn last_entry(&self) -> io::Result<Option<(u64, Vec<u8>)>> {
        let state = self.state();
        let last = state.visible.entries.last_key_value();
        Ok(last.map(|(index, record)| (*index, record.clone())))
    }

    fn read_meta(&self, key: MetaKey) -> io::Result<Option<Vec<u8>>> {
        Ok(self.state().visible.meta.get(&key).cloned())
    }
}

impl fmt::Debug for MemoryLog {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("MemoryLog").finish_non_exhaustive()
    }
}
