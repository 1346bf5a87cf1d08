//! Replicas of a simulated cluster: each a node with a disk and a clock, started, killed and restarted on
//! the contents of its disk.

use std::sync::Arc;
use std::time::Duration;

use muster_raft_store::sim::{Environment, FirstMember, Observer};
use muster_raft_store::storage::disk::LogDisk as _;
use muster_raft_store::{Config, Handle, OpenError, Peer, StateMachine, Timings};
use rand::{Rng, RngCore as _};
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::sim::clock::SimClock;
use crate::sim::disk::{FalseDurability, Loss, SimDisk};
use crate::sim::links::network::SimNetwork;
use crate::sim::links::transport::{Registry, SimTransport};
use crate::sim::random_streams::{StreamOwner, draws};
use crate::sim::runtime::{NodeId, SimRuntime, kill, spawn_on};

/// Name of a world's cluster.
const CLUSTER: &str = "simulated";
/// Duration of one sync, in microseconds.
const SYNC_US: std::ops::Range<u64> = 100..3_000;
/// Maximum drift of a machine's monotonic clock, in thousandths; the leases allow for 50.
pub(super) const DRIFT_PERMILLE_MAX: i64 = 45;
/// Time within which a replica must stop after its log could not be written.
const NOTICED: Duration = Duration::from_secs(1);
/// Log entries between two snapshots: few, so that lagging replicas need one.
const SNAPSHOT_EVERY_ENTRIES: u64 = 200;
/// Log entries kept behind a snapshot.
const KEEP_ENTRIES: u64 = 50;
/// Maximum snapshots that a replica keeps with their log.
const HISTORY_SNAPSHOTS_MAX: u64 = 3;

/// A replica that did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// It refuses the contents of its disk.
    #[error("opening the replica")]
    Open(#[from] OpenError),
    /// It was killed before it was open.
    #[error("killed while it was opening")]
    Killed,
}

/// Machine of one replica.
#[derive(Clone, Debug)]
pub struct ReplicaNode {
    /// Its node in the network; the replica id is the same number.
    pub node: NodeId,
    /// Its clocks.
    pub clock: SimClock,
    disk: SimDisk,
}

impl ReplicaNode {
    /// Whether a write failed for lack of space since the last start.
    #[must_use]
    pub fn ran_out_of_space(&self) -> bool {
        self.disk.ran_out_of_space()
    }

    /// Whether a write or sync of its log failed since the last start because of the disk.
    #[must_use]
    pub fn has_failed(&self) -> bool {
        self.disk.failed().is_some()
    }

    /// Whether that was long enough ago for the replica to have stopped.
    #[must_use]
    pub fn failed_long_ago(&self) -> bool {
        self.disk.failed().is_some_and(|at| at.elapsed() > NOTICED)
    }

    /// Whether its disk decayed since the last start, or was damaged then.
    #[must_use]
    pub fn was_damaged(&self) -> bool {
        self.disk.was_damaged()
    }

    /// Its disk.
    #[must_use]
    pub const fn disk(&self) -> &SimDisk {
        &self.disk
    }
}

/// All replicas of a world.
#[derive(Debug)]
pub struct Replicas<M: StateMachine> {
    /// The machines, in order of their ids from 1.
    pub nodes: Vec<ReplicaNode>,
    /// The running replicas by address.
    pub registry: Registry<M>,
    /// The network.
    pub network: SimNetwork,
    seed: u64,
    /// Number of starts of each replica.
    lives: Vec<u32>,
}

/// Breaks the reference cycle between a running replica and the registry at the end of a world.
impl<M: StateMachine> Drop for Replicas<M> {
    fn drop(&mut self) {
        self.registry.close_all();
    }
}

impl<M: StateMachine> Replicas<M> {
    /// `count` machines with empty disks, which may deceive (a mutant).
    #[must_use]
    pub fn new(count: u32, seed: u64, network: SimNetwork, deceit: FalseDurability) -> Self {
        let began = Instant::now();
        let nodes: Vec<ReplicaNode> = (1..=count)
            .map(|id| {
                let mut random = draws(seed, StreamOwner::Replica, id, 0);
                let drift = random.random_range(-DRIFT_PERMILLE_MAX..=DRIFT_PERMILLE_MAX);
                let clock = SimClock::new(began, drift);
                ReplicaNode {
                    node: NodeId(id),
                    clock,
                    disk: SimDisk::new(deceit),
                }
            })
            .collect();
        Self {
            lives: vec![0; nodes.len()],
            nodes,
            registry: Registry::default(),
            network,
            seed,
        }
    }

    /// Address and id of a replica.
    #[must_use]
    pub fn peer(id: u32) -> Peer {
        Peer {
            id: u64::from(id),
            address: format!("replica-{id}"),
        }
    }

