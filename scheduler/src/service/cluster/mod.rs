//! `ClusterService`.

pub(super) mod phase_filter;
pub(super) mod worker_join;

use std::collections::BTreeSet;
use std::sync::Arc;

use muster_engine::state::State;
use muster_log::COMMAND_FORMAT;
use muster_model::command::{GpuHealth, HostHealth};
use muster_model::health::Component;
use muster_model::host::{Gpu, Host};
use muster_model::ids::HostId;
use muster_proto::v1;
use muster_proto::v1::cluster_service_server::ClusterService;
use muster_raft_store::Status as ReplicaStatus;
use tokio::time::Instant;
use tonic::{Request, Response, Status};

use crate::metrics::StateCounts;
use crate::service::cluster::phase_filter::PhaseFilter;
use crate::service::context::Context;
use crate::service::read;
use crate::service::read::export::{self, Export};
use crate::service::read::page::{self, Page};
use crate::service::write::deadline;
use crate::view::{gpu_to_wire, host_to_wire, queue_to_wire};

/// `ClusterService` of one replica.
pub(crate) struct Cluster(pub(crate) Context);

#[tonic::async_trait]
impl ClusterService for Cluster {
    async fn get_status(
        &self,
        request: Request<v1::GetStatusRequest>,
    ) -> Result<Response<v1::GetStatusResponse>, Status> {
        let _permit = self.0.admit()?;
        let deadline = self.deadline(&request);
        let state = read::state(&self.0, request.into_inner().consistency, deadline).await?;
        Ok(Response::new(status(&self.0, &state)))
    }

    async fn list_hosts(
        &self,
        request: Request<v1::ListHostsRequest>,
    ) -> Result<Response<v1::ListHostsResponse>, Status> {
        let _permit = self.0.admit()?;
        let deadline = self.deadline(&request);
        let request = request.into_inner();
        let state =
            read::shown(&self.0, request.consistency, request.at_revision, deadline).await?;
        hosts(&state, &request, self.page_limit()).map(Response::new)
    }

    async fn list_gpus(
        &self,
        request: Request<v1::ListGpusRequest>,
    ) -> Result<Response<v1::ListGpusResponse>, Status> {
        let _permit = self.0.admit()?;
        let deadline = self.deadline(&request);
        let request = request.into_inner();
        let state =
            read::shown(&self.0, request.consistency, request.at_revision, deadline).await?;
        gpus(&state, &request, self.page_limit()).map(Response::new)
    }

    async fn list_queues(
        &self,
        request: Request<v1::ListQueuesRequest>,
    ) -> Result<Response<v1::ListQueuesResponse>, Status> {
        let _permit = self.0.admit()?;
        let deadline = self.deadline(&request);
        let request = request.into_inner();
        let state =
            read::shown(&self.0, request.consistency, request.at_revision, deadline).await?;
        Ok(Response::new(queues(&state, &request, self.page_limit())))
    }

    async fn get_topology(
        &self,
        request: Request<v1::GetTopologyRequest>,
    ) -> Result<Response<v1::GetTopologyResponse>, Status> {
        let _permit = self.0.admit()?;
        let deadline = self.deadline(&request);
        let request = request.into_inner();
        let state =
            read::shown(&self.0, request.consistency, request.at_revision, deadline).await?;
        Ok(Response::new(v1::GetTopologyResponse {
            revision: state.revision.get(),
            topology: Some(state.configured_topology.as_ref().into()),
            above: state.topology.above.clone(),
            inside: state.topology.inside.clone(),
        }))
    }

    type ExportStateStream = Export;

    async fn export_state(
        &self,
        request: Request<v1::ExportStateRequest>,
    ) -> Result<Response<Self::ExportStateStream>, Status> {
        let places = [self.0.admit()?, self.0.admit_export()?];
        let deadline = self.deadline(&request);
        let state = read::state(&self.0, request.into_inner().consistency, deadline).await?;
        Ok(Response::new(export::stream(&self.0, state, places)))
    }
}

