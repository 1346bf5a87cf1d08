//! Replicas, each on its own runtime so that it can be killed.

use std::collections::BTreeMap;
use std::thread;
use std::time::Duration;

use muster_model::ids::ReplicaId;
use muster_model::timings::Timings;
use muster_proto::v1::Consistency;
use muster_scheduler::{BackupSettings, Listeners, RaftTimings, SchedulerConfig, run_on};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::support::{Client, eventually};

/// Heartbeat settings that suit a test.
pub(crate) const TIMINGS: Timings = Timings {
    heartbeat_ms: 200,
    suspect_ms: 2_000,
    lost_ms: 6_000,
};

/// Longest wait for the threads of stopped replicas: a test that ends before them is aborted if one is still
/// in RocksDB.
const CLOSE_MAX: Duration = Duration::from_secs(10);

struct Running {
    runtime: Runtime,
    stop: oneshot::Sender<()>,
    finished: JoinHandle<Result<(), muster_scheduler::Error>>,
}

/// One replica.
struct Node {
    config: SchedulerConfig,
    running: Option<Running>,
    _directory: TempDir,
}

/// Three replicas, or one.
pub(crate) struct Group {
    nodes: BTreeMap<u64, Node>,
    /// Each waits for the threads of a stopped replica.
    closing: Vec<thread::JoinHandle<()>>,
}

impl Group {
    /// Bootstraps a group of three and waits for its leader.
    pub(crate) async fn start() -> Self {
        Self::found(3, &BackupSettings::default()).await
    }

    /// Bootstraps a group of one, which takes backups, and waits until it leads.
    pub(crate) async fn start_alone(backup: &BackupSettings) -> Self {
        Self::found(1, backup).await
    }

    async fn found(replicas: u64, backup: &BackupSettings) -> Self {
        let mut listeners = BTreeMap::new();
        for id in 1..=replicas {
            listeners.insert(id, TcpListener::bind("127.0.0.1:0").await.unwrap());
        }
        let peers: BTreeMap<ReplicaId, String> = listeners
            .iter()
            .map(|(id, listener)| (ReplicaId(*id), listener.local_addr().unwrap().to_string()))
            .collect();
        let nodes = listeners
            .into_iter()
            .map(|(id, listener)| (id, Node::start(id, &peers, backup, listener)))
            .collect();
        let group = Self {
            nodes,
            closing: Vec::new(),
        };
        group.leader().await;
        group
    }

    /// Ids of the running replicas.
    pub(crate) fn alive(&self) -> Vec<u64> {
        let running = self.nodes.iter().filter(|(_, node)| node.running.is_some());
        running.map(|(id, _)| *id).collect()
    }

    /// Address of a replica.
    pub(crate) fn address(&self, id: u64) -> String {
        self.nodes[&id].config.listen.to_string()
    }

    /// Addresses of all running replicas.
    pub(crate) fn addresses(&self) -> Vec<String> {
        self.alive()
            .into_iter()
            .map(|id| self.address(id))
            .collect()
    }

    /// Current metrics of a replica.
    pub(crate) async fn metrics(&self, id: u64) -> String {
        let address = self.nodes[&id].config.metrics_listen.unwrap();
        let mut stream = TcpStream::connect(address).await.unwrap();
        let request = b"GET /metrics HTTP/1.1\r\nhost: test\r\nconnection: close\r\n\r\n";
        stream.write_all(request).await.unwrap();
        let mut page = String::new();
        stream.read_to_string(&mut page).await.unwrap();
        page
    }

    /// A client of one replica.
    pub(crate) fn client(&self, id: u64) -> Client {
        Client::new(&self.address(id))
    }

    /// Waits until all running replicas agree on a leader among them.
    pub(crate) async fn leader(&self) -> u64 {
        eventually("the replicas agree on a leader", async || {
            let alive = self.alive();
            let mut leaders = Vec::new();
            for id in &alive {
                let status = self.client(*id).status(Consistency::Stale).await.ok()?;
                leaders.push(status.leader_id?);
            }
            let leader = *leaders.first()?;
            let is_agreed = leaders.iter().all(|other| *other == leader) && alive.contains(&leader);
            is_agreed.then_some(leader)
        })
        .await
    }

    /// A replica that does not lead.
    pub(crate) async fn follower(&self) -> u64 {
        let leader = self.leader().await;
        self.alive().into_iter().find(|id| *id != leader).unwrap()
    }

    /// Ends a replica as a power cut would: all its tasks are dropped at once.
    pub(crate) fn kill(&mut self, id: u64) {
        let running = self
            .nodes
            .get_mut(&id)
            .and_then(|node| node.running.take())
            .unwrap();
        self.close(running.runtime);
    }

    /// Drops all tasks of a replica on a separate thread: a test's runtime may not wait for another one's
    /// threads.
    fn close(&mut self, runtime: Runtime) {
        let closing = thread::spawn(move || runtime.shutdown_timeout(CLOSE_MAX));
        self.closing.push(closing);
    }

    /// Starts a killed replica again at its address, with an empty data directory.
    pub(crate) async fn start_emptied(&mut self, id: u64) {
        let config = self.nodes[&id].config.clone();
        let listener = eventually("the address is free", async || {
            TcpListener::bind(config.listen).await.ok()
        })
        .await;
        let node = Node::start(id, &config.peers, &config.backup, listener);
        self.nodes.insert(id, node);
    }

    /// Stops a replica gracefully and waits for its end.
    pub(crate) async fn stop(&mut self, id: u64) -> Result<(), muster_scheduler::Error> {
        let running = self
            .nodes
            .get_mut(&id)
            .and_then(|node| node.running.take())
            .unwrap();
        running.stop.send(()).unwrap();
        let result = running.finished.await.unwrap();
        self.close(running.runtime);
        result
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        for id in self.alive() {
            self.kill(id);
        }
        for closing in self.closing.drain(..) {
            closing.join().expect("a runtime ends");
        }
    }
}

impl Node {
    fn start(
        id: u64,
        peers: &BTreeMap<ReplicaId, String>,
        backup: &BackupSettings,
        listener: TcpListener,
    ) -> Self {
        let directory = TempDir::new().unwrap();
        // Held all the time: a port released for a moment may be taken by another test.
        let metrics = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        metrics.set_nonblocking(true).unwrap();
        let config = SchedulerConfig {
            replica_id: ReplicaId(id),
            cluster_id: "test".to_owned(),
            listen: listener.local_addr().unwrap(),
            peers: peers.clone(),
            data_dir: directory.path().to_owned(),
            timings: TIMINGS,
            raft: RaftTimings::QUICK,
            backup: backup.clone(),
            metrics_listen: Some(metrics.local_addr().unwrap()),
            ..SchedulerConfig::default()
        };
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let (stop, stopped) = oneshot::channel();
        let own = config.clone();
        let listener = listener.into_std().unwrap();
        let finished = runtime.spawn(async move {
            let listeners = Listeners {
                grpc: TcpListener::from_std(listener).unwrap(),
                metrics: Some(TcpListener::from_std(metrics).unwrap()),
            };
            let shutdown = async {
                if stopped.await.is_err() {
                    std::future::pending().await
                }
            };
            run_on(own, listeners, shutdown).await
        });
        Self {
            config,
            running: Some(Running {
                runtime,
                stop,
                finished,
            }),
            _directory: directory,
        }
    }
}
