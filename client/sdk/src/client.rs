//! The client itself.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use muster_model::ids::{RequestId, Revision};
use muster_proto::v1::admin_service_client::AdminServiceClient;
use muster_proto::v1::cluster_service_client::ClusterServiceClient;
use muster_proto::v1::job_service_client::JobServiceClient;
use muster_proto::v1::join_service_client::JoinServiceClient;
use muster_proto::v1::watch_service_client::WatchServiceClient;
use muster_proto::{MEMBERSHIP_HEADER, v1};
use tokio::task::JoinHandle;
use tonic::Response;

use crate::calls::{Calls, Roster};
use crate::config::ClientConfig;
use crate::connections::Connections;
use crate::credential::Line;
use crate::error::ClientError;
use crate::etcd::{discovered, follow_for};

/// Largest answer that is taken: a page of 1,000 jobs with large specifications stays below it.
const ANSWER_BYTES_MAX: usize = 64 << 20;

/// A connection to a cluster. Cloning is cheap, and clones share the connections.
#[derive(Clone, Debug)]
pub struct Client {
    shared: Arc<Shared>,
    /// The revision at which reads look at the cluster; none: as it is.
    at: Option<Revision>,
}

#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) calls: Calls,
    connections: Connections,
    /// What learns from etcd which replicas there are, if anything does.
    follower: OnceLock<JoinHandle<()>>,
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.follower.get().iter().for_each(|task| task.abort());
    }
}

impl Client {
    /// A client of the cluster that these replicas belong to.
    ///
    /// With `config.etcd` it looks there for them first. With `config.discover` it asks one of them for the others; without,
    /// nothing is sent to them before the first call.
    ///
    /// # Errors
    /// [`ClientError::Config`] for unusable addresses; [`ClientError::NotFound`] if etcd was to name some and does not; with
    /// discovery also every error of a call.
    pub async fn connect(config: ClientConfig) -> Result<Self, ClientError> {
        let (config, etcd) = discovered(config).await?;
        let discover = config.discover;
        let shared = Shared {
            connections: Connections::new(&config)?,
            calls: Calls::new(config),
            follower: OnceLock::new(),
        };
        let client = Self {
            shared: Arc::new(shared),
            at: None,
        };
        if discover {
            if let Some(etcd) = etcd {
                let task = follow_for(client.config(), &etcd, Arc::downgrade(&client.shared))?;
                drop(client.shared.follower.set(task));
            }
            client.discover().await?;
        }
        Ok(client)
    }

    /// A client that reads the cluster as it was at a revision; it shares the connections. What it does beside reading it does
    /// now, and what is no part of the replicated state (status, output, progress) it reads as it is.
    ///
    /// A replica tells what its own log still has: its reads may be [`ClientError::Refused`] with reason `REVISION_TOO_OLD`
    /// (metadata `oldest`), `REVISION_AHEAD` (`newest`), `REVISION_INSIDE` (`before`, `after`) or `VIEW_TOO_LONG`. From a replica
    /// that is too old to know of the past they are [`ClientError::OtherRevision`].
    #[must_use]
    pub fn at(&self, revision: Revision) -> Self {
        Self {
            at: Some(revision),
            ..self.clone()
        }
    }

    /// The revision that reads ask for; 0 asks for the present.
    pub(crate) fn at_revision(&self) -> u64 {
        self.at.map_or(0, Revision::get)
    }

    /// Refuses an answer that shows another revision than the one that was asked for.
    pub(crate) fn check_revision(
        &self,
        operation: &'static str,
        shown: u64,
    ) -> Result<(), ClientError> {
        match self.at {
            Some(asked) if asked.get() != shown => Err(ClientError::OtherRevision {
                operation,
                asked,
                shown: Revision(shown),
            }),
            _ => Ok(()),
        }
    }

    /// Learns every replica's address and who leads, from any replica that answers.
    ///
    /// # Errors
    /// Those of a call.
    pub async fn discover(&self) -> Result<(), ClientError> {
        let status = self.status(v1::Consistency::Stale).await?;
        let addresses = status.replicas.iter().map(|replica| &*replica.address);
        let leader = Some(&*status.leader_address).filter(|leader| !leader.is_empty());
        self.roster().learn(addresses, leader);
        Ok(())
    }

    /// Learns the replicas again in the background, if that is due: in a cluster that lives long all may be replaced.
    pub(crate) fn keep_up(&self) {
        if !self.config().discover || !self.roster().should_learn() {
            return;
        }
        let client = self.clone();
        tokio::spawn(async move {
            if let Err(error) = client.discover().await {
                tracing::debug!(%error, "the replicas could not be learnt again");
            }
        });
    }

    /// Notes which membership a replica goes by that answered.
    pub(crate) fn hear<Answer>(&self, answer: &Response<Answer>) {
        let header = answer.metadata().get(MEMBERSHIP_HEADER);
        let index = header.and_then(|text| text.to_str().ok()?.parse().ok());
        if let Some(index) = index {
            self.roster().heard_membership(index);
        }
    }

    /// The addresses that are known.
    #[must_use]
    pub fn addresses(&self) -> Vec<String> {
        self.roster().addresses()
    }

    /// The replica that ended the last call, as `host:port`: by its answer, or by a refusal. None if that call was not answered, and
    /// before the first. This is for who makes one call at a time, without `discover`: clones, other calls and what looks for
    /// replicas in the background write it as well.
    #[must_use]
    pub fn answered_by(&self) -> Option<String> {
        self.shared.calls.answered_by()
    }

    /// The client's settings.
    #[must_use]
    pub fn config(&self) -> &ClientConfig {
        self.shared.calls.config()
    }

    pub(crate) fn calls(&self) -> &Calls {
        &self.shared.calls
    }

    pub(crate) fn roster(&self) -> &Roster {
        self.shared.calls.roster()
    }

    pub(crate) fn connections(&self) -> &Connections {
        &self.shared.connections
    }

    /// Forgets a connection that broke while something came over it, and that its replica might lead.
    pub(crate) fn broke(&self, address: &str) {
        self.connections().drop(address);
        self.roster().unset_leader(address);
    }

    pub(crate) fn connect_deadline(&self) -> Duration {
        self.config().connect_deadline
    }
}

/// A request id for one logical write: made once, sent with every try.
#[must_use]
pub fn new_request_id() -> String {
    RequestId(uuid::Uuid::new_v4().as_u128()).to_string()
}

/// The job service over a connection.
pub(crate) fn jobs(channel: Line) -> JobServiceClient<Line> {
    JobServiceClient::new(channel).max_decoding_message_size(ANSWER_BYTES_MAX)
}

/// The cluster service over a connection.
pub(crate) fn cluster(channel: Line) -> ClusterServiceClient<Line> {
    ClusterServiceClient::new(channel).max_decoding_message_size(ANSWER_BYTES_MAX)
}

/// The admin service over a connection.
pub(crate) fn admin(channel: Line) -> AdminServiceClient<Line> {
    AdminServiceClient::new(channel).max_decoding_message_size(ANSWER_BYTES_MAX)
}

/// The service of those who join, over a connection.
pub(crate) fn joining(channel: Line) -> JoinServiceClient<Line> {
    JoinServiceClient::new(channel).max_decoding_message_size(ANSWER_BYTES_MAX)
}

/// The watch service over a connection.
pub(crate) fn watching(channel: Line) -> WatchServiceClient<Line> {
    WatchServiceClient::new(channel).max_decoding_message_size(ANSWER_BYTES_MAX)
}
