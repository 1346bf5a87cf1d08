//! Network namespaces for the hosts of a local cluster, joined by one bridge.
//!
//! A namespace lives as long as a process in it. Here that process copies its standard input, which we
//! hold: it ends when we end, however that happens. The bridge lies in our own namespace, which must be
//! private as well (see [`crate::trials::apart`]), so that nothing is visible outside and nothing has to be
//! removed.
//!
//! A direction is cut by a wrong link address: the sender's packets go out, reach no host, and cause no
//! error. Packets in the other direction arrive as before.

use std::io;
use std::net::Ipv4Addr;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use tokio::time::{Duration, Instant};

use crate::cluster::network::Endpoint;
use crate::cluster::network::proxy::ProxyListenError;

/// Prefix of the `/24` network of all hosts, from the range reserved for network tests (RFC 2544).
const PREFIX: [u8; 3] = [198, 18, 77];
/// Our own address in it.
const OUR_NUMBER: u8 = 254;
/// Maximum number of hosts.
const HOSTS_MAX: usize = 200;
/// Name of the bridge in our own namespace.
const SWITCH: &str = "switch";
/// Name of the link in each host's namespace.
const LINK: &str = "eth0";
/// A link address that no host has.
const NOWHERE: &str = "02:00:00:00:00:00";
/// Maximum time until a new namespace is ready.
const READY_TIMEOUT: Duration = Duration::from_secs(5);
/// Polling interval.
const READY_POLL: Duration = Duration::from_millis(5);

