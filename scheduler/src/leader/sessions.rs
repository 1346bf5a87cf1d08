//! Streams of one leadership, by worker and host.
//!
//! One live stream per host: a newer one replaces the older. Dropping the sender of a stream always ends it,
//! so a worker whose queue is full still learns that it must reconnect.

use std::collections::BTreeMap;
use std::sync::Arc;

use muster_model::command::HostRegistration;
use muster_model::ids::{HostId, Revision};
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TrySendError;

use crate::leader::directory::WorkerDirectory;
use crate::leader::session::{CloseReason, SessionId, ToWorker};

/// One stream.
#[derive(Debug)]
pub(super) struct Session {
    registration: Arc<HostRegistration>,
    /// The host, once registered.
    host: Option<HostId>,
    /// Revision of the desired state that was last queued to it.
    pub(super) sent: Revision,
    can_hold: bool,
    to_worker: mpsc::Sender<ToWorker>,
}

/// All streams of one leadership.
#[derive(Debug)]
pub(super) struct Sessions {
    by_id: BTreeMap<SessionId, Session>,
    by_host: BTreeMap<HostId, SessionId>,
    directory: Arc<WorkerDirectory>,
}

impl Sessions {
    pub(super) const fn new(directory: Arc<WorkerDirectory>) -> Self {
        Self {
            by_id: BTreeMap::new(),
            by_host: BTreeMap::new(),
            directory,
        }
    }

    /// Records a stream's registration request.
    pub(super) fn open(
        &mut self,
        id: SessionId,
        registration: Arc<HostRegistration>,
        can_hold: bool,
        to_worker: mpsc::Sender<ToWorker>,
    ) {
        let session = Session {
            registration,
            can_hold,
            host: None,
            sent: Revision::default(),
            to_worker,
        };
        self.by_id.insert(id, session);
    }

    /// The registration sent on a stream.
    pub(super) fn registration(&self, id: SessionId) -> Option<Arc<HostRegistration>> {
        self.by_id
            .get(&id)
            .map(|session| Arc::clone(&session.registration))
    }

    /// The host that a stream represents.
    pub(super) fn host_of(&self, id: SessionId) -> Option<HostId> {
        self.by_id.get(&id).and_then(|session| session.host)
    }

    /// The stream that represents a host.
    pub(super) fn of_host(&mut self, host: HostId) -> Option<(SessionId, &mut Session)> {
        let id = *self.by_host.get(&host)?;
        self.by_id.get_mut(&id).map(|session| (id, session))
    }

    /// Whether the worker of a host holds prepared tasks until their gang is released; false without a
    /// stream.
    pub(super) fn can_hold(&self, host: HostId) -> bool {
        let session = self.by_host.get(&host).and_then(|id| self.by_id.get(id));
        session.is_some_and(|session| session.can_hold)
    }

    /// Whether an earlier start of the same worker represents a host: a worker that ended would have closed
    /// its stream, so either two processes share one identity (a copied data directory), or the stream is
    /// half open.
    pub(super) fn is_held_by_earlier_start(&self, host: HostId, of: &HostRegistration) -> bool {
        let holder = self.by_host.get(&host).and_then(|id| self.by_id.get(id));
        holder.is_some_and(|holder| {
            holder.registration.worker_id == of.worker_id
                && holder.registration.incarnation < of.incarnation
        })
    }

