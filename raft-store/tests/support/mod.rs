//! A small state machine and an in-process group of replicas over gRPC and RocksDB.

use std::collections::BTreeMap;
use std::future::Future;
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use muster_raft_store::{
    Config, DecodeError, Handle, OpenError, Peer, ProposeError, StateMachine, Timings, raft_service,
};
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio::time::Instant;
use tokio_stream::wrappers::TcpListenerStream;

/// How long a test waits for a state before it fails.
const PATIENCE: Duration = Duration::from_secs(20);

/// Counts per name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Counter {
    pub(crate) revision: u64,
    pub(crate) time_ms: u64,
    pub(crate) totals: BTreeMap<String, u64>,
}

/// Adds to a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Add {
    pub(crate) name: String,
    pub(crate) amount: u64,
}

impl Add {
    pub(crate) fn new(name: &str, amount: u64) -> Self {
        Self {
            name: name.to_owned(),
            amount,
        }
    }
}

impl StateMachine for Counter {
    type Command = Add;
    type Outcome = u64;

    fn encode_command(command: &Add, out: &mut Vec<u8>) {
        out.extend_from_slice(&command.amount.to_le_bytes());
        out.extend_from_slice(command.name.as_bytes());
    }

    fn decode_command(bytes: &[u8]) -> Result<Add, DecodeError> {
        let (amount, name) = bytes
            .split_first_chunk()
            .ok_or_else(|| DecodeError::malformed("a command is cut short"))?;
        let name = String::from_utf8(name.to_vec())
            .map_err(|error| DecodeError::malformed(error.to_string()))?;
        Ok(Add {
            name,
            amount: u64::from_le_bytes(*amount),
        })
    }

    fn apply(&mut self, time_ms: u64, command: &Add) -> u64 {
        self.revision += 1;
        self.time_ms = self.time_ms.max(time_ms);
        let total = self.totals.entry(command.name.clone()).or_default();
        *total += command.amount;
        *total
    }

    fn revision(&self) -> u64 {
        self.revision
    }

    fn write_snapshot(&self, sink: &mut dyn Write) -> std::io::Result<()> {
        writeln!(sink, "{} {}", self.revision, self.time_ms)?;
        for (name, total) in &self.totals {
            writeln!(sink, "{total} {name}")?;
        }
        Ok(())
    }

    fn read_snapshot(source: &mut dyn Read) -> Result<Self, DecodeError> {
        let mut text = String::new();
        source.read_to_string(&mut text)?;
        let bad = || DecodeError::malformed("snapshot");
        let mut lines = text.lines();
        let (revision, time_ms) = lines.next().and_then(split).ok_or_else(bad)?;
        let mut counter = Self {
            revision,
            time_ms: time_ms.parse().map_err(|_| bad())?,
            totals: BTreeMap::new(),
        };
        for line in lines {
            let (total, name) = split(line).ok_or_else(bad)?;
            counter.totals.insert(name.to_owned(), total);
        }
        Ok(counter)
    }

    fn state_hash(&self) -> u64 {
        let mut hash = self.revision;
        for (name, total) in &self.totals {
            for byte in name.bytes().chain(total.to_le_bytes()) {
                hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
            }
        }
        hash
    }
}

fn split(line: &str) -> Option<(u64, &str)> {
    let (number, rest) = line.split_once(' ')?;
    Some((number.parse().ok()?, rest))
}

/// Polls until `check` gives a value.
pub(crate) async fn eventually<T>(what: &str, mut check: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(value) = check() {
            return value;
        }
        assert!(Instant::now() < deadline, "not in time: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// One replica on a runtime of its own, so that it can be killed.
pub(crate) struct Node {
    pub(crate) id: u64,
    pub(crate) address: SocketAddr,
    pub(crate) directory: TempDir,
    running: Option<(Runtime, Handle<Counter>)>,
}

impl Node {
    async fn new(id: u64) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        Self {
            id,
            address: listener.local_addr().unwrap(),
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

    /// Starts or restarts the replica; a killed one may need a moment to let go of its directory.
    pub(crate) async fn start(&mut self, adjust: impl Fn(&mut Config)) {
        let mut config = config(self.id, self.directory.path());
        adjust(&mut config);
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .unwrap();
        let deadline = Instant::now() + PATIENCE;
        let handle = loop {
            let opening = runtime.spawn(Handle::<Counter>::open(config.clone()));
            match opening.await.unwrap() {
                Ok(handle) => break handle,
                Err(OpenError::InUse { .. }) if Instant::now() < deadline => {
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
                Err(error) => panic!("replica {} does not open: {error:?}", self.id),
            }
        };
        let service = raft_service(&handle);
        let address = self.address;
        let bound = runtime.spawn(async move {
            let listener = TcpListener::bind(address).await.unwrap();
            tokio::spawn(async move {
                tonic::transport::Server::builder()
                    .add_service(service)
                    .serve_with_incoming(TcpListenerStream::new(listener))
                    .await
                    .unwrap();
            });
        });
        bound.await.unwrap();
        self.running = Some((runtime, handle));
    }

    /// Stops every task of the replica at once.
    pub(crate) fn kill(&mut self) {
        if let Some((runtime, handle)) = self.running.take() {
            drop(handle);
            runtime.shutdown_background();
        }
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.kill();
    }
}

pub(crate) fn config(id: u64, directory: &Path) -> Config {
    let mut config = Config::new(id, "test-cluster", directory);
    config.timings = Timings::FAST;
    config
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
            let mut node = Node::new(id).await;
            node.start(&adjust).await;
            nodes.push(node);
        }
        let members = nodes.iter().map(Node::peer).collect();
        nodes[0].handle().initialize(members).await.unwrap();
        Self { nodes }
    }

    /// Position of the leader among the running nodes.
    pub(crate) async fn leader(&self) -> usize {
        eventually("a leader", || {
            self.nodes
                .iter()
                .position(|node| node.is_running() && node.handle().leadership().borrow().is_self)
        })
        .await
    }

    /// Proposes until a leader takes it; safe only for commands that may be repeated.
    pub(crate) async fn add(&self, name: &str, amount: u64) -> u64 {
        self.retry(|handle| async move { handle.propose(vec![Add::new(name, amount)]).await })
            .await[0]
    }

    pub(crate) async fn retry<F, T>(&self, propose: impl Fn(Handle<Counter>) -> F) -> T
    where
        F: Future<Output = Result<T, ProposeError>>,
    {
        let deadline = Instant::now() + PATIENCE;
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
        eventually("equal states", || {
            let running = self.nodes.iter().filter(|node| node.is_running());
            let mut states = running.map(|node| node.handle().fork());
            let first = states.next()?;
            states.all(|state| state == first).then_some(first)
        })
        .await
    }
}
