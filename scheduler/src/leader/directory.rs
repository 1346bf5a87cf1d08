//! Where the services find the stream of a host's worker, for output and drills.

use std::collections::BTreeMap;
use std::sync::{PoisonError, RwLock};

use muster_core::ids::HostId;
use tokio::sync::mpsc;

use crate::leader::session::{SessionId, ToWorker};

/// The live streams of this replica by host; empty while it does not lead.
#[derive(Debug, Default)]
pub struct WorkerDirectory {
    streams: RwLock<BTreeMap<HostId, (SessionId, mpsc::Sender<ToWorker>)>>,
}

impl WorkerDirectory {
    /// The stream of a host's worker and the way to it, if it is connected here.
    #[must_use]
    pub fn find(&self, host: HostId) -> Option<(SessionId, mpsc::Sender<ToWorker>)> {
        let streams = self.streams.read().unwrap_or_else(PoisonError::into_inner);
        streams.get(&host).cloned()
    }

    pub(super) fn insert(&self, host: HostId, session: SessionId, sender: mpsc::Sender<ToWorker>) {
        let mut streams = self.streams.write().unwrap_or_else(PoisonError::into_inner);
        streams.insert(host, (session, sender));
    }

    pub(super) fn remove(&self, host: HostId) {
        let mut streams = self.streams.write().unwrap_or_else(PoisonError::into_inner);
        streams.remove(&host);
    }
}
