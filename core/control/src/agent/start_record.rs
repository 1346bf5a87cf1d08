//! Record of started attempts: no attempt is started twice, none after a newer one of its task.

use std::collections::{BTreeMap, BTreeSet};

use muster_model::ids::{AttemptEpoch, TaskKey};

/// Tasks whose newest started epoch is remembered individually after their release. For older ones only the
/// newest epoch is kept, and nothing up to it is started: refusing is always safe.
pub const RELEASED_REMEMBERED_MAX: usize = 4_096;

/// The newest epoch ever started, per task.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Started {
    newest: BTreeMap<TaskKey, AttemptEpoch>,
    by_epoch: BTreeSet<(AttemptEpoch, TaskKey)>,
    forgotten: AttemptEpoch,
}

impl Started {
    /// Whether the record allows an attempt to start.
    pub(super) fn allows(&self, key: TaskKey, epoch: AttemptEpoch) -> bool {
        epoch > self.forgotten && self.newest.get(&key).is_none_or(|newest| epoch > *newest)
    }

    /// Records a start.
    pub(super) fn insert(&mut self, key: TaskKey, epoch: AttemptEpoch) {
        if let Some(older) = self.newest.get(&key).copied() {
            if older >= epoch {
                return;
            }
            self.by_epoch.remove(&(older, key));
        }
        self.newest.insert(key, epoch);
        self.by_epoch.insert((epoch, key));
        while self.newest.len() > RELEASED_REMEMBERED_MAX {
            let Some((oldest, key)) = self.by_epoch.pop_first() else {
                break;
            };
            self.newest.remove(&key);
            self.forgotten = self.forgotten.max(oldest);
        }
    }

    /// Refuses every epoch up to this one.
    pub(super) fn forget(&mut self, up_to: AttemptEpoch) {
        self.forgotten = self.forgotten.max(up_to);
    }

    /// Newest epoch that is refused for every task.
    pub(super) const fn forgotten(&self) -> AttemptEpoch {
        self.forgotten
    }

    /// The newest epoch of every individually remembered task.
    pub(super) fn iter(&self) -> impl Iterator<Item = (TaskKey, AttemptEpoch)> {
        self.newest.iter().map(|(key, epoch)| (*key, *epoch))
    }
}
