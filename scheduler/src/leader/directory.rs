//! Lookup of the stream of a host's worker, for output and drills, and of the progress that its tasks report.

use std::collections::BTreeMap;
use std::sync::{PoisonError, RwLock};

use muster_model::heartbeat::WorkerStatus;
use muster_model::ids::{HostId, JobId};
use tokio::sync::mpsc;

use crate::leader::progress::{ProgressBoard, Step};
use crate::leader::session::{SessionId, ToWorker};

/// The live streams of this replica by host; empty while it does not lead.
#[derive(Debug, Default)]
pub struct WorkerDirectory {
    streams: RwLock<BTreeMap<HostId, (SessionId, mpsc::Sender<ToWorker>)>>,
    progress: ProgressBoard,
}

impl WorkerDirectory {
    /// The stream of a host's worker and its sender, if it is connected here.
    #[must_use]
    pub fn find(&self, host: HostId) -> Option<(SessionId, mpsc::Sender<ToWorker>)> {
        let streams = self.streams.read().unwrap_or_else(PoisonError::into_inner);
        streams.get(&host).cloned()
    }

    /// Progress reported by the tasks of a job, at most `max` entries, ascending.
    #[must_use]
    pub fn progress(&self, job: JobId, max: usize) -> Vec<Step> {
        self.progress.of_job(job, max)
    }

    /// Records the complete state reported by a host's worker.
    pub(super) fn record_status(&self, host: HostId, status: &WorkerStatus) {
        self.progress.record_status(host, status);
    }

    pub(super) fn insert(&self, host: HostId, session: SessionId, sender: mpsc::Sender<ToWorker>) {
        let mut streams = self.streams.write().unwrap_or_else(PoisonError::into_inner);
        streams.insert(host, (session, sender));
    }

    pub(super) fn remove(&self, host: HostId) {
        let mut streams = self.streams.write().unwrap_or_else(PoisonError::into_inner);
        streams.remove(&host);
        drop(streams);
        self.progress.forget(host);
    }
}
