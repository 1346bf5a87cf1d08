//! Connections to the other replicas, and the leader loop's links over them.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use muster_model::ids::{HostId, LeadershipEpoch, ReplicaId};
use muster_proto::status::ErrorReport;
use muster_proto::v1;
use muster_proto::v1::peer_service_client::PeerServiceClient;
use muster_tls::Dialer;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Status};

use crate::leader::{Fence, HeartbeatPush, HeartbeatReport, PeerError, PeerLinks, Superseded};

/// Longest wait for a connection to another replica.
const CONNECT_TIMEOUT: Duration = Duration::from_millis(500);
/// Interval of keep-alive probes on an idle connection, and their timeout.
const KEEP_ALIVE: Duration = Duration::from_secs(2);
/// Reason of a refusal by a replica that knows a later leadership.
pub(crate) const SUPERSEDED: &str = "SUPERSEDED";
/// Metadata of [`SUPERSEDED`]: term and epoch of the later leadership.
pub(crate) const TERM_KEY: &str = "term";
/// See [`TERM_KEY`].
pub(crate) const EPOCH_KEY: &str = "epoch";

/// The address of a member of the group, as the replicated membership has it.
pub(crate) type MemberAddress = Box<dyn Fn(ReplicaId) -> Option<String> + Send + Sync>;

/// Addresses of the other replicas.
pub(crate) struct Addresses {
    /// Replicated membership: members may have joined since the configuration was written.
    pub(crate) members: MemberAddress,
    /// Configured addresses, for replicas that the group does not know yet.
    pub(crate) configured: BTreeMap<ReplicaId, String>,
}

impl Addresses {
    fn of(&self, replica: ReplicaId) -> Result<String, PeerError> {
        let member = (self.members)(replica);
        let known = member.or_else(|| self.configured.get(&replica).cloned());
        known.ok_or_else(|| PeerError::Unreachable {
            replica,
            detail: "neither a member of the group nor a configured peer".to_owned(),
        })
    }
}

/// Lazily opened connections by address; they reconnect automatically.
pub(crate) struct PeerPool {
    cluster_id: String,
    addresses: Addresses,
    dialer: Dialer,
    message_bytes_max: usize,
    channels: Mutex<BTreeMap<String, Channel>>,
}

impl PeerPool {
    pub(crate) fn new(
        cluster_id: String,
        addresses: Addresses,
        dialer: Dialer,
        message_bytes_max: usize,
    ) -> Self {
        Self {
            cluster_id,
            addresses,
            dialer,
            message_bytes_max,
            channels: Mutex::new(BTreeMap::new()),
        }
    }

    /// Id of the cluster that all of them belong to.
    pub(crate) fn cluster_id(&self) -> &str {
        &self.cluster_id
    }

    /// A client of the replica at an address.
    ///
    /// # Errors
    /// The address is invalid.
    pub(crate) fn client(&self, address: &str) -> Result<PeerServiceClient<Channel>, Status> {
        let mut channels = self.channels.lock().unwrap_or_else(PoisonError::into_inner);
        let channel = match channels.get(address) {
            Some(channel) => channel.clone(),
            None => {
                let channel = connect(&self.dialer, address)?;
                channels.insert(address.to_owned(), channel.clone());
                channel
            }
        };
        Ok(PeerServiceClient::new(channel)
            .max_decoding_message_size(self.message_bytes_max)
            .max_encoding_message_size(self.message_bytes_max))
    }

    /// A client with a separate connection: a slow reader blocks nothing else.
    ///
    /// # Errors
    /// The address is invalid.
    pub(crate) fn dedicated_client(
        &self,
        address: &str,
    ) -> Result<PeerServiceClient<Channel>, Status> {
        Ok(PeerServiceClient::new(connect(&self.dialer, address)?)
            .max_decoding_message_size(self.message_bytes_max)
            .max_encoding_message_size(self.message_bytes_max))
    }

    fn client_of(&self, replica: ReplicaId) -> Result<PeerServiceClient<Channel>, PeerError> {
        let address = self.addresses.of(replica)?;
        self.client(&address)
            .map_err(|status| failure(replica, &status))
    }
}

fn connect(dialer: &Dialer, address: &str) -> Result<Channel, Status> {
    let endpoint = Endpoint::from_shared(format!("http://{address}"))
        .map_err(|error| Status::internal(format!("invalid address `{address}`: {error}")))?
        .connect_timeout(CONNECT_TIMEOUT)
        .http2_keep_alive_interval(KEEP_ALIVE)
        .keep_alive_timeout(KEEP_ALIVE)
        .keep_alive_while_idle(true)
        .tcp_nodelay(true);
    Ok(dialer.connect_lazy(&endpoint))
}