/// A network that cannot be created or changed.
#[derive(Debug, thiserror::Error)]
pub enum NetworkError {
    /// A program cannot be started.
    #[error("starting `{program}`")]
    Start {
        /// The program.
        program: String,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// A program failed.
    #[error("`{command}` failed: {complaint}")]
    Failed {
        /// The command line.
        command: String,
        /// Its error output.
        complaint: String,
    },
    /// A namespace was not created.
    #[error("process {0} has no network namespace of its own")]
    NoNamespace(u32),
    /// Too many hosts were requested.
    #[error("{0} hosts exceed the limit of {HOSTS_MAX} (HOSTS_MAX)")]
    TooMany(usize),
    /// A proxy could not listen.
    #[error(transparent)]
    ProxyListen(#[from] ProxyListenError),
}

/// One host's end of the network.
#[derive(Debug)]
struct Host {
    address: Ipv4Addr,
    /// The bridge's end of its link.
    port: String,
    namespace: Namespace,
}

/// A namespace and the process that keeps it alive.
#[derive(Debug)]
struct Namespace {
    keeper: Child,
}

/// Brings up loopback in our own namespace: it is down in a new one.
///
/// # Errors
/// If `ip` fails.
pub(crate) fn raise_loopback() -> Result<(), NetworkError> {
    run("ip", &["link", "set", "lo", "up"])
}

/// Address of a host, by number.
pub(super) fn host_address(host: usize) -> Ipv4Addr {
    // There are at most `HOSTS_MAX` hosts: `build` refuses more.
    address(u8::try_from(host + 1).unwrap_or(OUR_NUMBER))
}

/// Hosts joined by one bridge.
#[derive(Debug)]
pub(in crate::cluster) struct Namespaces {
    hosts: Vec<Host>,
}

impl Namespaces {
    /// Creates `count` connected hosts.
    ///
    /// # Errors
    /// [`NetworkError`] names the failed step; without the right to create namespaces it is the first.
    pub(super) fn build(count: usize) -> Result<Self, NetworkError> {
        if count > HOSTS_MAX {
            return Err(NetworkError::TooMany(count));
        }
        run("ip", &["link", "add", SWITCH, "type", "bridge"])?;
        let mut network = Self { hosts: Vec::new() };
        let ours = format!("{}/24", address(OUR_NUMBER));
        run("ip", &["address", "add", &ours, "dev", SWITCH])?;
        run("ip", &["link", "set", SWITCH, "up"])?;
        for number in (1..OUR_NUMBER).take(count) {
            network.hosts.push(Host::connect(number)?);
        }
        Ok(network)
    }

    /// Number of hosts.
    pub(super) fn hosts(&self) -> usize {
        self.hosts.len()
    }

    /// A command that runs `program` on a host, as the same process (same pid).
    pub(super) fn command(&self, host: usize, program: &Path) -> Command {
        let mut command = self.hosts[host].namespace.command();
        command.arg(program);
        // The hosts reach only each other. Set through variables, because an older build may not know the
        // option.
        command.env("MUSTER_SCHEDULER_INSECURE", "true");
        command.env("MUSTER_WORKER_INSECURE", "true");
        command
    }

    /// Drops packets from a host to an end.
    ///
    /// # Errors
    /// If `ip` fails.
    pub(super) fn lose(&self, host: usize, to: Endpoint) -> Result<(), NetworkError> {
        self.hosts[host].lose(self.address_of(to))
    }

    /// Delivers packets from a host to an end again.
    ///
    /// # Errors
    /// If `ip` fails.
    pub(super) fn find(&self, host: usize, to: Endpoint) -> Result<(), NetworkError> {
        self.hosts[host].find(self.address_of(to))
    }

    fn address_of(&self, end: Endpoint) -> Ipv4Addr {
        match end {
            Endpoint::Host(host) => self.hosts[host].address,
            Endpoint::Users => address(OUR_NUMBER),
        }
    }
}

impl Host {
    fn connect(number: u8) -> Result<Self, NetworkError> {
        let namespace = Namespace::new()?;
        let port = format!("port{number}");
        let keeper = namespace.keeper.id().to_string();
        let pair = ["link", "add", &port, "type", "veth", "peer", "name", LINK];
        run("ip", &[&pair[..], &["netns", &keeper]].concat())?;
        let host = Self {
            address: address(number),
            port,
            namespace,
        };
        run("ip", &["link", "set", &host.port, "master", SWITCH, "up"])?;
        host.ip(&["link", "set", "lo", "up"])?;
        let own = format!("{}/24", host.address);
        host.ip(&["address", "add", &own, "dev", LINK])?;
        host.ip(&["link", "set", LINK, "up"])?;
        Ok(host)
    }

    /// Directs packets for an address to an unused link address.
    fn lose(&self, to: Ipv4Addr) -> Result<(), NetworkError> {
        let to = to.to_string();
        let words = ["neighbour", "replace", &to, "lladdr", NOWHERE];
        self.ip(&[&words[..], &["dev", LINK, "nud", "permanent"]].concat())
    }

    /// Directs packets for an address to its owner again.
    fn find(&self, to: Ipv4Addr) -> Result<(), NetworkError> {
        self.ip(&["neighbour", "delete", &to.to_string(), "dev", LINK])
    }

    /// Runs `ip` on this host.
    fn ip(&self, words: &[&str]) -> Result<(), NetworkError> {
        let mut command = self.namespace.command();
        command.arg("ip").args(words);
        finish(command)
    }
}

impl Namespace {
    fn new() -> Result<Self, NetworkError> {
        let keeper = Command::new("unshare")
            .args(["--net", "cat"])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .map_err(cannot_start("unshare"))?;
        let namespace = Self { keeper };
        let deadline = Instant::now() + READY_TIMEOUT;
        while !namespace.is_apart() {
            if Instant::now() >= deadline {
                return Err(NetworkError::NoNamespace(namespace.keeper.id()));
            }
            pause();
        }
        Ok(namespace)
    }

    /// Whether the keeper is in a different namespace from ours.
    fn is_apart(&self) -> bool {
        let link = |process: &str| std::fs::read_link(format!("/proc/{process}/ns/net"));
        match (link("self"), link(&self.keeper.id().to_string())) {
            (Ok(ours), Ok(theirs)) => ours != theirs,
            _ => false,
        }
    }

    /// A command in this namespace; its first argument is the program.
    fn command(&self) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net=/proc/{}/ns/net", self.keeper.id()));
        command
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        // It fails only if the process is already gone.
        drop(self.keeper.kill());
        drop(self.keeper.wait());
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        // The kernel removes it with the namespace, but later: it would conflict with the next network.
        if let Err(error) = run("ip", &["link", "delete", &self.port]) {
            tracing::warn!(%error, "a link was not removed");
        }
    }
}

impl Drop for Namespaces {
    fn drop(&mut self) {
        if let Err(error) = run("ip", &["link", "delete", SWITCH]) {
            tracing::warn!(%error, "the bridge was not removed");
        }
    }
}

fn address(number: u8) -> Ipv4Addr {
    let [a, b, c] = PREFIX;
    Ipv4Addr::new(a, b, c, number)
}

fn run(program: &str, words: &[&str]) -> Result<(), NetworkError> {
    let mut command = Command::new(program);
    command.args(words);
    finish(command)
}

fn finish(mut command: Command) -> Result<(), NetworkError> {
    let words: Vec<_> = std::iter::once(command.get_program())
        .chain(command.get_args())
        .map(|word| word.to_string_lossy().into_owned())
        .collect();
    let output = command
        .stdin(Stdio::null())
        .output()
        .map_err(cannot_start(&words[0]))?;
    if output.status.success() {
        return Ok(());
    }
    Err(NetworkError::Failed {
        command: words.join(" "),
        complaint: String::from_utf8_lossy(&output.stderr).trim().to_owned(),
    })
}

fn cannot_start(program: &str) -> impl FnOnce(io::Error) -> NetworkError {
    let program = program.to_owned();
    move |source| NetworkError::Start { program, source }
}

/// Waits until a new process has entered its namespace.
#[expect(
    clippy::disallowed_methods,
    reason = "a network is created before anything runs that could be blocked"
)]
fn pause() {
    std::thread::sleep(READY_POLL);
}
