//! Connections to the other replicas, and the leader loop's way over them.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use muster_core::ids::{HostId, LeadershipEpoch, ReplicaId};
use muster_proto::status::ErrorReport;
use muster_proto::v1;
use muster_proto::v1::peer_service_client::PeerServiceClient;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Status};

use crate::leader::feature_level::FORMAT_UNSAID;
use crate::leader::{Fence, PeerError, PeerLinks, ShadowPush, ShadowReport, Superseded};

/// Longest wait for a connection to another replica.
const CONNECT_TIMEOUT: Duration = Duration::from_millis(500);
/// How often an idle connection is tried, and how long an answer may take.
const KEEP_ALIVE: Duration = Duration::from_secs(2);
/// Reason of a refusal by a replica that knows a later leadership.
pub(crate) const SUPERSEDED: &str = "SUPERSEDED";
/// Metadata of [`SUPERSEDED`]: term and epoch of the later leadership.
pub(crate) const TERM_KEY: &str = "term";
/// See [`TERM_KEY`].
pub(crate) const EPOCH_KEY: &str = "epoch";

/// Lazily opened connections by address; they reconnect by themselves.
#[derive(Debug)]
pub(crate) struct PeerPool {
    addresses: BTreeMap<ReplicaId, String>,
    message_bytes_max: usize,
    channels: Mutex<BTreeMap<String, Channel>>,
}

impl PeerPool {
    pub(crate) fn new(addresses: BTreeMap<ReplicaId, String>, message_bytes_max: usize) -> Self {
        Self {
            addresses,
            message_bytes_max,
            channels: Mutex::new(BTreeMap::new()),
        }
    }

    /// A client of the replica at an address.
    ///
    /// # Errors
    /// The address is not one.
    pub(crate) fn client(&self, address: &str) -> Result<PeerServiceClient<Channel>, Status> {
        let mut channels = self.channels.lock().unwrap_or_else(PoisonError::into_inner);
        let channel = match channels.get(address) {
            Some(channel) => channel.clone(),
            None => {
                let channel = connect(address)?;
                channels.insert(address.to_owned(), channel.clone());
                channel
            }
        };
        Ok(PeerServiceClient::new(channel)
            .max_decoding_message_size(self.message_bytes_max)
            .max_encoding_message_size(self.message_bytes_max))
    }

    /// A client over a connection of its own: what its user does not read holds up nothing else.
    ///
    /// # Errors
    /// The address is not one.
    pub(crate) fn client_alone(&self, address: &str) -> Result<PeerServiceClient<Channel>, Status> {
        Ok(PeerServiceClient::new(connect(address)?)
            .max_decoding_message_size(self.message_bytes_max)
            .max_encoding_message_size(self.message_bytes_max))
    }

    fn client_of(&self, replica: ReplicaId) -> Result<PeerServiceClient<Channel>, PeerError> {
        let address = self
            .addresses
            .get(&replica)
            .ok_or_else(|| PeerError::Unreachable {
                replica,
                detail: "its address is not among the configured peers".to_owned(),
            })?;
        self.client(address)
            .map_err(|status| failure(replica, &status))
    }
}

fn connect(address: &str) -> Result<Channel, Status> {
    let endpoint = Endpoint::from_shared(format!("http://{address}"))
        .map_err(|error| Status::internal(format!("`{address}` is no address: {error}")))?;
    Ok(endpoint
        .connect_timeout(CONNECT_TIMEOUT)
        .http2_keep_alive_interval(KEEP_ALIVE)
        .keep_alive_timeout(KEEP_ALIVE)
        .keep_alive_while_idle(true)
        .tcp_nodelay(true)
        .connect_lazy())
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

/// The other replicas' shadows over gRPC.
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
    fn push_shadows(
        &self,
        replica: ReplicaId,
        push: Arc<ShadowPush>,
    ) -> impl Future<Output = Result<u8, PeerError>> + Send + 'static {
        let client = self.pool.client_of(replica);
        let request = v1::ShadowBeatsRequest {
            leadership_epoch: push.fence.epoch.get(),
            term: push.fence.term,
            heard_ago_ms: push
                .heard_ago_ms
                .iter()
                .map(|(host, ago)| (host.get(), *ago))
                .collect(),
            replica_id: self.own.get(),
            command_format: Some(push.command_format.into()),
        };
        async move {
            let answer = client?.shadow_beats(request).await;
            let answer = answer.map_err(|status| failure(replica, &status))?;
            let format = answer.into_inner().command_format;
            Ok(format.map_or(FORMAT_UNSAID, |format| {
                u8::try_from(format).unwrap_or(u8::MAX)
            }))
        }
    }

    fn fetch_shadows(
        &self,
        replica: ReplicaId,
        asking: Fence,
    ) -> impl Future<Output = Result<ShadowReport, PeerError>> + Send + 'static {
        let client = self.pool.client_of(replica);
        let request = v1::GetShadowsRequest {
            leadership_epoch: asking.epoch.get(),
            term: asking.term,
        };
        async move {
            let answer = client?.get_shadows(request).await;
            let report = answer
                .map_err(|status| failure(replica, &status))?
                .into_inner();
            Ok(ShadowReport {
                remembers_ms: report.remembers_ms,
                heard_ago_ms: report
                    .heard_ago_ms
                    .into_iter()
                    .map(|(host, ago)| (HostId(host), ago))
                    .collect(),
            })
        }
    }
}
