//! Stream to the leader, reopened to the current leader whenever it breaks.

mod attempt;
mod discovery;
mod pause;

use attempt::{Opened, Refusal};
use discovery::Discovery;
use muster_model::command::HostRegistration;
use muster_model::host::ENGINE_LABEL;
use muster_model::ids::{HostId, LeadershipEpoch};
use muster_model::timings::Timings;
use muster_monitor::replicas::ReplicaAccess;
use muster_proto::v1;
use muster_proto::v1::leader_message::Kind as LeaderKind;
use pause::Pause;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use crate::error::Error;
use crate::inbox::{InboxItem, Outbox};
use crate::tasks::container_engine::FoundEngine;

/// An open session, as used by the decision loop.
#[derive(Debug)]
pub(crate) struct Session {
    /// Number of the session, from 1: messages of older ones are ignored.
    pub(crate) number: u64,
    /// The leader's address.
    pub(crate) leader: String,
    /// Id of this host.
    pub(crate) host: HostId,
    /// Periods of the heartbeat protocol.
    pub(crate) timings: Timings,
    /// Channel for messages to the leader.
    pub(crate) outbox: mpsc::Sender<v1::WorkerMessage>,
    /// Ends the session, and notifies its tasks of the end.
    pub(crate) closed: CancellationToken,
}

/// Keeps a session open until `shutdown`.
#[derive(Debug)]
pub(crate) struct SessionKeeper {
    registration: HostRegistration,
    /// The host's current container engine, which is part of the registration.
    engine: watch::Receiver<Option<FoundEngine>>,
    discovery: Discovery,
    inbox: Outbox,
    /// Newest leadership that the agent accepted.
    newest: watch::Receiver<LeadershipEpoch>,
    shutdown: CancellationToken,
}

impl SessionKeeper {
    pub(crate) fn new(
        registration: HostRegistration,
        engine: watch::Receiver<Option<FoundEngine>>,
        access: ReplicaAccess,
        inbox: Outbox,
        newest: watch::Receiver<LeadershipEpoch>,
        shutdown: CancellationToken,
    ) -> Self {
        Self {
            registration,
            engine,
            discovery: Discovery::new(access.replicas, access.dialer),
            inbox,
            newest,
            shutdown,
        }
    }

    /// Runs until shutdown.
    ///
    /// # Errors
    /// [`Error::Rejected`] if the cluster rejects this host permanently.
    pub(crate) async fn run(mut self) -> Result<(), Error> {
        let mut number = 0;
        loop {
            let Some(opened) = self.open().await? else {
                return Ok(());
            };
            number += 1;
            self.serve(number, opened).await;
            if self.shutdown.is_cancelled() {
                return Ok(());
            }
        }
    }

    /// Searches for the leader until it is found; none after a shutdown.
    async fn open(&mut self) -> Result<Option<Opened>, Error> {
        let mut pause = Pause::new();
        let mut logged = None;
        loop {
            self.set_engine_label();
            let hello = v1::Hello {
                registration: Some((&self.registration).into()),
                leadership_epoch: self.newest.borrow().get(),
                version: env!("CARGO_PKG_VERSION").to_owned(),
                can_hold: true,
            };
            let found = tokio::select! {
                () = self.shutdown.cancelled() => return Ok(None),
                found = self.discovery.find(&hello) => found,
            };
            match found {
                Ok(opened) => return Ok(Some(opened)),
                Err(Refusal::Rejected {
                    reason,
                    message,
                    retry: false,
                }) => return Err(Error::Rejected { reason, message }),
                Err(refusal) => note(&refusal, &mut logged),
            }
            tokio::select! {
                () = self.shutdown.cancelled() => return Ok(None),
                () = tokio::time::sleep(pause.next()) => {}
            }
        }
    }

    /// Sets the host's label for the current engine.
    fn set_engine_label(&mut self) {
        let labels = &mut self.registration.labels;
        match self.engine.borrow_and_update().as_ref() {
            Some(engine) => labels.insert(ENGINE_LABEL.to_owned(), engine.identity.clone()),
            None => labels.remove(ENGINE_LABEL),
        };
    }

    /// Forwards the leader's messages until the session ends or the host's capabilities change.
    async fn serve(&mut self, number: u64, opened: Opened) {
        let closed = self.shutdown.child_token();
        tracing::info!(
            leader = %opened.address,
            epoch = %opened.leader,
            host = %opened.host,
            "session with the leader is open"
        );
        self.discovery.learn(&opened.replicas);
        if !opened.cluster_id.is_empty() {
            muster_tracing::belong_to(&opened.cluster_id);
        }
        let session = Session {
            number,
            leader: opened.address,
            host: opened.host,
            timings: opened.timings,
            outbox: opened.outbox,
            closed: closed.clone(),
        };
        self.forward(InboxItem::Opened(session)).await;
        let mut messages = opened.messages;
        loop {
            let message = tokio::select! {
                () = closed.cancelled() => {
                    // For example because heartbeats are no longer acknowledged.
                    self.discovery.reconnect();
                    break;
                }
                // The host registers again with its new capabilities.
                Ok(()) = self.engine.changed() => break,
                message = messages.message() => message,
            };
            match message {
                Ok(Some(v1::LeaderMessage {
                    kind: Some(LeaderKind::Replicas(replicas)),
                })) => self.discovery.learn(&replicas.addresses),
                Ok(Some(v1::LeaderMessage { kind: Some(kind) })) => {
                    self.forward(InboxItem::Message(number, kind)).await;
                }
                // A message that only newer versions know.
                Ok(Some(v1::LeaderMessage { kind: None })) => {}
                Ok(None) => break,
                Err(status) => {
                    tracing::info!(code = ?status.code(), reason = status.message(), "the session broke");
                    break;
                }
            }
        }
        closed.cancel();
        self.forward(InboxItem::Closed(number)).await;
    }

    async fn forward(&self, incoming: InboxItem) {
        if self.inbox.send(incoming).await.is_err() {
            tracing::debug!("the agent is ending: a message of the leader is dropped");
        }
    }
}

/// Logs why there is no session. A temporary rejection is logged as a warning once, since an admin must see
/// it.
fn note(refusal: &Refusal, logged: &mut Option<Refusal>) {
    if !matches!(refusal, Refusal::Rejected { .. }) {
        tracing::debug!(%refusal, "no session");
    } else if logged.as_ref() != Some(refusal) {
        tracing::warn!(%refusal, "the cluster rejects this host for now; retrying");
        *logged = Some(refusal.clone());
    }
}
