//! A cluster of three etcd members for comparison, and a minimal client.
//! The two messages are defined here: a whole client library for one call would be the larger dependency.

use std::net::SocketAddr;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, bail};
use http::uri::PathAndQuery;
use muster_chaos::cluster::ManagedProcess;
use muster_ports::ReservedAddresses;
use tempfile::TempDir;
use tokio::time::{Instant, sleep};
use tonic::client::Grpc;
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Status};
use tonic_prost::ProstCodec;

use crate::cpu;

/// Members of the cluster, as many as Muster has replicas.
const MEMBERS: usize = 3;
/// Longest wait for the members to elect a leader.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Pause between two checks.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// The used fields of `etcdserverpb.PutRequest`.
#[derive(Clone, PartialEq, prost::Message)]
struct PutRequest {
    #[prost(bytes = "vec", tag = "1")]
    key: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    value: Vec<u8>,
}

/// The used fields of `etcdserverpb.ResponseHeader`; also an answer whose fields are ignored.
#[derive(Clone, PartialEq, prost::Message)]
struct Header {
    #[prost(uint64, tag = "2")]
    member_id: u64,
}

/// `etcdserverpb.StatusRequest`.
#[derive(Clone, PartialEq, prost::Message)]
struct StatusRequest {}

/// The used fields of `etcdserverpb.StatusResponse`.
#[derive(Clone, PartialEq, prost::Message)]
struct StatusResponse {
    #[prost(message, optional, tag = "1")]
    header: Option<Header>,
    #[prost(uint64, tag = "4")]
    leader: u64,
}

/// Running members, with etcd's default disk syncs.
pub(crate) struct EtcdCluster {
    members: Vec<ManagedProcess>,
    /// Connection to the leader, as Muster's client connects to its leader.
    leader: Channel,
    _ports: ReservedAddresses,
    _folder: TempDir,
}

impl EtcdCluster {
    /// Starts the members and waits for a leader.
    pub(crate) async fn start(program: &std::path::Path) -> anyhow::Result<Self> {
        let folder = tempfile::tempdir().context("making a folder for etcd")?;
        let ports = ReservedAddresses::draw(2 * MEMBERS).context("drawing ports for etcd")?;
        let (clients, peers) = ports.addresses().split_at(MEMBERS);
        let names = (1..=MEMBERS).map(|number| format!("etcd-{number}"));
        let addresses: Vec<String> = names
            .zip(peers)
            .map(|(name, peer)| format!("{name}=http://{peer}"))
            .collect();
        let group = addresses.join(",");
        let mut members = Vec::new();
        for (number, (client, peer)) in (1..).zip(clients.iter().zip(peers)) {
            let name = format!("etcd-{number}");
            let data = folder.path().join(&name);
            let mut command = Command::new(program);
            command
                .args(["--name", &name, "--initial-cluster", &group])
                .arg("--data-dir")
                .arg(&data)
                .arg(format!("--listen-client-urls=http://{client}"))
                .arg(format!("--advertise-client-urls=http://{client}"))
                .arg(format!("--listen-peer-urls=http://{peer}"))
                .arg(format!("--initial-advertise-peer-urls=http://{peer}"))
                .args(["--logger", "zap", "--log-level", "error"]);
            let log = folder.path().join(format!("{name}.log"));
            let member = ManagedProcess::start(&mut command, &log)
                .with_context(|| format!("starting {}", program.display()))?;
            members.push(member);
        }
        let leader = find_leader(clients).await?;
        Ok(Self {
            members,
            leader,
            _ports: ports,
            _folder: folder,
        })
    }

    /// A client of the leader.
    pub(crate) fn client(&self) -> EtcdClient {
        EtcdClient(self.leader.clone())
    }

    /// Processor time that all members have used.
    pub(crate) fn cpu(&self) -> anyhow::Result<Duration> {
        let pids: Vec<i32> = self
            .members
            .iter()
            .map(|member| member.pid().as_raw_nonzero().get())
            .collect();
        cpu::used_by_all(&pids)
    }
}

/// Client that writes into etcd.
#[derive(Clone)]
pub(crate) struct EtcdClient(Channel);

impl EtcdClient {
    /// Puts a value; answered once a majority has it on disk.
    pub(crate) async fn put(&self, key: String, value: Vec<u8>) -> anyhow::Result<()> {
        let request = PutRequest {
            key: key.into_bytes(),
            value,
        };
        let _answer: Header = call(&self.0, "/etcdserverpb.KV/Put", request)
            .await
            .context("putting into etcd")?;
        Ok(())
    }
}

async fn find_leader(clients: &[SocketAddr]) -> anyhow::Result<Channel> {
    let deadline = Instant::now() + TIMEOUT;
    while Instant::now() < deadline {
        for client in clients {
            let endpoint = Endpoint::from_shared(format!("http://{client}"))?.tcp_nodelay(true);
            let Ok(channel) = endpoint.connect().await else {
                continue;
            };
            let method = "/etcdserverpb.Maintenance/Status";
            let status: Result<StatusResponse, Status> =
                call(&channel, method, StatusRequest {}).await;
            let is_leader = status.is_ok_and(|status| {
                status.leader != 0
                    && status
                        .header
                        .is_some_and(|header| header.member_id == status.leader)
            });
            if is_leader {
                return Ok(channel);
            }
        }
        sleep(POLL_INTERVAL).await;
    }
    bail!("etcd has no leader after {} s", TIMEOUT.as_secs());
}

async fn call<Asked, Answer>(
    channel: &Channel,
    method: &'static str,
    request: Asked,
) -> Result<Answer, Status>
where
    Asked: prost::Message + Send + Sync + 'static,
    Answer: prost::Message + Default + Send + Sync + 'static,
{
    let mut grpc = Grpc::new(channel.clone());
    grpc.ready()
        .await
        .map_err(|error| Status::unavailable(error.to_string()))?;
    let codec: ProstCodec<Asked, Answer> = ProstCodec::default();
    let path = PathAndQuery::from_static(method);
    let response = grpc.unary(Request::new(request), path, codec).await?;
    Ok(response.into_inner())
}
