//! Machines of replicas: those that found the cluster, and those that come and go later.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use muster_core::ids::ReplicaId;
use muster_scheduler::SchedulerConfig;

use super::{
    CLUSTER_ID, ClusterError, ClusterOptions, LocalCluster, Member, Network, failed, free_addresses,
};

/// Ports of replicas that have a host of their own.
const OWN_PORT: u16 = 7400;
const OWN_METRICS_PORT: u16 = 9400;

/// A machine on which a replica runs, or may.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seat {
    /// Its number in the cluster's network, if there is one.
    host: usize,
    listen: SocketAddr,
    metrics: SocketAddr,
}

/// Where everything listens.
#[derive(Debug)]
pub(super) struct Places {
    /// gRPC addresses of the replicas.
    pub(super) addresses: Vec<SocketAddr>,
    /// Their Prometheus addresses.
    pub(super) metrics: Vec<SocketAddr>,
    /// Those of the workers.
    pub(super) worker_metrics: Vec<SocketAddr>,
    /// The machine for one more replica.
    pub(super) spare: Option<Seat>,
}

/// A replica that was started and is no member yet.
#[derive(Clone, Debug)]
pub struct Newcomer {
    /// Its id, which no replica had before.
    pub id: ReplicaId,
    /// Its gRPC address.
    pub address: String,
}

/// The spare machine, and what runs on it.
#[derive(Debug)]
pub(super) struct Spare {
    seat: Seat,
    member: Option<Member>,
}

impl Spare {
    pub(super) fn on(seat: Seat) -> Self {
        Self { seat, member: None }
    }
}

impl Places {
    pub(super) fn of(
        options: &ClusterOptions,
        network: Option<&Network>,
    ) -> Result<Self, ClusterError> {
        let replicas = options.replicas;
        let members = replicas + options.workers;
        let hosts = members + usize::from(options.spare);
        let (mut addresses, mut metrics) = match network {
            Some(network) => {
                let at = |port| {
                    let addresses = (0..hosts).map(|host| IpAddr::V4(network.address(host)));
                    addresses.map(move |ip| SocketAddr::new(ip, port)).collect()
                };
                (at(OWN_PORT), at(OWN_METRICS_PORT))
            }
            None => {
                let drawn = free_addresses(2 * hosts);
                let mut drawn: Vec<_> = drawn.map_err(failed("drawing free ports"))?;
                let metrics = drawn.split_off(hosts);
                (drawn, metrics)
            }
        };
        let spare = { addresses.split_off(members).into_iter() }
            .zip(metrics.split_off(members))
            .map(|(listen, metrics)| Seat {
                host: members,
                listen,
                metrics,
            })
            .next();
        addresses.truncate(replicas);
        let worker_metrics = metrics.split_off(replicas);
        Ok(Self {
            addresses,
            metrics,
            worker_metrics,
            spare,
        })
    }
}

impl LocalCluster {
    /// The replica's ids, in the order of [`LocalCluster::replicas`].
    #[must_use]
    pub fn replica_ids(&self) -> &[ReplicaId] {
        &self.ids
    }

    /// Replaces what runs on a replica's machine by a new replica without data, which belongs to no group until it is added. The
    /// data of the one before stays in the folder of its own, for whoever wants to look at it.
    ///
    /// # Errors
    /// If the one cannot be ended or the other cannot be started.
    pub fn renew_replica(&mut self, index: usize) -> Result<Newcomer, ClusterError> {
        self.replicas[index].kill()?;
        let seat = self.seat(index);
        let (newcomer, member) = self.start_newcomer(seat)?;
        self.ids[index] = newcomer.id;
        self.replicas[index] = member;
        Ok(newcomer)
    }

    /// Starts a new replica on the spare machine; it belongs to no group until it is added.
    ///
    /// # Errors
    /// If there is no spare machine, or the replica cannot be started.
    pub fn start_spare(&mut self) -> Result<Newcomer, ClusterError> {
        let seat = self.spare.as_ref().ok_or(ClusterError::NoSpare)?.seat;
        let (newcomer, member) = self.start_newcomer(seat)?;
        self.spare = Some(Spare {
            seat,
            member: Some(member),
        });
        Ok(newcomer)
    }

    /// Whether a replica runs on the spare machine.
    ///
    /// # Errors
    /// If the kernel does not know its process.
    pub fn is_spare_running(&mut self) -> Result<bool, ClusterError> {
        let member = self.spare.as_mut().and_then(|spare| spare.member.as_mut());
        member.map_or(Ok(false), Member::is_running)
    }

    /// Kills what runs on the spare machine; the next one that is started there has nothing of it.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn clear_spare(&mut self) -> Result<(), ClusterError> {
        let member = self.spare.as_mut().and_then(|spare| spare.member.take());
        member.map_or(Ok(()), |mut member| member.kill())
    }

    /// Adds one of the replicas that found the cluster together.
    pub(super) fn found_replica(&mut self, index: usize) -> Result<(), ClusterError> {
        let id = ReplicaId(index as u64 + 1);
        let peers = (1..).map(ReplicaId).zip(self.addresses()).collect();
        let mut member = self.replica_on(self.seat(index), id, (peers, true))?;
        member.preload.clone_from(&self.options.preload);
        self.ids.push(id);
        self.newest_id = id;
        self.replicas.push(member);
        Ok(())
    }

    fn seat(&self, index: usize) -> Seat {
        Seat {
            host: index,
            listen: self.addresses[index],
            metrics: self.metrics[index],
        }
    }

    fn start_newcomer(&mut self, seat: Seat) -> Result<(Newcomer, Member), ClusterError> {
        let id = ReplicaId(self.newest_id.get() + 1);
        let address = seat.listen.to_string();
        let peers = BTreeMap::from([(id, address.clone())]);
        let mut member = self.replica_on(seat, id, (peers, false))?;
        member.start(&self.options.binary, self.network.as_ref())?;
        self.newest_id = id;
        Ok((Newcomer { id, address }, member))
    }

    /// Writes the configuration of a replica on a machine.
    fn replica_on(
        &self,
        seat: Seat,
        id: ReplicaId,
        (peers, bootstrap): (BTreeMap<ReplicaId, String>, bool),
    ) -> Result<Member, ClusterError> {
        let member = self.member("scheduler", format!("replica-{id}"), seat.host)?;
        let config = SchedulerConfig {
            replica_id: id,
            cluster_id: CLUSTER_ID.to_owned(),
            listen: seat.listen,
            tls: self
                .certificates
                .of_replica(&member.name, seat.listen.ip())?,
            peers,
            data_dir: member.data(),
            timings: self.options.timings,
            raft: self.options.raft,
            log: self.options.log,
            limits: self.certificates.limits(),
            metrics_listen: Some(seat.metrics),
            bootstrap,
            ..SchedulerConfig::default()
        };
        member.configure(&config)?;
        Ok(member)
    }
}

/// Address of a host.
pub(super) fn host_address(network: Option<&Network>, host: usize) -> Ipv4Addr {
    network.map_or(Ipv4Addr::LOCALHOST, |network| network.address(host))
}
