//! Hosts of a local cluster that share loopback, with a proxy of ours before each replica: whoever calls a replica, be it a
//! replica, a worker or a user, calls its proxy. So all that members say to each other goes through us, and we can keep it.
//!
//! What is lost in a direction is kept, as bytes that TCP sends again and again, and goes on when the direction is healed;
//! connections stay open meanwhile and nobody is told. Tasks of a job speak to each other directly.

use std::collections::BTreeSet;
use std::sync::{Arc, OnceLock};

use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::cluster::network::End;
use crate::cluster::network::callers::Callers;
use crate::cluster::network::proxy::{Front, Proxy, Unheard, Way};

/// The proxies of a cluster; they end with this.
#[derive(Debug)]
pub(in crate::cluster) struct Proxies {
    /// How many hosts there are, with a proxy or without.
    hosts: usize,
    callers: Arc<Callers>,
    /// What does not arrive.
    lost: watch::Sender<BTreeSet<Way>>,
    /// Why one of them could not listen.
    failure: Arc<OnceLock<Unheard>>,
    /// Held for its end: it aborts what is in it.
    _at_work: JoinSet<()>,
}

impl Proxies {
    /// Puts a proxy before each replica.
    pub(super) fn begin(hosts: usize, fronts: Vec<Front>) -> Self {
        let callers = Arc::default();
        let lost = watch::Sender::default();
        let failure = Arc::default();
        let mut at_work = JoinSet::new();
        for front in fronts {
            let told = Arc::clone(&failure);
            let proxy = Proxy::before(front, Arc::clone(&callers), lost.subscribe(), told);
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

    /// How many hosts there are.
    pub(super) fn hosts(&self) -> usize {
        self.hosts
    }

    /// Why one of them could not listen, if it ever could not.
    pub(super) fn failure(&self) -> Option<Unheard> {
        self.failure.get().cloned()
    }

    /// A host's process was started.
    pub(super) fn started(&self, host: usize, pid: i32) {
        self.callers.started(host, pid);
    }

    /// Keeps what a host sends to an end.
    pub(super) fn lose(&self, host: usize, to: End) {
        let from = End::Host(host);
        self.lost.send_modify(|lost| {
            lost.insert(Way { from, to });
        });
    }

    /// Lets what a host sends arrive again, and what was kept first.
    pub(super) fn find(&self, host: usize, to: End) {
        let from = End::Host(host);
        self.lost.send_modify(|lost| {
            lost.remove(&Way { from, to });
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
    use crate::cluster::free_addresses;

    /// Long enough for what would arrive on loopback.
    const QUIET: Duration = Duration::from_millis(300);
    /// Longest that anything may take.
    const PATIENCE: Duration = Duration::from_secs(20);
    /// The host of the replica with the proxy, and another one.
    const REPLICA: usize = 0;
    const WORKER: usize = 1;

    /// A network of two hosts, where the proxy is called, and the address behind it.
    fn network() -> (Network, SocketAddr, SocketAddr) {
        let [address, target] = free_addresses(2).unwrap()[..] else {
            panic!("two were asked for");
        };
        let front = Front {
            host: REPLICA,
            address,
            target,
        };
        let network = Network::Proxies(Proxies::begin(2, vec![front]));
        (network, address, target)
    }

    /// Connects once somebody listens.
    async fn connected(address: SocketAddr) -> TcpStream {
        let deadline = Instant::now() + PATIENCE;
        loop {
            match TcpStream::connect(address).await {
                Ok(stream) => return stream,
                Err(error) => assert!(Instant::now() < deadline, "{error}"),
            }
            sleep(Duration::from_millis(5)).await;
        }
    }

    /// The next connection that something is said on: the proxy looks now and then whether the replica listens.
    async fn next(replica: &TcpListener) -> (TcpStream, [u8; 1]) {
        loop {
            let mut stream = replica.accept().await.unwrap().0;
            let mut said = [0];
            if stream.read_exact(&mut said).await.is_ok() {
                return (stream, said);
            }
        }
    }

    async fn heard(stream: &mut TcpStream) -> u8 {
        let read = timeout(PATIENCE, stream.read_u8()).await;
        read.unwrap().unwrap()
    }

    async fn is_quiet(stream: &mut TcpStream) -> bool {
        timeout(QUIET, stream.read_u8()).await.is_err()
    }

    /// A process on the worker's host that says a letter to a port for each line that it is told.
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

    async fn tell(child: &mut Child, line: &[u8]) {
        child.stdin.as_mut().unwrap().write_all(line).await.unwrap();
    }

    #[tokio::test]
    async fn what_is_lost_in_one_direction_arrives_once_that_is_healed_and_the_other_one_flows() {
        let (network, address, target) = network();
        let replica = TcpListener::bind(target).await.unwrap();
        let mut user = connected(address).await;
        user.write_all(b"a").await.unwrap();
        let (mut behind, said) = next(&replica).await;
        assert_eq!(said, *b"a");
        network.cut(REPLICA, Direction::Out).unwrap();
        user.write_all(b"b").await.unwrap();
        assert_eq!(heard(&mut behind).await, b'b');
        behind.write_all(b"c").await.unwrap();
        assert!(is_quiet(&mut user).await, "what is lost arrives");
        network.heal(REPLICA, Direction::Out).unwrap();
        assert_eq!(heard(&mut user).await, b'c');
    }

    #[tokio::test]
    async fn a_host_is_known_by_its_process_and_users_are_left_alone() {
        let (network, address, target) = network();
        let replica = TcpListener::bind(target).await.unwrap();
        let mut user = connected(address).await;
        user.write_all(b"u").await.unwrap();
        let (mut of_user, _) = next(&replica).await;
        let mut worker = caller(&network, address.port());
        tell(&mut worker, b"w\n").await;
        let (mut of_worker, said) = next(&replica).await;
        assert_eq!(said, *b"w");
        network.part(REPLICA, WORKER).unwrap();
        tell(&mut worker, b"x\n").await;
        user.write_all(b"v").await.unwrap();
        assert_eq!(heard(&mut of_user).await, b'v');
        assert!(is_quiet(&mut of_worker).await, "what is lost arrives");
        // Not even that it has ended is known.
        worker.kill().await.unwrap();
        assert!(
            is_quiet(&mut of_worker).await,
            "an end that is lost arrives"
        );
        network.join(REPLICA, WORKER).unwrap();
        assert_eq!(heard(&mut of_worker).await, b'x');
        let ended = timeout(PATIENCE, of_worker.read(&mut [0])).await.unwrap();
        assert!(!ended.is_ok_and(|count| count > 0));
    }

    #[tokio::test]
    async fn a_new_connection_hangs_while_either_direction_is_cut_and_whoever_left_is_not_let_in() {
        let (network, address, target) = network();
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
        let (mut behind, said) = timeout(PATIENCE, next(&replica)).await.unwrap();
        assert_eq!(said, *b"s");
        behind.write_all(b"t").await.unwrap();
        assert_eq!(heard(&mut stays).await, b't');
        assert!(timeout(QUIET, next(&replica)).await.is_err());
    }

    #[tokio::test]
    async fn a_proxy_whose_port_somebody_else_has_is_told_of() {
        let (network, address, target) = network();
        network.check().unwrap();
        let _other = TcpListener::bind(address).await.unwrap();
        let _replica = TcpListener::bind(target).await.unwrap();
        let deadline = Instant::now() + PATIENCE;
        let told = loop {
            match network.check() {
                Err(told) => break told.to_string(),
                Ok(()) => assert!(Instant::now() < deadline, "nothing is told"),
            }
            sleep(Duration::from_millis(5)).await;
        };
        assert!(told.contains(&address.to_string()), "{told}");
    }

    #[tokio::test]
    async fn nobody_is_let_in_while_the_replica_is_down() {
        let (_network, address, target) = network();
        let refused = TcpStream::connect(address).await.unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
        let replica = TcpListener::bind(target).await.unwrap();
        let mut user = connected(address).await;
        user.write_all(b"a").await.unwrap();
        let (behind, _) = next(&replica).await;
        drop((behind, replica));
        let ended = timeout(PATIENCE, user.read(&mut [0])).await.unwrap();
        assert!(!ended.is_ok_and(|count| count > 0));
        let deadline = Instant::now() + PATIENCE;
        while TcpStream::connect(address).await.is_ok() {
            assert!(Instant::now() < deadline, "it is let in");
            sleep(Duration::from_millis(5)).await;
        }
        let _back = TcpListener::bind(target).await.unwrap();
        connected(address).await;
    }
}
