//! Machines of replicas: those of the initial members, and those that are added and removed later.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;

use muster_model::desired::MASTER_PORT_MIN;
use muster_model::ids::ReplicaId;
use muster_ports::{PORTS, ReservedAddresses};
use muster_scheduler::SchedulerConfig;

use crate::cluster::network::{Network, ProxyTarget};
use crate::cluster::{
    CLUSTER_ID, ClusterError, ClusterOptions, LibraryCommands, LocalCluster, Member, NetworkKind,
    failed,
};

// Gangs get their ports above those of processes that may be down for a while.
const _: () = assert!(PORTS.end <= MASTER_PORT_MIN);

/// Port of replicas that have their own host.
const OWN_PORT: u16 = 7400;
const OWN_METRICS_PORT: u16 = 9400;
/// Ports of a replica on loopback, in addition to its proxy's: gRPC and metrics.
const LOOPBACK_PORTS: usize = 2;

/// A machine for a replica or a worker.
#[derive(Clone, Copy, Debug)]
pub(super) struct Machine {
    /// Number in the cluster's network, if there is one.
    host: usize,
    /// Address on which a replica listens.
    listen: SocketAddr,
    /// Address for callers: that of its proxy, if it has one.
    pub(super) address: SocketAddr,
    /// Address of its metrics.
    pub(super) metrics: SocketAddr,
}

/// Addresses of all members.
#[derive(Debug)]
pub(super) struct Machines {
    /// Machines of the replicas.
    pub(super) replicas: Vec<Machine>,
    /// Machines of the workers.
    pub(super) workers: Vec<Machine>,
    /// Machine for one more replica.
    pub(super) spare: Option<Machine>,
    /// Addresses of machines that share loopback.
    pub(super) ports: Option<ReservedAddresses>,
}

/// A started replica that is not a member yet.
#[derive(Clone, Debug)]
pub struct PendingReplica {
    /// Its id, never used before.
    pub id: ReplicaId,
    /// Its gRPC address.
    pub address: String,
}

/// The spare machine and its replica.
#[derive(Debug)]
pub(super) struct Spare {
    seat: Machine,
    member: Option<Member>,
}

impl Spare {
    pub(super) fn on(seat: Machine) -> Self {
        Self { seat, member: None }
    }
}

impl Machine {
    /// A machine with its own address.
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

    /// Machines that share loopback, on free ports.
    fn on_loopback(ports: &ReservedAddresses, count: usize, has_proxies: bool) -> Vec<Self> {
        let (listen, drawn) = ports.addresses().split_at(count);
        let (metrics, proxies) = drawn.split_at(count);
        let address = if has_proxies { proxies } else { listen };
        let seats = (0..count).map(|host| Self {
            host,
            listen: listen[host],
            address: address[host],
            metrics: metrics[host],
        });
        seats.collect()
    }

    fn front(self) -> ProxyTarget {
        ProxyTarget {
            host: self.host,
            address: self.address,
            target: self.listen,
        }
    }
}

impl Machines {
    pub(super) fn of(options: &ClusterOptions) -> Result<Self, ClusterError> {
        let members = options.replicas + options.workers;
        let hosts = members + usize::from(options.spare);
        let has_proxies = options.network == Some(NetworkKind::Proxies);
        let ports = (options.network != Some(NetworkKind::Namespaces))
            .then(|| ReservedAddresses::draw((LOOPBACK_PORTS + usize::from(has_proxies)) * hosts));
        let ports = ports.transpose().map_err(failed("drawing free ports"))?;
        let mut replicas = match &ports {
            Some(ports) => Machine::on_loopback(ports, hosts, has_proxies),
            None => (0..hosts).map(Machine::apart).collect(),
        };
        let spare = replicas.split_off(members).pop();
        let workers = replicas.split_off(options.replicas);
        Ok(Self {
            replicas,
            workers,
            spare,
            ports,
        })
    }

    /// Creates the network between all machines.
    pub(super) fn network(&self, kind: NetworkKind) -> Result<Network, ClusterError> {
        let hosts = self.replicas.len() + self.workers.len() + usize::from(self.spare.is_some());
        let fronts = { self.replicas.iter().chain(&self.spare) }.map(|seat| seat.front());
        Ok(Network::build(kind, hosts, fronts.collect())?)
    }
}

impl LocalCluster {
    /// Ids of the replicas, in the order of [`LocalCluster::replicas`].
    #[must_use]
    pub fn replica_ids(&self) -> &[ReplicaId] {
        &self.ids
    }

    /// Replaces the replica on a machine by a new one without data, which belongs to no group until it is
    /// added. The data of the old one stays in its own folder for inspection.
    ///
    /// # Errors
    /// If the old one cannot be stopped or the new one cannot be started.
    pub fn replace_replica(&mut self, index: usize) -> Result<PendingReplica, ClusterError> {
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
    pub fn start_spare(&mut self) -> Result<PendingReplica, ClusterError> {
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

    /// Kills the replica on the spare machine; the next one there starts without its data.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn clear_spare(&mut self) -> Result<(), ClusterError> {
        let member = self.spare.as_mut().and_then(|spare| spare.member.take());
        member.map_or(Ok(()), |mut member| member.kill())
    }

    /// Adds one of the initial replicas.
    pub(super) fn found_replica(
        &mut self,
        index: usize,
        fault_library: Option<&Path>,
    ) -> Result<(), ClusterError> {
        let id = ReplicaId(index as u64 + 1);
        let peers = (1..).map(ReplicaId).zip(self.addresses()).collect();
        let mut member = self.replica_on(self.seats[index], id, peers, true)?;
        if let Some(library) = fault_library {
            member.fault_library = Some(library.to_owned());
            // The library needs a command file when it is loaded.
            LibraryCommands::default().write(&member)?;
        }
        self.ids.push(id);
        self.newest_id = id;
        self.replicas.push(member);
        Ok(())
    }

    fn start_newcomer(&mut self, seat: Machine) -> Result<(PendingReplica, Member), ClusterError> {
        let id = ReplicaId(self.newest_id.get() + 1);
        let address = seat.address.to_string();
        let peers = BTreeMap::from([(id, address.clone())]);
        let mut member = self.replica_on(seat, id, peers, false)?;
        member.start(&self.options.binary, self.network.as_ref())?;
        self.newest_id = id;
        Ok((PendingReplica { id, address }, member))
    }

    /// Writes the configuration of a replica on a machine.
    fn replica_on(
        &self,
        seat: Machine,
        id: ReplicaId,
        peers: BTreeMap<ReplicaId, String>,
        bootstrap: bool,
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
