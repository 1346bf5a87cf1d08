//! Event watch, without gap or duplicate across the death of any replica.

use futures::Stream;
use muster_model::ids::{JobId, Revision};
use muster_model::time::TimeMs;
use muster_proto::v1;
use tonic::{Code, Status, Streaming};

use crate::calls::Operation;
use crate::client::{Client, watching};
use crate::error::{ClientError, Refusal};
use crate::transport::retry::{FailureClass, classify};
use crate::watch_position::WatchPosition;

const OPERATION: &str = "watch events";

/// Filter of events; empty lists match everything, both must match.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WatchFilter {
    /// Events about these jobs.
    pub jobs: Vec<JobId>,
    /// Events of these kinds.
    pub kinds: Vec<v1::EventKind>,
}

impl WatchFilter {
    /// Matches everything about one job.
    #[must_use]
    pub fn job(job: JobId) -> Self {
        Self {
            jobs: vec![job],
            kinds: Vec::new(),
        }
    }
}

/// Update of a watch.
#[derive(Clone, Debug, PartialEq)]
pub enum WatchUpdate {
    /// All matching events of one revision, together.
    Events {
        /// Revision at which they occurred.
        revision: Revision,
        /// Time stamp of the leader.
        time: TimeMs,
        /// The events; at least one.
        events: Vec<v1::Event>,
    },
    /// No further event matched up to this revision.
    Bookmark {
        /// Every event up to this revision has been delivered.
        revision: Revision,
    },
    /// The watch was interrupted and continues, without gap or duplicate.
    Resumed {
        /// The replica that serves it now.
        replica: String,
        /// Cause of the interruption.
        cause: String,
    },
}

/// A resumable watch. See [`Client::watch`].
#[derive(Debug)]
pub struct Watch {
    client: Client,
    filter: WatchFilter,
    /// Delivered position; before the first message the caller's start.
    position: WatchPosition,
    stream: Option<Streaming<v1::WatchResponse>>,
    /// The replica that serves the stream.
    replica: String,
    /// Cause of the last stream's end, until it is reported to the caller.
    interruption: Option<String>,
}

impl Client {
    /// Watches the events after a revision; without one, those from now on.
    ///
    /// No request is made before the first [`Watch::next`].
    #[must_use]
    pub fn watch(&self, from_revision: Option<Revision>, filter: WatchFilter) -> Watch {
        Watch {
            client: self.clone(),
            filter,
            position: WatchPosition::after(from_revision),
            stream: None,
            replica: String::new(),
            interruption: None,
        }
    }
}

impl Watch {
    /// The revision to pass to [`Client::watch`] in order to continue from here.
    #[must_use]
    pub fn position(&self) -> Option<Revision> {
        self.position.revision()
    }

    /// Returns the next update. Waits as long as necessary; cancel-safe.
    ///
    /// # Errors
    /// [`ClientError::Compacted`] if events after the position are forgotten; an error of a call if no
    /// replica could be reached for `reconnect_deadline`. The watch may be polled again after an error.
    pub async fn next(&mut self) -> Result<WatchUpdate, ClientError> {
        loop {
            let Some(stream) = &mut self.stream else {
                if let Some(resumed) = self.open().await? {
                    return Ok(resumed);
                }
                continue;
            };
            match stream.message().await {
                Ok(Some(response)) => {
                    if let Some(update) = self.take(response) {
                        return Ok(update);
                    }
                }
                Ok(None) => self.interrupt("the replica ended the stream".to_owned()),
                Err(status) => self.handle_failure(&status)?,
            }
        }
    }

    /// Converts the watch into a stream; it ends after the first error.
    pub fn into_stream(self) -> impl Stream<Item = Result<WatchUpdate, ClientError>> {
        futures::stream::unfold(Some(self), |watch| async move {
            let mut watch = watch?;
            match watch.next().await {
                Ok(update) => Some((Ok(update), Some(watch))),
                Err(error) => Some((Err(error), None)),
            }
        })
    }

    /// Opens the stream at some replica; returns an update if that resumes an earlier one.
    async fn open(&mut self) -> Result<Option<WatchUpdate>, ClientError> {
        let request = v1::WatchRequest {
            from_revision: self.position.revision().map(Revision::get),
            job_ids: self.filter.jobs.iter().map(|job| job.get()).collect(),
            kinds: self
                .filter
                .kinds
                .iter()
                .map(|kind| (*kind).into())
                .collect(),
        };
        let operation = Operation {
            name: OPERATION,
            deadline: self.client.config().reconnect_deadline,
        };
        let opened = self.client.open_stream(operation, |channel| {
            let request = request.clone();
            async move { watching(channel).watch(request).await }
        });
        let (stream, replica) = opened.await.map_err(|error| self.explain(error))?;
        self.stream = Some(stream);
        self.replica.clone_from(&replica);
        let cause = self.interruption.take();
        Ok(cause.map(|cause| WatchUpdate::Resumed { replica, cause }))
    }

    /// Processes a message; none if it was delivered before.
    fn take(&mut self, response: v1::WatchResponse) -> Option<WatchUpdate> {
        self.client.refresh_if_due();
        let revision = Revision(response.revision);
        if response.events.is_empty() {
            self.position.bookmark(revision);
            return Some(WatchUpdate::Bookmark { revision });
        }
        if !self.position.deliver(revision) {
            return None;
        }
        Some(WatchUpdate::Events {
            revision,
            time: TimeMs(response.time_ms),
            events: response.events,
        })
    }

    fn interrupt(&mut self, cause: String) {
        tracing::debug!(
            replica = %self.replica,
            %cause,
            position = ?self.position.revision(),
            "a watch was interrupted"
        );
        self.stream = None;
        self.interruption = Some(cause);
    }

    /// Handles a failed stream: it is reopened, unless that could not help.
    fn handle_failure(&mut self, status: &Status) -> Result<(), ClientError> {
        let cause = match classify(status) {
            FailureClass::Final(refusal) => {
                self.stream = None;
                return Err(self.explain(ClientError::Refused {
                    operation: OPERATION,
                    refusal,
                }));
            }
            FailureClass::Redirect { leader } => {
                self.client.roster().set_leader(&leader);
                format!("the leader is {leader}")
            }
            FailureClass::Again {
                cause, transport, ..
            } => {
                if transport {
                    self.client.drop_connection(&self.replica);
                }
                cause
            }
        };
        self.interrupt(cause);
        Ok(())
    }

    fn explain(&self, error: ClientError) -> ClientError {
        let compacted = error.refusal().and_then(compacted);
        match compacted {
            Some(compacted) => ClientError::Compacted {
                asked: self.position.revision().unwrap_or_default(),
                compacted,
            },
            None => error,
        }
    }
}

/// The newest forgotten revision, if the refusal is about it.
fn compacted(refusal: &Refusal) -> Option<Revision> {
    if refusal.code != Code::OutOfRange {
        return None;
    }
    refusal.metadata.get("compacted")?.parse().ok()
}
