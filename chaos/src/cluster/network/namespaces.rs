//! Hosts of a local cluster apart from each other: a network namespace each, joined by one switch.
//!
//! A namespace lives as long as a process is in it. Here that is one that copies its standard input, which we hold: when
//! we end, however we end, it does. The switch lies in our own namespace, which must be private as well (see
//! [`crate::trials::apart`]), so that nothing of it is ever seen outside and nothing has to be removed.
//!
//! A direction is cut by a wrong link address: the sender's packets go out and reach nobody, and nobody tells it. Packets
//! of the other direction arrive as before.

use std::io;
use std::net::Ipv4Addr;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use tokio::time::{Duration, Instant};

use crate::cluster::network::End;
use crate::cluster::network::proxy::Unheard;

/// The network of all hosts, `/24`; one of those that are kept for tests of networks (RFC 2544).
const PREFIX: [u8; 3] = [198, 18, 77];
/// Our own address in it.
const OUR_NUMBER: u8 = 254;
/// Hosts at most.
const HOSTS_MAX: usize = 200;
/// The switch's name, in our own namespace.
const SWITCH: &str = "switch";
/// The link's name, in each host's namespace.
const LINK: &str = "eth0";
/// A link address that nobody has.
const NOWHERE: &str = "02:00:00:00:00:00";
/// Longest that a new namespace may take to be there.
const READY_PATIENCE: Duration = Duration::from_secs(5);
/// Pause between two looks.
const READY_POLL: Duration = Duration::from_millis(5);

/// A network that cannot be made or changed.
#[derive(Debug, thiserror::Error)]
pub enum NetworkError {
    /// A program cannot be started.
    #[error("starting `{program}`")]
    Start {
        /// Which.
        program: String,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// A program failed.
    #[error("`{command}` failed: {complaint}")]
    Failed {
        /// What was run.
        command: String,
        /// What it said.
        complaint: String,
    },
    /// A namespace did not come to be.
    #[error("no network namespace of its own for process {0}")]
    NoNamespace(u32),
    /// There is room for fewer hosts.
    #[error("{0} hosts are over the limit of {HOSTS_MAX} (HOSTS_MAX)")]
    TooMany(usize),
    /// A proxy did not do its work.
    #[error(transparent)]
    Unheard(#[from] Unheard),
}

/// One host's end of the network.
#[derive(Debug)]
struct Host {
    address: Ipv4Addr,
    /// The switch's end of its link.
    port: String,
    namespace: Namespace,
}

/// A namespace, and the process that keeps it.
#[derive(Debug)]
struct Namespace {
    keeper: Child,
}

/// Lets processes of our own namespace reach each other: in a new one even that is off.
///
/// # Errors
/// If `ip` fails.
pub(crate) fn raise_loopback() -> Result<(), NetworkError> {
    run("ip", &["link", "set", "lo", "up"])
}

/// Address of a host, by its number.
pub(super) fn host_address(host: usize) -> Ipv4Addr {
    // There are fewer than `HOSTS_MAX`, or they are not built.
    address(u8::try_from(host + 1).unwrap_or(OUR_NUMBER))
}

/// Hosts joined by one switch.
#[derive(Debug)]
pub(in crate::cluster) struct Namespaces {
    hosts: Vec<Host>,
}

impl Namespaces {
    /// So many hosts, all connected.
    ///
    /// # Errors
    /// [`NetworkError`] says which step failed; without the right to make namespaces it is the first.
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

    /// How many hosts there are.
    pub(super) fn hosts(&self) -> usize {
        self.hosts.len()
    }

    /// The command that runs `program` on a host; it becomes that program, under the same process id.
    pub(super) fn command(&self, host: usize, program: &Path) -> Command {
        let mut command = self.hosts[host].namespace.command();
        command.arg(program);
        // Its hosts reach each other and nobody else. Variables, because another build may not know the option.
        command.env("MUSTER_SCHEDULER_INSECURE", "true");
        command.env("MUSTER_WORKER_INSECURE", "true");
        command
    }

    /// Loses what a host sends to an end.
    ///
    /// # Errors
    /// If `ip` fails.
    pub(super) fn lose(&self, host: usize, to: End) -> Result<(), NetworkError> {
        self.hosts[host].lose(self.address_of(to))
    }

    /// Lets what a host sends arrive again.
    ///
    /// # Errors
    /// If `ip` fails.
    pub(super) fn find(&self, host: usize, to: End) -> Result<(), NetworkError> {
        self.hosts[host].find(self.address_of(to))
    }

    fn address_of(&self, end: End) -> Ipv4Addr {
        match end {
            End::Host(host) => self.hosts[host].address,
            End::Users => address(OUR_NUMBER),
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

    /// Sends what goes to an address to nobody.
    fn lose(&self, to: Ipv4Addr) -> Result<(), NetworkError> {
        let to = to.to_string();
        let words = ["neighbour", "replace", &to, "lladdr", NOWHERE];
        self.ip(&[&words[..], &["dev", LINK, "nud", "permanent"]].concat())
    }

    /// Sends what goes to an address to whoever has it.
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
        let deadline = Instant::now() + READY_PATIENCE;
        while !namespace.is_apart() {
            if Instant::now() >= deadline {
                return Err(NetworkError::NoNamespace(namespace.keeper.id()));
            }
            pause();
        }
        Ok(namespace)
    }

    /// Whether the keeper is in another namespace than we are.
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
        // It can only be gone already.
        drop(self.keeper.kill());
        drop(self.keeper.wait());
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        // The kernel takes it away with the namespace, but later: it would be in the way of the next network.
        if let Err(error) = run("ip", &["link", "delete", &self.port]) {
            tracing::warn!(%error, "a link stays");
        }
    }
}

impl Drop for Namespaces {
    fn drop(&mut self) {
        if let Err(error) = run("ip", &["link", "delete", SWITCH]) {
            tracing::warn!(%error, "the switch stays");
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

/// Lets a new process get into its namespace.
#[expect(
    clippy::disallowed_methods,
    reason = "a network is made before anything runs that could be blocked"
)]
fn pause() {
    std::thread::sleep(READY_POLL);
}