    /// Hosts with a stream.
    pub(super) fn hosts(&self) -> impl Iterator<Item = HostId> + '_ {
        self.by_host.keys().copied()
    }

    /// Number of streams that represent a host.
    pub(super) fn connected(&self) -> usize {
        self.by_host.len()
    }

    /// Binds a stream to its host once the registration took effect; the host's older stream is ended.
    pub(super) fn bind(&mut self, id: SessionId, host: HostId) {
        let Some(session) = self.by_id.get_mut(&id) else {
            return;
        };
        session.host = Some(host);
        self.directory.insert(host, id, session.to_worker.clone());
        if let Some(replaced) = self.by_host.insert(host, id)
            && replaced != id
        {
            self.end(replaced, CloseReason::Replaced);
        }
    }

    /// Queues a message; false if the stream is gone or its queue is full.
    pub(super) fn send(&mut self, id: SessionId, message: ToWorker) -> bool {
        let Some(session) = self.by_id.get(&id) else {
            return false;
        };
        match session.to_worker.try_send(message) {
            Ok(()) => true,
            Err(TrySendError::Full(_)) => false,
            Err(TrySendError::Closed(_)) => {
                self.forget(id);
                false
            }
        }
    }

    /// Sends to the streams of all hosts; skips those with a full queue.
    pub(super) fn send_all(&self, message: impl Fn() -> ToWorker) {
        let streams = self.by_host.values().filter_map(|id| self.by_id.get(id));
        for session in streams {
            // A stream that is gone reports that itself.
            drop(session.to_worker.try_send(message()));
        }
    }

    /// Ends a stream, with the reason if its queue has room.
    pub(super) fn end(&mut self, id: SessionId, reason: CloseReason) {
        self.send(id, ToWorker::Close(reason));
        self.forget(id);
    }

    /// Removes a stream that is gone.
    pub(super) fn forget(&mut self, id: SessionId) {
        let Some(session) = self.by_id.remove(&id) else {
            return;
        };
        if let Some(host) = session.host
            && self.by_host.get(&host) == Some(&id)
        {
            self.by_host.remove(&host);
            self.directory.remove(host);
        }
    }

    /// Ends every stream.
    pub(super) fn end_all(&mut self, reason: &CloseReason) {
        let ids: Vec<SessionId> = self.by_id.keys().copied().collect();
        for id in ids {
            self.end(id, reason.clone());
        }
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use std::collections::BTreeMap;

    use muster_model::ids::RequestId;
    use muster_model::topology::ReportedTopology;

    use super::*;

    fn registration() -> Arc<HostRegistration> {
        Arc::new(HostRegistration {
            name: "node1".to_owned(),
            address: "127.0.0.1".to_owned(),
            worker_id: RequestId(1),
            incarnation: 1,
            boot_id: "boot".to_owned(),
            gpus: Vec::new(),
            cpus_milli: 1_000,
            memory_mib: 1_024,
            labels: BTreeMap::new(),
            reported: ReportedTopology::default(),
        })
    }

    fn sessions() -> (Sessions, Arc<WorkerDirectory>) {
        let directory = Arc::new(WorkerDirectory::default());
        (Sessions::new(Arc::clone(&directory)), directory)
    }

    #[test]
    fn a_newer_stream_replaces_the_older_one_of_its_host() {
        let (mut sessions, directory) = sessions();
        let (older, mut older_receiver) = mpsc::channel(4);
        let (newer, _newer_receiver) = mpsc::channel(4);
        sessions.open(SessionId(1), registration(), true, older);
        sessions.bind(SessionId(1), HostId(7));
        sessions.open(SessionId(2), registration(), true, newer);
        sessions.bind(SessionId(2), HostId(7));
        assert!(matches!(
            older_receiver.try_recv().unwrap(),
            ToWorker::Close(CloseReason::Replaced)
        ));
        assert_eq!(
            sessions.of_host(HostId(7)).map(|(id, _)| id),
            Some(SessionId(2))
        );
        assert!(directory.find(HostId(7)).is_some());
        // The end of the replaced stream must not remove the newer one.
        sessions.forget(SessionId(1));
        assert!(directory.find(HostId(7)).is_some());
    }

    #[test]
    fn a_full_queue_ends_the_stream_by_dropping_its_sender() {
        let (mut sessions, _) = sessions();
        let (sender, mut receiver) = mpsc::channel(1);
        sessions.open(SessionId(1), registration(), true, sender);
        assert!(sessions.send(SessionId(1), ToWorker::LogCancel { id: 1 }));
        assert!(!sessions.send(SessionId(1), ToWorker::LogCancel { id: 2 }));
        sessions.end(SessionId(1), CloseReason::Busy);
        assert!(receiver.try_recv().is_ok());
        assert!(receiver.try_recv().is_err(), "the sender is dropped");
    }
}
