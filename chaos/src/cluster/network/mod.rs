//! Network of a local cluster with partitions in one direction or both while the members keep running: a
//! network namespace for each member, or proxies between members where namespaces are not available.

mod namespaces;
mod peer_processes;
mod proxies;
mod proxy;

use std::net::Ipv4Addr;
use std::path::Path;
use std::process::Command;

use serde::Serialize;

use namespaces::Namespaces;
pub use namespaces::NetworkError;
pub(crate) use namespaces::raise_loopback;
use proxies::Proxies;
pub(super) use proxy::ProxyTarget;

/// Implementation of the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum NetworkKind {
    /// A network namespace for each host, with packet loss. Requires the right to create namespaces.
    Namespaces,
    /// All hosts are on loopback, with a proxy before each replica that holds back partitioned traffic.
    Proxies,
}

impl NetworkKind {
    /// All kinds.
    pub const ALL: [Self; 2] = [Self::Namespaces, Self::Proxies];

    /// Name on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Namespaces => "namespaces",
            Self::Proxies => "proxies",
        }
    }

    /// Parses a name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// Description for reports.
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            Self::Namespaces => "a namespace for each replica and host",
            Self::Proxies => "everything on loopback, with a proxy before each replica",
        }
    }

    /// Address of a host.
    pub(super) fn address(self, host: usize) -> Ipv4Addr {
        match self {
            Self::Namespaces => namespaces::host_address(host),
            Self::Proxies => Ipv4Addr::LOCALHOST,
        }
    }
}

/// Direction in which a host's packets are lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Direction {
    /// Packets from and to the host.
    Both,
    /// Packets from the host.
    Out,
    /// Packets to the host.
    In,
}

/// A sender or receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Endpoint {
    /// A host of the cluster, by number.
    Host(usize),
    /// This process and all other users of the cluster.
    Users,
}

/// Hosts that can be isolated.
#[derive(Debug)]
pub(super) enum Network {
    /// See [`NetworkKind::Namespaces`].
    Namespaces(Namespaces),
    /// See [`NetworkKind::Proxies`].
    Proxies(Proxies),
}

impl Network {
    /// Connects `hosts` hosts. `fronts` are the replicas among them, since each has a proxy; proxies need a
    /// runtime.
    ///
    /// # Errors
    /// [`NetworkError`] names the failed step.
    pub(super) fn build(
        kind: NetworkKind,
        hosts: usize,
        fronts: Vec<ProxyTarget>,
    ) -> Result<Self, NetworkError> {
        Ok(match kind {
            NetworkKind::Namespaces => Self::Namespaces(Namespaces::build(hosts)?),
            NetworkKind::Proxies => Self::Proxies(Proxies::begin(hosts, fronts)),
        })
    }

    /// A command that runs `program` on a host, as the same process (same pid).
    pub(super) fn command(&self, host: usize, program: &Path) -> Command {
        match self {
            Self::Namespaces(namespaces) => namespaces.command(host, program),
            Self::Proxies(_) => Command::new(program),
        }
    }

    /// Records that a program was started on a host.
    pub(super) fn started(&self, host: usize, pid: i32) {
        if let Self::Proxies(proxies) = self {
            proxies.started(host, pid);
        }
    }

    /// Checks that the network worked all the time.
    ///
    /// # Errors
    /// [`NetworkError::ProxyListen`] if a proxy could not listen: observations of its replica are then
    /// unreliable.
    pub(super) fn check(&self) -> Result<(), NetworkError> {
        let failure = match self {
            Self::Namespaces(_) => None,
            Self::Proxies(proxies) => proxies.failure(),
        };
        failure.map_or(Ok(()), |failure| Err(failure.into()))
    }

    /// Cuts a host off from all others. What it sends is lost to users too, while packets from users
    /// arrive.
    ///
    /// # Errors
    /// If the network cannot be changed.
    pub(super) fn cut(&self, host: usize, direction: Direction) -> Result<(), NetworkError> {
        let mut ways = self.routes(host, direction).into_iter();
        ways.try_for_each(|(from, to)| self.drop_packets(from, to))
    }

    /// Reverts [`Self::cut`] for a host.
    ///
    /// # Errors
    /// If the network cannot be changed.
    pub(super) fn heal(&self, host: usize, direction: Direction) -> Result<(), NetworkError> {
        let mut ways = self.routes(host, direction).into_iter();
        ways.try_for_each(|(from, to)| self.deliver_packets(from, to))
    }

    /// Cuts two hosts off from each other; each still reaches all other hosts and users.
    ///
    /// # Errors
    /// If the network cannot be changed.
    pub(super) fn partition(&self, one: usize, other: usize) -> Result<(), NetworkError> {
        self.drop_packets(one, Endpoint::Host(other))?;
        self.drop_packets(other, Endpoint::Host(one))
    }

    /// Reconnects two hosts that were cut off from each other.
    ///
    /// # Errors
    /// If the network cannot be changed.
    pub(super) fn reconnect(&self, one: usize, other: usize) -> Result<(), NetworkError> {
        self.deliver_packets(one, Endpoint::Host(other))?;
        self.deliver_packets(other, Endpoint::Host(one))
    }

    /// Pairs of sender and receiver that a direction covers.
    fn routes(&self, host: usize, direction: Direction) -> Vec<(usize, Endpoint)> {
        let hosts = match self {
            Self::Namespaces(namespaces) => namespaces.hosts(),
            Self::Proxies(proxies) => proxies.hosts(),
        };
        let mut ways = Vec::new();
        for other in (0..hosts).filter(|other| *other != host) {
            if direction != Direction::In {
                ways.push((host, Endpoint::Host(other)));
            }
            if direction != Direction::Out {
                ways.push((other, Endpoint::Host(host)));
            }
        }
        if direction != Direction::In {
            ways.push((host, Endpoint::Users));
        }
        ways
    }

    fn drop_packets(&self, from: usize, to: Endpoint) -> Result<(), NetworkError> {
        match self {
            Self::Namespaces(namespaces) => namespaces.lose(from, to),
            Self::Proxies(proxies) => {
                proxies.lose(from, to);
                Ok(())
            }
        }
    }

    fn deliver_packets(&self, from: usize, to: Endpoint) -> Result<(), NetworkError> {
        match self {
            Self::Namespaces(namespaces) => namespaces.find(from, to),
            Self::Proxies(proxies) => {
                proxies.find(from, to);
                Ok(())
            }
        }
    }
}