impl Cluster {
    fn deadline<T>(&self, request: &Request<T>) -> Instant {
        deadline::of(request.metadata(), self.0.request_ms_default())
    }

    fn page_limit(&self) -> page::Limit {
        self.0.page_limit()
    }
}

fn status(context: &Context, state: &State) -> v1::GetStatusResponse {
    let replica = context.handle.status();
    let leader = replica.leader.clone();
    let [queued, running, cancelling, succeeded, failed, cancelled] = StateCounts::of(state).jobs;
    v1::GetStatusResponse {
        revision: state.revision.get(),
        time_ms: state.time.0,
        cluster_id: context.config.cluster_id.clone(),
        replica_id: context.config.replica_id.get(),
        leader_id: leader.as_ref().map(|peer| peer.id),
        leader_address: leader.map(|peer| peer.address).unwrap_or_default(),
        term: replica.term,
        leadership_epoch: state.leadership.epoch.get(),
        leader_since_ms: state.leadership.since.0,
        replicas: replicas(&replica),
        jobs: Some(v1::JobCounts {
            queued,
            running,
            cancelling,
            succeeded,
            failed,
            cancelled,
        }),
        hosts: Some(host_counts(state)),
        gpus: Some(gpu_counts(state)),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        command_level: context.heartbeats.lock().command_format().into(),
        command_format: COMMAND_FORMAT.into(),
    }
}

fn replicas(replica: &ReplicaStatus) -> Vec<v1::Replica> {
    let leader = replica.leader.as_ref().map(|peer| peer.id);
    let voters = replica
        .voters
        .iter()
        .map(|peer| (peer, v1::ReplicaRole::Follower));
    let learners = replica
        .learners
        .iter()
        .map(|peer| (peer, v1::ReplicaRole::Learner));
    let mut replicas: Vec<v1::Replica> = voters
        .chain(learners)
        .map(|(peer, role)| {
            let follower = replica
                .followers
                .iter()
                .find(|follower| follower.id == peer.id);
            let is_here = replica.is_leader && peer.id == replica.replica_id;
            let role = if leader == Some(peer.id) {
                v1::ReplicaRole::Leader
            } else {
                role
            };
            v1::Replica {
                id: peer.id,
                address: peer.address.clone(),
                role: role.into(),
                matched_index: follower
                    .map_or(replica.last_log_index.filter(|_| is_here), |follower| {
                        follower.matched
                    }),
                lag_entries: follower
                    .map(|follower| follower.lag_entries)
                    .or_else(|| is_here.then_some(0)),
                last_heartbeat_age_ms: follower
                    .and_then(|follower| follower.last_answer_ago_ms)
                    .or_else(|| is_here.then_some(0)),
            }
        })
        .collect();
    replicas.sort_by_key(|replica| replica.id);
    replicas
}

fn host_counts(state: &State) -> v1::HostCounts {
    let mut counts = v1::HostCounts::default();
    for host in state.hosts.values() {
        match host.health {
            HostHealth::Up => counts.up += 1,
            HostHealth::Suspect => counts.suspect += 1,
            HostHealth::Lost => counts.lost += 1,
        }
        counts.blocked += u32::from(host.block.is_some());
    }
    counts
}

fn gpu_counts(state: &State) -> v1::GpuCounts {
    let mut counts = v1::GpuCounts::default();
    for host in state.hosts.values() {
        for gpu in &host.gpus {
            counts.total += 1;
            counts.free += u64::from(host.accepts_work() && gpu.is_free());
            counts.held += u64::from(gpu.holder.is_some());
            counts.blocked += u64::from(gpu.block.is_some() || host.block.is_some());
            counts.faulted += u64::from(gpu.health != GpuHealth::Healthy);
            counts.unreachable += u64::from(host.health != HostHealth::Up);
        }
    }
    counts
}

