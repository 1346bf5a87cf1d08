//! The applied state, written by the applier and read by all others.

use std::sync::{PoisonError, RwLock, RwLockReadGuard};

use tokio::sync::watch;

use crate::apply::state_machine::StateMachine;
use crate::types::{LogId, StoredMembership};

/// State machine with its log position.
#[derive(Clone)]
pub(crate) struct Applied<M> {
    pub(crate) state: M,
    pub(crate) last: Option<LogId>,
    pub(crate) membership: StoredMembership,
}

impl<M: StateMachine> Default for Applied<M> {
    fn default() -> Self {
        Self {
            state: M::default(),
            last: None,
            membership: StoredMembership::default(),
        }
    }
}

/// The applied state behind a lock that is never held over an await.
pub(crate) struct SharedState<M> {
    applied: RwLock<Applied<M>>,
    revision: watch::Sender<u64>,
}

impl<M: StateMachine> SharedState<M> {
    pub(crate) fn new(applied: Applied<M>) -> Self {
        let revision = watch::Sender::new(applied.state.revision());
        Self {
            applied: RwLock::new(applied),
            revision,
        }
    }

    /// Returns read access. A panic while writing would have stopped the replica, so lock poisoning is
    /// ignored.
    pub(crate) fn read(&self) -> RwLockReadGuard<'_, Applied<M>> {
        self.applied.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the state, then notifies the watchers of its revision.
    pub(crate) fn update<T>(&self, change: impl FnOnce(&mut Applied<M>) -> T) -> T {
        let mut applied = self.applied.write().unwrap_or_else(PoisonError::into_inner);
        let result = change(&mut applied);
        let revision = applied.state.revision();
        drop(applied);
        self.revision.send_replace(revision);
        result
    }

    pub(crate) fn watch(&self) -> watch::Receiver<u64> {
        self.revision.subscribe()
    }
}
