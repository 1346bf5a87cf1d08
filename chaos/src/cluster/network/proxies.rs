//! Loopback network of a local cluster with one of our proxies before each replica: every caller of a
//! replica, be it a replica, a worker or a user, connects to its proxy. All traffic between members passes
//! through this process, which can hold it back.
//!
//! Traffic lost in a direction is held back, like bytes that TCP retransmits, and is delivered when the
//! direction is healed; connections stay open and no one is notified. Tasks of a job talk to each other
//! directly.

use std::collections::BTreeSet;
use std::sync::{Arc, OnceLock};

use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::cluster::network::Endpoint;
use crate::cluster::network::peer_processes::PeerProcesses;
use crate::cluster::network::proxy::{Flow, Proxy, ProxyListenError, ProxyTarget};

/// The proxies of a cluster; dropping it ends them.
#[derive(Debug)]
pub(in crate::cluster) struct Proxies {
    /// Number of hosts, with or without a proxy.
    hosts: usize,
    callers: Arc<PeerProcesses>,
    /// Directions in which traffic is held back.
    lost: watch::Sender<BTreeSet<Flow>>,
    /// The first failure of a proxy to listen.
    failure: Arc<OnceLock<ProxyListenError>>,
    /// Held for its destructor, which aborts all proxies.
    _at_work: JoinSet<()>,
}

impl Proxies {
    /// Starts a proxy before each replica.
    pub(super) fn begin(hosts: usize, fronts: Vec<ProxyTarget>) -> Self {
        let callers = Arc::default();
        let lost = watch::Sender::default();
        let failure = Arc::default();
        let mut at_work = JoinSet::new();
        for front in fronts {
            let proxy_failure = Arc::clone(&failure);
            let proxy = Proxy::before(front, Arc::clone(&callers), lost.subscribe(), proxy_failure);
            at_work.spawn(Arc::new(proxy).work());
        }
        Self {
            hosts,
            callers,
            lost,
            failure,
            _at_work: at_work,
        }
    }

    /// Number of hosts.
    pub(super) fn hosts(&self) -> usize {
        self.hosts
    }

    /// The first failure of a proxy to listen, if any.
    pub(super) fn failure(&self) -> Option<ProxyListenError> {
        self.failure.get().cloned()
    }

    /// Records that a process of a host was started.
    pub(super) fn started(&self, host: usize, pid: i32) {
        self.callers.started(host, pid);
    }

    /// Holds back traffic from a host to an end.
    pub(super) fn lose(&self, host: usize, to: Endpoint) {
        let from = Endpoint::Host(host);
        self.lost.send_modify(|lost| {
            lost.insert(Flow { from, to });
        });
    }