fn hosts(
    state: &State,
    request: &v1::ListHostsRequest,
    limit: page::Limit,
) -> Result<v1::ListHostsResponse, Status> {
    let page = Page::new(request.page_size, limit);
    let first = first_host(&request.page_token)?;
    let names: BTreeSet<&str> = request.names.iter().map(String::as_str).collect();
    let healths: BTreeSet<i32> = request.healths.iter().copied().collect();
    let standings = PhaseFilter::parse(&request.phases, request.restricted_only)?;
    let is_wanted = |host: &Host| {
        (names.is_empty() || names.contains(&*host.name))
            && (healths.is_empty() || healths.contains(&(v1::HostHealth::from(host.health) as i32)))
            && (!request.blocked_only || host.block.is_some())
            && standings.has_host(state, host.id)
    };
    let mut wanted = state
        .hosts
        .range(first..)
        .filter(|(_, host)| is_wanted(host));
    let shown = page.fill(&mut wanted, |(_, host)| host_to_wire(state, host));
    Ok(v1::ListHostsResponse {
        revision: state.revision.get(),
        hosts: shown,
        next_page_token: wanted
            .next()
            .map_or_else(String::new, |(id, _)| id.to_string()),
    })
}

fn first_host(token: &str) -> Result<HostId, Status> {
    match page::parse::<1>("page_token", token)? {
        None => Ok(HostId(0)),
        Some([id]) => u32::try_from(id)
            .map(HostId)
            .map_err(|_| page::damaged("page_token", token)),
    }
}

fn gpus(
    state: &State,
    request: &v1::ListGpusRequest,
    limit: page::Limit,
) -> Result<v1::ListGpusResponse, Status> {
    let page = Page::new(request.page_size, limit);
    let first = page::parse::<2>("page_token", &request.page_token)?.unwrap_or([0, 0]);
    let names: BTreeSet<&str> = request.hosts.iter().map(String::as_str).collect();
    let first_host =
        u32::try_from(first[0]).map_err(|_| page::damaged("page_token", &request.page_token))?;
    let standings = PhaseFilter::parse(&request.phases, request.restricted_only)?;
    let mut wanted = state
        .hosts
        .range(HostId(first_host)..)
        .filter(|(_, host)| names.is_empty() || names.contains(&*host.name))
        .flat_map(|(id, host)| {
            host.gpus
                .iter()
                .enumerate()
                .map(move |(at, gpu)| (id, at, host, gpu))
        })
        .filter(|(id, at, _, _)| [u64::from(id.get()), *at as u64] >= first)
        .filter(|(_, _, host, gpu)| is_gpu_wanted(host, gpu, request))
        .filter(|(_, _, _, gpu)| standings.has(state, &Component::Gpu(gpu.uuid)));
    let shown = page.fill(&mut wanted, |(_, _, host, gpu)| {
        gpu_to_wire(state, host, gpu)
    });
    Ok(v1::ListGpusResponse {
        revision: state.revision.get(),
        gpus: shown,
        next_page_token: wanted
            .next()
            .map_or_else(String::new, |(id, at, _, _)| format!("{id}.{at}")),
    })
}

fn is_gpu_wanted(host: &Host, gpu: &Gpu, request: &v1::ListGpusRequest) -> bool {
    (request.model.is_empty() || *gpu.model == *request.model)
        && (!request.free_only || (host.accepts_work() && gpu.is_free()))
        && (!request.out_only || !gpu.usable() || host.block.is_some())
}

fn queues(
    state: &State,
    request: &v1::ListQueuesRequest,
    limit: page::Limit,
) -> v1::ListQueuesResponse {
    let page = Page::new(request.page_size, limit);
    // The name of a queue is its page token.
    let first: Arc<str> = Arc::from(request.page_token.as_str());
    let mut queues = state.queues.range(first..);
    let shown = page.fill(&mut queues, |(_, queue)| queue_to_wire(state, queue));
    v1::ListQueuesResponse {
        revision: state.revision.get(),
        queues: shown,
        history_half_life_ms: state.history_half_life_ms,
        defragment: state.defragment.map(Into::into),
        next_page_token: queues
            .next()
            .map_or_else(String::new, |(name, _)| name.to_string()),
    }
}