    /// All replicas as members.
    #[must_use]
    pub fn members(&self) -> Vec<Peer> {
        self.nodes
            .iter()
            .map(|replica| Self::peer(replica.node.0))
            .collect()
    }

    /// Number of starts of a replica.
    #[must_use]
    pub fn life(&self, id: u32) -> u32 {
        self.lives[id as usize - 1]
    }

    /// Whether a replica is up.
    #[must_use]
    pub fn is_up(&self, id: u32) -> bool {
        self.registry.find(&Self::peer(id).address).is_some()
    }

    /// Starts a replica on the contents of its disk, and makes it reachable; `observer` sees its applied
    /// entries.
    ///
    /// # Errors
    /// If the replica refuses its disk, which no simulated fault may cause.
    pub async fn start(
        &mut self,
        id: u32,
        observer: Arc<dyn Observer<M>>,
    ) -> Result<Handle<M>, StartError> {
        let replica = self.nodes[id as usize - 1].clone();
        self.lives[id as usize - 1] += 1;
        let mut random = draws(self.seed, StreamOwner::Replica, id, self.life(id));
        let latency = Duration::from_micros(random.random_range(SYNC_US));
        let disk = Arc::new(replica.disk.mount(latency));
        let transport = SimTransport {
            from: replica.node,
            network: self.network.clone(),
            registry: self.registry.clone(),
        };
        let seams = Environment {
            log: Arc::clone(&disk) as _,
            snapshots: disk,
            transport: Arc::new(transport),
            clock: Arc::new(replica.clock),
            fresh_incarnation: random.random(),
        };
        let config = config(id, self.seed);
        let (opened, outcome) = oneshot::channel();
        spawn_on(replica.node, random.random(), async move {
            let opening = Handle::open_observed::<SimRuntime>(config, seams, observer);
            let handle = opening.await;
            // The world waits for it, unless the node is killed meanwhile.
            let _unheard = opened.send(handle);
        });
        let handle = outcome.await.map_err(|_| StartError::Killed)??;
        self.network.node_up(replica.node);
        self.registry
            .listen(Self::peer(id).address, replica.node, handle.clone());
        Ok(handle)
    }

    /// Name of the group's cluster.
    #[must_use]
    pub const fn cluster_id(&self) -> &'static str {
        CLUSTER
    }

    /// Writes the data of a new group's only member onto a machine's empty disk, like an operator who
    /// restores a backup: the term and the index covered by the state, and the current time.
    ///
    /// # Errors
    /// Those of the disk.
    pub fn restore(
        &self,
        id: u32,
        term: u64,
        index: u64,
        now_ms: u64,
        state: M,
    ) -> std::io::Result<()> {
        let mut random = draws(self.seed, StreamOwner::Replica, id, 0);
        let founder = FirstMember {
            cluster_id: CLUSTER,
            replica: &Self::peer(id),
            incarnation: random.next_u64(),
            now_ms,
        };
        let disk = self.disk(id);
        let mounted = Arc::new(disk.mount(Duration::ZERO));
        let records = founder.write(Arc::clone(&mounted) as _, term, index, state)?;
        mounted.write(records)?;
        disk.settle();
        Ok(())
    }

    /// Kills a replica like `kill -9` with a power cut: all its tasks end, and unsynced data is lost.
    pub fn kill(&mut self, id: u32) -> Loss {
        let replica = &self.nodes[id as usize - 1];
        self.network.node_down(replica.node);
        drop(self.registry.close(&Self::peer(id).address));
        kill(replica.node);
        let mut random = draws(self.seed, StreamOwner::Kill, id, self.life(id));
        replica.disk.kill(random.random_range(0..=1_000))
    }

    /// A replica's disk.
    #[must_use]
    pub fn disk(&self, id: u32) -> &SimDisk {
        self.nodes[id as usize - 1].disk()
    }
}

/// Configuration of a replica; replicas of a world keep histories of different lengths.
fn config(id: u32, seed: u64) -> Config {
    let mut config = Config::new(u64::from(id), CLUSTER, "");
    config.timings = Timings {
        heartbeat_ms: 100,
        election_ms_min: 300,
        election_ms_max: 600,
    };
    config.snapshots.snapshot_every_entries = SNAPSHOT_EVERY_ENTRIES;
    config.snapshots.keep_entries = KEEP_ENTRIES;
    let more = (seed.wrapping_add(u64::from(id)) % HISTORY_SNAPSHOTS_MAX) as usize;
    config.snapshots.history_snapshots = 1 + more;
    config.hash_every_entries = 50;
    config.peer_timeout_ms = 1_000;
    config
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests;
