//! Machines of replicas: those that found the cluster, and those that come and go later.

use std::collections::BTreeMap;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};

use muster_model::ids::ReplicaId;
use muster_scheduler::SchedulerConfig;

use crate::cluster::network::{Front, Network};
use crate::cluster::{
    CLUSTER_ID, ClusterError, ClusterOptions, LocalCluster, Member, NetworkKind, failed,
    free_addresses,
};

/// Ports of replicas that have a host of their own.
const OWN_PORT: u16 = 7400;
const OWN_METRICS_PORT: u16 = 9400;
/// Ports of one on loopback, beside that of its proxy: gRPC, and metrics.
const LOOPBACK_PORTS: usize = 2;

/// A machine on which a replica runs, or may, or a worker.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seat {
    /// Its number in the cluster's network, if there is one.
    host: usize,
    /// Where a replica listens.
    listen: SocketAddr,
    /// Where it is called: at its proxy, if it has one.
    pub(super) address: SocketAddr,
    /// Where its metrics are.
    pub(super) metrics: SocketAddr,
}

/// Where everything listens.
#[derive(Debug)]
pub(super) struct Places {
    /// The replicas' machines.
    pub(super) replicas: Vec<Seat>,
    /// Those of the workers.
    pub(super) workers: Vec<Seat>,
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

impl Seat {
    /// A machine with an address of its own.
    fn apart(host: usize) -> Self {
        let ip = NetworkKind::Namespaces.address(host);
        let listen = SocketAddr::from((ip, OWN_PORT));
        Self {
            host,
            listen,
            address: listen,
            metrics: SocketAddr::from((ip, OWN_METRICS_PORT)),
        }
    }

    /// Machines that share loopback, at ports that are free.
    fn on_loopback(count: usize, has_proxies: bool) -> io::Result<Vec<Self>> {
        let drawn = free_addresses((LOOPBACK_PORTS + usize::from(has_proxies)) * count)?;
        let (listen, drawn) = drawn.split_at(count);
        let (metrics, proxies) = drawn.split_at(count);
        let address = if has_proxies { proxies } else { listen };
        let seats = (0..count).map(|host| Self {
            host,
            listen: listen[host],
            address: address[host],
            metrics: metrics[host],
        });
        Ok(seats.collect())
    }

    fn front(self) -> Front {
        Front {
            host: self.host,
            address: self.address,
            target: self.listen,
        }
    }
}

impl Places {
    pub(super) fn of(options: &ClusterOptions) -> Result<Self, ClusterError> {
        let members = options.replicas + options.workers;
        let hosts = members + usize::from(options.spare);
        let mut replicas = match options.network {
            Some(NetworkKind::Namespaces) => (0..hosts).map(Seat::apart).collect(),
            kind => Seat::on_loopback(hosts, kind == Some(NetworkKind::Proxies))
                .map_err(failed("drawing free ports"))?,
        };
        let spare = replicas.split_off(members).pop();
        let workers = replicas.split_off(options.replicas);
        Ok(Self {
            replicas,
            workers,
            spare,
        })
    }

    /// The network between all machines.
    pub(super) fn network(&self, kind: NetworkKind) -> Result<Network, ClusterError> {
        let hosts = self.replicas.len() + self.workers.len() + usize::from(self.spare.is_some());
        let fronts = { self.replicas.iter().chain(&self.spare) }.map(|seat| seat.front());
        Ok(Network::build(kind, hosts, fronts.collect())?)
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
        let seat = self.seats[index];
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
        let mut member = self.replica_on(self.seats[index], id, (peers, true))?;
        member.preload.clone_from(&self.options.preload);
        self.ids.push(id);
        self.newest_id = id;
        self.replicas.push(member);
        Ok(())
    }

    fn start_newcomer(&mut self, seat: Seat) -> Result<(Newcomer, Member), ClusterError> {
        let id = ReplicaId(self.newest_id.get() + 1);
        let address = seat.address.to_string();
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
                .of_replica(&member.name, seat.address.ip())?,
            peers,
            data_dir: member.data(),
            timings: self.options.timings,
            raft: self.options.raft,
            log: self.options.log,
            admins: self.options.admins.clone(),
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
pub(super) fn host_address(network: Option<NetworkKind>, host: usize) -> Ipv4Addr {
    network.map_or(Ipv4Addr::LOCALHOST, |kind| kind.address(host))
}