fn failure(replica: ReplicaId, status: &Status) -> PeerError {
    let report = ErrorReport::of(status);
    let number = |key| {
        report
            .metadata
            .get(key)
            .and_then(|text| text.parse::<u64>().ok())
    };
    if status.code() == Code::FailedPrecondition && report.reason == SUPERSEDED {
        let term = number(TERM_KEY).unwrap_or(u64::MAX);
        let epoch = LeadershipEpoch(number(EPOCH_KEY).unwrap_or_default());
        return Superseded {
            known: Fence { term, epoch },
        }
        .into();
    }
    PeerError::Unreachable {
        replica,
        detail: status.message().to_owned(),
    }
}

/// The other replicas' heartbeat times over gRPC.
pub(crate) struct GrpcPeerLinks {
    own: ReplicaId,
    pool: Arc<PeerPool>,
}

impl GrpcPeerLinks {
    pub(crate) const fn new(own: ReplicaId, pool: Arc<PeerPool>) -> Self {
        Self { own, pool }
    }
}

impl PeerLinks for GrpcPeerLinks {
    fn push_heartbeats(
        &self,
        replica: ReplicaId,
        push: Arc<HeartbeatPush>,
    ) -> impl Future<Output = Result<u8, PeerError>> + Send + 'static {
        let client = self.pool.client_of(replica);
        let request = v1::PushHeartbeatsRequest {
            leadership_epoch: push.fence.epoch.get(),
            term: push.fence.term,
            last_heartbeat_age_ms: push
                .last_heartbeat_age_ms
                .iter()
                .map(|(host, ago)| (host.get(), *ago))
                .collect(),
            replica_id: self.own.get(),
            command_format: push.command_format.into(),
            cluster_id: Some(self.pool.cluster_id().to_owned()),
            to_replica_id: Some(replica.get()),
        };
        async move {
            let answer = client?
                .push_heartbeats(request)
                .await
                .map_err(|status| failure(replica, &status))?;
            let format = answer.into_inner().command_format;
            Ok(u8::try_from(format).unwrap_or(u8::MAX))
        }
    }

    fn fetch_heartbeats(
        &self,
        replica: ReplicaId,
        asking: Fence,
    ) -> impl Future<Output = Result<HeartbeatReport, PeerError>> + Send + 'static {
        let client = self.pool.client_of(replica);
        let request = v1::GetHeartbeatsRequest {
            leadership_epoch: asking.epoch.get(),
            term: asking.term,
            cluster_id: Some(self.pool.cluster_id().to_owned()),
            to_replica_id: Some(replica.get()),
        };
        async move {
            let answer = client?.get_heartbeats(request).await;
            let report = answer
                .map_err(|status| failure(replica, &status))?
                .into_inner();
            Ok(HeartbeatReport {
                remembers_ms: report.remembers_ms,
                last_heartbeat_age_ms: report
                    .last_heartbeat_age_ms
                    .into_iter()
                    .map(|(host, ago)| (HostId(host), ago))
                    .collect(),
            })
        }
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use muster_proto::status::{self, WRONG_REPLICA};

    use super::*;

    #[test]
    fn addresses_of_the_membership_precede_those_of_the_configuration() {
        let members = |replica: ReplicaId| match replica.get() {
            2 => Some("moved:1".to_owned()),
            4 => Some("joined:1".to_owned()),
            _ => None,
        };
        let configured = [(1, "first:1"), (2, "second:1")];
        let addresses = Addresses {
            members: Box::new(members),
            configured: configured
                .map(|(id, address)| (ReplicaId(id), address.to_owned()))
                .into(),
        };
        let known = |id| addresses.of(ReplicaId(id)).ok();
        assert_eq!(known(1).as_deref(), Some("first:1"));
        assert_eq!(known(2).as_deref(), Some("moved:1"));
        assert_eq!(known(4).as_deref(), Some("joined:1"));
        let unknown = addresses.of(ReplicaId(5)).unwrap_err().to_string();
        assert_eq!(
            unknown,
            "replica 5 did not answer: neither a member of the group nor a configured peer"
        );
    }

    #[test]
    fn a_peer_that_answers_with_another_id_counts_as_unreachable() {
        let refused = status::error(Code::Unavailable, WRONG_REPLICA, "this is replica 3", &[]);
        let expected = PeerError::Unreachable {
            replica: ReplicaId(2),
            detail: "this is replica 3".to_owned(),
        };
        assert_eq!(failure(ReplicaId(2), &refused), expected);
    }
}