    /// Delivers traffic from a host to an end again, beginning with the held-back bytes.
    pub(super) fn find(&self, host: usize, to: Endpoint) {
        let from = Endpoint::Host(host);
        self.lost.send_modify(|lost| {
            lost.remove(&Flow { from, to });
        });
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use std::io;
    use std::net::SocketAddr;
    use std::process::Stdio;

    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::{TcpListener, TcpStream};
    use tokio::process::{Child, Command};
    use tokio::time::{Duration, Instant, sleep, timeout};

    use super::super::{Direction, Network};
    use super::*;
    use muster_ports::ReservedAddresses;

    /// Long enough for anything sent on loopback to arrive.
    const QUIET: Duration = Duration::from_millis(300);
    /// Deadline of all waits.
    const TIMEOUT: Duration = Duration::from_secs(20);
    /// Numbers of the host of the replica with the proxy, and of another host.
    const REPLICA: usize = 0;
    const WORKER: usize = 1;

    /// Returns a network of two hosts, the proxy's address and the address behind it.
    /// A proxy before a replica, its address and its target, and their reservation.
    fn network() -> (Network, SocketAddr, SocketAddr, ReservedAddresses) {
        let reserved = ReservedAddresses::draw(2).unwrap();
        let [address, target] = reserved.addresses()[..] else {
            panic!("expected two addresses");
        };
        let front = ProxyTarget {
            host: REPLICA,
            address,
            target,
        };
        let network = Network::Proxies(Proxies::begin(2, vec![front]));
        (network, address, target, reserved)
    }

    /// Connects as soon as the address accepts connections.
    async fn connected(address: SocketAddr) -> TcpStream {
        let deadline = Instant::now() + TIMEOUT;
        loop {
            match TcpStream::connect(address).await {
                Ok(stream) => return stream,
                Err(error) => assert!(Instant::now() < deadline, "{error}"),
            }
            sleep(Duration::from_millis(5)).await;
        }
    }

    /// The next connection that carries data: the proxy's probes connect too.
    async fn next(replica: &TcpListener) -> (TcpStream, [u8; 1]) {
        loop {
            let mut stream = replica.accept().await.unwrap().0;
            let mut byte = [0];
            if stream.read_exact(&mut byte).await.is_ok() {
                return (stream, byte);
            }
        }
    }

    async fn received(stream: &mut TcpStream) -> u8 {
        let read = timeout(TIMEOUT, stream.read_u8()).await;
        read.unwrap().unwrap()
    }

    async fn is_quiet(stream: &mut TcpStream) -> bool {
        timeout(QUIET, stream.read_u8()).await.is_err()
    }

    /// Starts a process on the worker's host that connects to a port and sends one byte for each line on
    /// its standard input.
    fn caller(network: &Network, port: u16) -> Child {
        let script = format!(
            "exec 3<>/dev/tcp/127.0.0.1/{port} || exit; while read -r line; do printf %s \"$line\" >&3; done"
        );
        let child = Command::new("bash")
            .args(["-c", &script])
            .stdin(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        network.started(WORKER, i32::try_from(child.id().unwrap()).unwrap());
        child
    }

    async fn send(child: &mut Child, line: &[u8]) {
        child.stdin.as_mut().unwrap().write_all(line).await.unwrap();
    }

    #[tokio::test]
    async fn data_lost_in_one_direction_arrives_after_the_repair_and_the_other_direction_works() {
        let (network, address, target, _reserved) = network();
        let replica = TcpListener::bind(target).await.unwrap();
        let mut user = connected(address).await;
        user.write_all(b"a").await.unwrap();
        let (mut behind, byte) = next(&replica).await;
        assert_eq!(byte, *b"a");
        network.cut(REPLICA, Direction::Out).unwrap();
        user.write_all(b"b").await.unwrap();
        assert_eq!(received(&mut behind).await, b'b');
        behind.write_all(b"c").await.unwrap();
        assert!(is_quiet(&mut user).await, "held-back data arrives");
        network.heal(REPLICA, Direction::Out).unwrap();
        assert_eq!(received(&mut user).await, b'c');
    }

    #[tokio::test]
    async fn a_host_is_known_by_its_process_and_users_are_left_alone() {
        let (network, address, target, _reserved) = network();
        let replica = TcpListener::bind(target).await.unwrap();
        let mut user = connected(address).await;
        user.write_all(b"u").await.unwrap();
        let (mut of_user, _) = next(&replica).await;
        let mut worker = caller(&network, address.port());
        send(&mut worker, b"w\n").await;
        let (mut of_worker, byte) = next(&replica).await;
        assert_eq!(byte, *b"w");
        network.partition(REPLICA, WORKER).unwrap();
        send(&mut worker, b"x\n").await;
        user.write_all(b"v").await.unwrap();
        assert_eq!(received(&mut of_user).await, b'v');
        assert!(is_quiet(&mut of_worker).await, "held-back data arrives");
        // Even the end of the process is not noticed.
        worker.kill().await.unwrap();
        assert!(
            is_quiet(&mut of_worker).await,
            "a held-back end of stream arrives"
        );
        network.reconnect(REPLICA, WORKER).unwrap();
        assert_eq!(received(&mut of_worker).await, b'x');
        let ended = timeout(TIMEOUT, of_worker.read(&mut [0])).await.unwrap();
        assert!(!ended.is_ok_and(|count| count > 0));
    }

    #[tokio::test]
    async fn a_new_connection_hangs_while_a_direction_is_cut_and_is_dropped_if_its_client_left() {
        let (network, address, target, _reserved) = network();
        let replica = TcpListener::bind(target).await.unwrap();
        drop(connected(address).await);
        network.cut(REPLICA, Direction::Out).unwrap();
        let mut left = connected(address).await;
        left.write_all(b"l").await.unwrap();
        let mut stays = connected(address).await;
        stays.write_all(b"s").await.unwrap();
        assert!(timeout(QUIET, next(&replica)).await.is_err());
        drop(left);
        sleep(QUIET).await;
        network.heal(REPLICA, Direction::Out).unwrap();
        let (mut behind, byte) = timeout(TIMEOUT, next(&replica)).await.unwrap();
        assert_eq!(byte, *b"s");
        behind.write_all(b"t").await.unwrap();
        assert_eq!(received(&mut stays).await, b't');
        assert!(timeout(QUIET, next(&replica)).await.is_err());
    }

    #[tokio::test]
    async fn a_proxy_whose_port_is_taken_is_reported() {
        let (network, address, target, _reserved) = network();
        network.check().unwrap();
        let _other = TcpListener::bind(address).await.unwrap();
        let _replica = TcpListener::bind(target).await.unwrap();
        let deadline = Instant::now() + TIMEOUT;
        let error = loop {
            match network.check() {
                Err(error) => break error.to_string(),
                Ok(()) => assert!(Instant::now() < deadline, "the failure is not reported"),
            }
            sleep(Duration::from_millis(5)).await;
        };
        assert!(error.contains(&address.to_string()), "{error}");
    }

    #[tokio::test]
    async fn connections_are_refused_while_the_replica_is_down() {
        let (_network, address, target, _reserved) = network();
        let refused = TcpStream::connect(address).await.unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
        let replica = TcpListener::bind(target).await.unwrap();
        let mut user = connected(address).await;
        user.write_all(b"a").await.unwrap();
        let (behind, _) = next(&replica).await;
        drop((behind, replica));
        let ended = timeout(TIMEOUT, user.read(&mut [0])).await.unwrap();
        assert!(!ended.is_ok_and(|count| count > 0));
        let deadline = Instant::now() + TIMEOUT;
        while TcpStream::connect(address).await.is_ok() {
            assert!(Instant::now() < deadline, "the call is accepted");
            sleep(Duration::from_millis(5)).await;
        }
        let _back = TcpListener::bind(target).await.unwrap();
        connected(address).await;
    }
}
