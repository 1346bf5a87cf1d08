//! The network of a local cluster, in which members can be cut off from each other, in one direction or in both, while
//! their processes live: a namespace for each of them, or proxies of ours between them where namespaces cannot be made.

mod callers;
mod namespaces;
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
pub(super) use proxy::Front;

/// What a network is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum NetworkKind {
    /// A network namespace for each host, whose packets are lost. That needs the right to make namespaces.
    Namespaces,
    /// All hosts are on loopback, and a proxy before each replica keeps what is to be lost.
    Proxies,
}

impl NetworkKind {
    /// Both of them.
    pub const ALL: [Self; 2] = [Self::Namespaces, Self::Proxies];

    /// Its name on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Namespaces => "namespaces",
            Self::Proxies => "proxies",
        }
    }

    /// The kind of that name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// What it is, for people.
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

/// Which packets of a host are lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Direction {
    /// Those that it sends and those that are sent to it.
    Both,
    /// Those that it sends.
    Out,
    /// Those that are sent to it.
    In,
}

/// Whoever sends or is sent something.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum End {
    /// A host of the cluster, by its number.
    Host(usize),
    /// We, and whoever else uses the cluster.
    Users,
}

/// Hosts that can be cut off.
#[derive(Debug)]
pub(super) enum Network {
    /// See [`NetworkKind::Namespaces`].
    Namespaces(Namespaces),
    /// See [`NetworkKind::Proxies`].
    Proxies(Proxies),
}

impl Network {
    /// So many hosts, all connected. `fronts` are the replicas among them, as a proxy stands before each; it needs a runtime.
    ///
    /// # Errors
    /// [`NetworkError`] says which step failed.
    pub(super) fn build(
        kind: NetworkKind,
        hosts: usize,
        fronts: Vec<Front>,
    ) -> Result<Self, NetworkError> {
        Ok(match kind {
            NetworkKind::Namespaces => Self::Namespaces(Namespaces::build(hosts)?),
            NetworkKind::Proxies => Self::Proxies(Proxies::begin(hosts, fronts)),
        })
    }

    /// The command that runs `program` on a host; it becomes that program, under the same process id.
    pub(super) fn command(&self, host: usize, program: &Path) -> Command {
        match self {
            Self::Namespaces(namespaces) => namespaces.command(host, program),
            Self::Proxies(_) => Command::new(program),
        }
    }

    /// A host's program was started: this is its process.
    pub(super) fn started(&self, host: usize, pid: i32) {
        if let Self::Proxies(proxies) = self {
            proxies.started(host, pid);
        }
    }

    /// Whether everything came and went by it all the time.
    ///
    /// # Errors
    /// [`NetworkError::Unheard`] if a proxy could not listen: what was seen of its replica then is no replica's.
    pub(super) fn check(&self) -> Result<(), NetworkError> {
        let failure = match self {
            Self::Namespaces(_) => None,
            Self::Proxies(proxies) => proxies.failure(),
        };
        failure.map_or(Ok(()), |failure| Err(failure.into()))
    }

    /// Cuts a host off from all others; what it sends is lost to users, too, while what they send arrives.
    ///
    /// # Errors
    /// If the network cannot be changed.
    pub(super) fn cut(&self, host: usize, direction: Direction) -> Result<(), NetworkError> {
        let mut ways = self.ways(host, direction).into_iter();
        ways.try_for_each(|(from, to)| self.lose(from, to))
    }

    /// Connects a host again that was cut off so.
    ///
    /// # Errors
    /// If the network cannot be changed.
    pub(super) fn heal(&self, host: usize, direction: Direction) -> Result<(), NetworkError> {
        let mut ways = self.ways(host, direction).into_iter();
        ways.try_for_each(|(from, to)| self.find(from, to))
    }

    /// Cuts two hosts off from each other; each still reaches all others, and users.
    ///
    /// # Errors
    /// If the network cannot be changed.
    pub(super) fn part(&self, one: usize, other: usize) -> Result<(), NetworkError> {
        self.lose(one, End::Host(other))?;
        self.lose(other, End::Host(one))
    }

    /// Lets two hosts reach each other again that were parted.
    ///
    /// # Errors
    /// If the network cannot be changed.
    pub(super) fn join(&self, one: usize, other: usize) -> Result<(), NetworkError> {
        self.find(one, End::Host(other))?;
        self.find(other, End::Host(one))
    }

    /// Every sender of a direction, with whom it sends to.
    fn ways(&self, host: usize, direction: Direction) -> Vec<(usize, End)> {
        let hosts = match self {
            Self::Namespaces(namespaces) => namespaces.hosts(),
            Self::Proxies(proxies) => proxies.hosts(),
        };
        let mut ways = Vec::new();
        for other in (0..hosts).filter(|other| *other != host) {
            if direction != Direction::In {
                ways.push((host, End::Host(other)));
            }
            if direction != Direction::Out {
                ways.push((other, End::Host(host)));
            }
        }
        if direction != Direction::In {
            ways.push((host, End::Users));
        }
        ways
    }

    fn lose(&self, from: usize, to: End) -> Result<(), NetworkError> {
        match self {
            Self::Namespaces(namespaces) => namespaces.lose(from, to),
            Self::Proxies(proxies) => {
                proxies.lose(from, to);
                Ok(())
            }
        }
    }

    fn find(&self, from: usize, to: End) -> Result<(), NetworkError> {
        match self {
            Self::Namespaces(namespaces) => namespaces.find(from, to),
            Self::Proxies(proxies) => {
                proxies.find(from, to);
                Ok(())
            }
        }
    }
}
