//! An in-process group of replicas over gRPC and RocksDB.

use std::net::SocketAddr;

use muster_ports::ReservedAddresses;
use muster_raft_store::{Config, Handle, OpenError, Peer, ProposeError, raft_service};
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio::time::Instant;
use tonic::transport::server::TcpIncoming;

use crate::support::counter::{Add, Counter};
use crate::support::{TIMEOUT, config, eventually};

/// One replica on a runtime of its own, so that it can be killed.
pub(crate) struct Node {
    pub(crate) id: u64,
    pub(crate) address: SocketAddr,
    pub(crate) directory: TempDir,
    _reserved: ReservedAddresses,
    running: Option<(Runtime, Handle<Counter>)>,
}

impl Node {
    fn new(id: u64) -> Self {
        let reserved = ReservedAddresses::draw(1).unwrap();
        Self {
            id,
            address: reserved.addresses()[0],
            _reserved: reserved,
            directory: TempDir::new().unwrap(),
            running: None,
        }
    }

    pub(crate) fn peer(&self) -> Peer {
        Peer::new(self.id, self.address.to_string())
    }

    pub(crate) fn handle(&self) -> &Handle<Counter> {
        &self.running.as_ref().expect("the node runs").1
    }

    pub(crate) fn is_running(&self) -> bool {
        self.running.is_some()
    }

    /// Starts or restarts the replica; a killed one may need a moment to release its directory.
    pub(crate) async fn start(&mut self, adjust: impl Fn(&mut Config)) {
        let mut config = config(self.id, self.directory.path());
        adjust(&mut config);
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .unwrap();
        let handle = eventually("a free directory", async || {
            let opening = runtime.spawn(Handle::<Counter>::open(config.clone()));
            match opening.await.unwrap() {
                Ok(handle) => Some(handle),
                Err(OpenError::InUse { .. }) => None,
                Err(error) => panic!("replica {} does not open: {error:?}", self.id),
            }
        })
        .await;
        let service = raft_service(&handle);
        let address = self.address;
        let bound = runtime.spawn(async move {
            let listener = TcpListener::bind(address).await.unwrap();
            tokio::spawn(async move {
                tonic::transport::Server::builder()
                    .add_service(service)
                    .serve_with_incoming(TcpIncoming::from(listener).with_nodelay(Some(true)))
                    .await
                    .unwrap();
            });
        });
        bound.await.unwrap();
        self.running = Some((runtime, handle));
    }

    /// Stops every task of the replica at once, at any point, and closes its files.
    pub(crate) fn kill(&mut self) {
        if let Some((runtime, handle)) = self.running.take() {
            drop(handle);
            // A runtime may not be dropped on another runtime's thread.
            let dropping = std::thread::spawn(move || drop(runtime));
            dropping.join().expect("the runtime ends");
        }
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A group of replicas.
pub(crate) struct Cluster {
    pub(crate) nodes: Vec<Node>,
}

impl Cluster {
    /// Starts a group of three.
    pub(crate) async fn start(adjust: impl Fn(&mut Config)) -> Self {
        let mut nodes = Vec::new();
        for id in 1..=3 {
            let mut node = Node::new(id);
            node.start(&adjust).await;
            nodes.push(node);
        }
        let members = nodes.iter().map(Node::peer).collect();
        nodes[0].handle().initialize(members).await.unwrap();
        Self { nodes }
    }

    /// Position of the leader among the running nodes.
    pub(crate) async fn leader(&self) -> usize {
        eventually("a leader", async || {
            self.nodes
                .iter()
                .position(|node| node.is_running() && node.handle().leadership().borrow().is_self)
        })
        .await
    }

    /// Proposes until a leader accepts it; safe only for repeatable commands.
    pub(crate) async fn add(&self, name: &str, amount: u64) -> u64 {
        self.retry(|handle| async move { handle.propose(vec![Add::new(name, amount)]).await })
            .await[0]
    }

    pub(crate) async fn retry<F, T>(&self, propose: impl Fn(Handle<Counter>) -> F) -> T
    where
        F: Future<Output = Result<T, ProposeError>>,
    {
        let deadline = Instant::now() + TIMEOUT;
        loop {
            let leader = self.leader().await;
            match propose(self.nodes[leader].handle().clone()).await {
                Ok(value) => return value,
                Err(error) => assert!(Instant::now() < deadline, "not in time: {error}"),
            }
        }
    }

    /// Waits until every running replica has the same state.
    pub(crate) async fn converge(&self) -> Counter {
        eventually("equal states", async || {
            let running = self.nodes.iter().filter(|node| node.is_running());
            let mut states = running.map(|node| node.handle().fork());
            let first = states.next()?;
            states.all(|state| state == first).then_some(first)
        })
        .await
    }
}
