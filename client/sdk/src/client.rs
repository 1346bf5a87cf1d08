//! The client.

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
use crate::error::ClientError;
use crate::transport::connections::Connections;
use crate::transport::credential::AuthenticatedChannel;
use crate::transport::etcd::{discovered, follow_for};

/// Largest accepted answer: a page of 1,000 jobs with large specifications stays below it.
const ANSWER_BYTES_MAX: usize = 64 << 20;

/// A client of a cluster. Cloning is cheap, and clones share the connections.
#[derive(Clone, Debug)]
pub struct Client {
    shared: Arc<Shared>,
    /// Revision of reads; none for the current state.
    at: Option<Revision>,
}

#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) calls: Calls,
    connections: Connections,
    /// Task that follows the replicas in etcd, if enabled.
    follower: OnceLock<JoinHandle<()>>,
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.follower.get().iter().for_each(|task| task.abort());
    }
}

impl Client {
    /// Creates a client of the cluster that these replicas belong to.
    ///
    /// With `config.etcd` the replicas are first looked up there. With `config.discover` one of them is
    /// asked for the others; without, no request is made before the first call.
    ///
    /// # Errors
    /// [`ClientError::Config`] for invalid addresses; [`ClientError::NotFound`] if etcd is configured but
    /// lists no replica; with discovery also every error of a call.
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

    /// Returns a client that reads the cluster as it was at a revision; it shares the connections.
    /// Everything but reads acts on the current state, and data outside the replicated state (status,
    /// output, progress) is read as it is now.
    ///
    /// A replica can only read as far back as its own log: its reads may be [`ClientError::Refused`] with
    /// reason `REVISION_TOO_OLD` (metadata `oldest`), `REVISION_AHEAD` (`newest`), `REVISION_INSIDE`
    /// (`before`, `after`) or `VIEW_TOO_LONG`. From a replica too old to support past revisions they are
    /// [`ClientError::OtherRevision`].
    #[must_use]
    pub fn at(&self, revision: Revision) -> Self {
        Self {
            at: Some(revision),
            ..self.clone()
        }
    }

    /// Revision requested by reads; 0 requests the current state.
    pub(crate) fn at_revision(&self) -> u64 {
        self.at.map_or(0, Revision::get)
    }

    /// Rejects an answer with another revision than the requested one.
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

    /// Learns the addresses of all replicas and the leader, from any replica that answers.
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

    /// Learns the replicas again in the background, if due: during the life of a cluster all may be
    /// replaced.
    pub(crate) fn refresh_if_due(&self) {
        if !self.config().discover || !self.roster().is_refresh_due() {
            return;
        }
        let client = self.clone();
        tokio::spawn(async move {
            if let Err(error) = client.discover().await {
                tracing::debug!(%error, "the replicas could not be refreshed");
            }
        });
    }

    /// Records the membership index reported by an answering replica.
    pub(crate) fn record_membership<Answer>(&self, answer: &Response<Answer>) {
        let header = answer.metadata().get(MEMBERSHIP_HEADER);
        let index = header.and_then(|text| text.to_str().ok()?.parse().ok());
        if let Some(index) = index {
            self.roster().record_membership(index);
        }
    }

    /// The known addresses.
    #[must_use]
    pub fn addresses(&self) -> Vec<String> {
        self.roster().addresses()
    }

    /// Address (`host:port`) of the replica that ended the last call, by its answer or a final refusal.
    /// None if that call was not answered, and before the first. For callers with one call at a time,
    /// without `discover`: clones, other calls and background discovery overwrite it.
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

    /// Drops a connection that broke during a stream, and forgets its replica as a possible leader.
    pub(crate) fn drop_connection(&self, address: &str) {
        self.connections().drop(address);
        self.roster().unset_leader(address);
    }

    pub(crate) fn connect_deadline(&self) -> Duration {
        self.config().connect_deadline
    }
}

/// Creates a request id for one logical write, to be sent with every attempt.
#[must_use]
pub fn new_request_id() -> String {
    RequestId(uuid::Uuid::new_v4().as_u128()).to_string()
}

/// Returns a client of the job service over a connection.
pub(crate) fn jobs(channel: AuthenticatedChannel) -> JobServiceClient<AuthenticatedChannel> {
    JobServiceClient::new(channel).max_decoding_message_size(ANSWER_BYTES_MAX)
}

/// Returns a client of the cluster service over a connection.
pub(crate) fn cluster(channel: AuthenticatedChannel) -> ClusterServiceClient<AuthenticatedChannel> {
    ClusterServiceClient::new(channel).max_decoding_message_size(ANSWER_BYTES_MAX)
}

/// Returns a client of the admin service over a connection.
pub(crate) fn admin(channel: AuthenticatedChannel) -> AdminServiceClient<AuthenticatedChannel> {
    AdminServiceClient::new(channel).max_decoding_message_size(ANSWER_BYTES_MAX)
}

/// Returns a client of the join service over a connection.
pub(crate) fn joining(channel: AuthenticatedChannel) -> JoinServiceClient<AuthenticatedChannel> {
    JoinServiceClient::new(channel).max_decoding_message_size(ANSWER_BYTES_MAX)
}

/// Returns a client of the watch service over a connection.
pub(crate) fn watching(channel: AuthenticatedChannel) -> WatchServiceClient<AuthenticatedChannel> {
    WatchServiceClient::new(channel).max_decoding_message_size(ANSWER_BYTES_MAX)
}
