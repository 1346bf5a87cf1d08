//! The nemesis: breaks one thing at a time in a running cluster, repairs it, and waits until the cluster is whole again.

mod effects;
mod hosts;
mod loyal;
mod members;
mod operator;
mod orders;
mod replicas;
mod whole;
mod wipe;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use effects::Effect;
use muster_client::{Client, ClientConfig};
use muster_model::ids::GpuUuid;
use muster_proto::v1;
use orders::Orders;
use rand::Rng as _;
use rand_chacha::ChaCha8Rng;
use serde::Serialize;

use crate::cluster::{LocalCluster, SmallDisk};
use crate::demo::timeline::{Timeline, Voice};
use crate::error_chain::chain;
use crate::preemption::let_priority_preempt;
use crate::run::clock::now_us;
use crate::run::history::History;
use crate::run::judge::{Journal, Violation};
use crate::run::options::{CALM, DISK_MIB, LOAD_MIN_PER_S, REPLICAS};
use crate::run::pictures::Picture;
use crate::run::{Fault, RunError};

pub(super) use operator::out_of_use;
pub(super) use orders::build_library;

/// Whom a fault hit that the cluster did not let anybody make.
pub(super) const NOBODY: &str = "?";

/// A leader that reached no other replica, while clients reached it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Severed {
    /// Where clients ask it, as `host:port`.
    pub(super) address: String,
    /// When it was cut off for certain.
    pub(super) from_us: u64,
    /// Until when it was so for certain.
    pub(super) until_us: u64,
    /// Whether whoever asked it alone reached it: if not, that it said nothing tells nothing.
    pub(super) is_reached: bool,
}

/// One fault, from the calm before it until the cluster is whole again. Times are those of the run's clock.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Episode {
    /// What was broken.
    pub(super) fault: Fault,
    /// Of whom: `replica-1`, `node02`.
    pub(super) target: String,
    /// Calls a second that were answered in the calm before.
    pub(super) load_per_s: f64,
    /// The GPU that was broken, if it was one.
    pub(super) gpu: Option<GpuUuid>,
    /// The leader that reached no other replica while a client asked it alone, if it was one.
    pub(super) severed: Option<Severed>,
    /// When it was broken.
    pub(super) began_us: u64,
    /// When it was repaired.
    pub(super) healed_us: u64,
    /// When the cluster was whole again; none if that took too long.
    pub(super) whole_us: Option<u64>,
    /// Whether what the fault is there for came about, where no event tells: see [`effects`].
    pub(super) effect: Option<bool>,
    /// Hosts and GPUs that rules had taken out of use, and that were given back once it was over.
    pub(super) given_back: Vec<String>,
    /// What went wrong beside.
    pub(super) odd: Vec<String>,
}

impl Episode {
    /// One that is broken at 1,000, repaired at 5,000 and whole at 6,000, under load.
    #[cfg(test)]
    pub(super) fn of(fault: Fault) -> Self {
        Self {
            fault,
            target: String::new(),
            load_per_s: 100.0,
            gpu: None,
            severed: None,
            began_us: 1_000,
            healed_us: 5_000,
            whole_us: Some(6_000),
            effect: None,
            given_back: Vec::new(),
            odd: Vec::new(),
        }
    }

    /// Whether there was enough load for it to prove anything.
    pub(super) fn has_load(&self) -> bool {
        self.load_per_s >= LOAD_MIN_PER_S
    }

    /// When it was over, one way or the other.
    pub(super) fn ended_us(&self) -> u64 {
        self.whole_us.unwrap_or(self.healed_us)
    }
}

/// Whoever breaks things, with everything that is needed for it.
pub(super) struct Nemesis {
    /// The disks of the replicas, where they are to be filled. Before the cluster: they are unmounted before its folder is
    /// removed.
    disks: Vec<SmallDisk>,
    pub(super) cluster: LocalCluster,
    /// Reaches all replicas.
    pub(super) client: Client,
    /// Each reaches one replica only, in order of their ids.
    pinned: Vec<Client>,
    random: ChaCha8Rng,
    /// The incarnation that the agent of a host has at least, once it is back.
    incarnations: BTreeMap<String, u64>,
    /// GPUs that were broken once: what is given back by hand is not taken again by the same rule on the same day.
    broken_gpus: BTreeSet<String>,
    /// Hosts that were silenced.
    silenced: BTreeSet<String>,
    /// What rules keep out of use although no fault explains it, as it was noted.
    accused: BTreeSet<String>,
    /// What went wrong since the fault was begun.
    odd: Vec<String>,
    /// What shows that the fault came about, where no event tells.
    effect: Option<Effect>,
    /// The GPU that is broken.
    gpu: Option<GpuUuid>,
    /// The leader that was cut off.
    severed: Option<Severed>,
    tools: Tools,
    history: Arc<History>,
    timeline: Timeline,
}

/// Programs and folders that faults need.
#[derive(Clone, Debug)]
pub(super) struct Tools {
    /// What replicas and workers run, and are upgraded to.
    pub(super) binary: PathBuf,
    /// The example trainer.
    pub(super) trainer: PathBuf,
    /// Where its tasks keep the book of GPUs.
    pub(super) ledger: PathBuf,
}

impl Nemesis {
    /// Takes a cluster over.
    pub(super) async fn new(
        cluster: LocalCluster,
        tools: Tools,
        random: ChaCha8Rng,
        history: Arc<History>,
        timeline: Timeline,
    ) -> Result<Self, RunError> {
        let client = connect(cluster.addresses()).await?;
        let mut pinned = Vec::new();
        for address in cluster.addresses() {
            pinned.push(connect(vec![address]).await?);
        }
        Ok(Self {
            cluster,
            client,
            pinned,
            disks: Vec::new(),
            random,
            incarnations: BTreeMap::new(),
            broken_gpus: BTreeSet::new(),
            silenced: BTreeSet::new(),
            accused: BTreeSet::new(),
            odd: Vec::new(),
            effect: None,
            gpu: None,
            severed: None,
            tools,
            history,
            timeline,
        })
    }

    /// Makes the cluster as the faults need it, before anybody uses it.
    pub(super) async fn prepare(&mut self, faults: &[Fault]) -> Result<(), RunError> {
        crate::dev::await_ready(&self.cluster).await?;
        if faults.contains(&Fault::DiskFull) {
            self.move_replicas_to_small_disks().await?;
        }
        if faults.contains(&Fault::PreemptStorm) {
            let_priority_preempt(&self.client, "chaos").await?;
        }
        Ok(())
    }

    /// One fault with the calm before it. A cluster that does not answer or does not heal is noted in the episode.
    ///
    /// # Errors
    /// If the fault cannot be made or repaired: that is the harness's failure, not the cluster's.
    pub(super) async fn strike(&mut self, fault: Fault) -> Result<Episode, RunError> {
        let calm_us = now_us();
        tokio::time::sleep(CALM).await;
        let began_us = now_us();
        let answered = self.history.answered_between(calm_us, began_us);
        self.timeline.say(Voice::Fault, fault.words());
        let target = match self.break_and_repair(fault).await {
            Err(RunError::Client(error)) => {
                self.odd.push(format!("nobody answers: {}", chain(&error)));
                NOBODY.to_owned()
            }
            made => made?,
        };
        let healed_us = now_us();
        let expected = self.effect.take();
        let whole = async { self.await_whole().await.then(now_us) };
        let (whole_us, effect) = tokio::join!(whole, effects::await_effect(expected));
        let given_back = self.tidy_up().await;
        for index in 0..REPLICAS {
            if !self.cluster.is_replica_running(index)? {
                let ended = format!("replica {} ended by itself", index + 1);
                self.odd.push(ended);
            }
        }
        let took_s = |until_us: u64| (until_us - began_us) as f64 / 1e6;
        match whole_us {
            Some(whole_us) => self.timeline.say(
                Voice::Recovery,
                &format!(
                    "{target}: repaired after {:.1} s, whole after {:.1} s",
                    took_s(healed_us),
                    took_s(whole_us)
                ),
            ),
            None => {
                let why = self.what_is_missing().await;
                self.timeline
                    .say(Voice::Fault, &format!("not whole: {why}"));
                let late = format!("the cluster was not whole again in time: {why}");
                self.odd.push(late);
            }
        }
        Ok(Episode {
            fault,
            target,
            load_per_s: answered as f64 / CALM.as_secs_f64(),
            gpu: self.gpu.take(),
            severed: self.severed.take(),
            began_us,
            healed_us,
            whole_us,
            effect: effect?,
            given_back,
            odd: std::mem::take(&mut self.odd),
        })
    }

    /// Breaks something and repairs it; gives what it was.
    async fn break_and_repair(&mut self, fault: Fault) -> Result<String, RunError> {
        match fault {
            Fault::LeaderKilled => self.kill_leader().await,
            Fault::FollowerKilled => self.kill_follower().await,
            Fault::LeaderPaused => self.pause_leader().await,
            Fault::LeaderDeaf | Fault::LeaderMute => self.cut_leader(fault).await,
            Fault::LeaderParted => self.part_leader().await,
            Fault::DiskFull => self.fill_disk().await,
            Fault::SyncsSlow => self.slow_syncs().await,
            Fault::SyncFailed => self.fail_sync().await,
            Fault::ClockSet => self.set_clock().await,
            Fault::RolledOver | Fault::Upgraded => self.roll_over().await,
            Fault::SnapshotStorm => self.storm_snapshots().await,
            Fault::DataWiped => self.wipe_replica().await,
            Fault::MembersChanged => self.change_members().await,
            Fault::AgentKilled => self.kill_agent().await,
            Fault::AgentFrozen => self.freeze_agent().await,
            Fault::HostKilled => self.kill_host().await,
            Fault::LeaderAndHostKilled => self.kill_leader_and_host().await,
            Fault::HostCut => self.cut_host().await,
            Fault::GpuFaulted => self.break_gpu().await,
            Fault::PreemptStorm => self.storm_preemption().await,
            Fault::GpuBlocked
            | Fault::HostBlocked
            | Fault::HostDrained
            | Fault::JobsCancelled
            | Fault::LeadershipTransferred
            | Fault::ReplicaKilled
            | Fault::ReplicaFrozen => Err(RunError::Harness(format!(
                "{}: that is for clusters of others",
                fault.words()
            ))),
        }
    }

    /// The states of the replicas, fewer if one does not give its own; and what is wrong with those that cannot be read.
    pub(super) async fn pictures(&self) -> (Vec<Picture>, Vec<Violation>) {
        let (mut pictures, mut violations) = (Vec::new(), Vec::new());
        for (replica, client) in self.pinned.iter().enumerate() {
            let name = self.name_of(replica);
            match Picture::of(&name, client).await {
                Ok(Ok(picture)) => pictures.push(picture),
                Ok(Err(violation)) => violations.push(violation),
                Err(refusal) => {
                    let why = format!("{name} does not give its state: {refusal}");
                    self.timeline.say(Voice::Cluster, &why);
                }
            }
        }
        (pictures, violations)
    }

    /// Ends the cluster's processes, but leaves what they wrote; for good if that fails.
    pub(super) fn halt(mut self) -> Result<Halted, RunError> {
        if let Err(error) = self.cluster.halt() {
            self.cluster.keep();
            let kept = format!("kept for inspection: {}", self.cluster.folder().display());
            self.timeline.say(Voice::Stage, &kept);
            return Err(error.into());
        }
        Ok(Halted {
            disks: self.disks,
            cluster: self.cluster,
        })
    }

    /// Where tasks keep the book of GPUs.
    pub(super) fn ledger(&self) -> &Path {
        &self.tools.ledger
    }

    async fn move_replicas_to_small_disks(&mut self) -> Result<(), RunError> {
        for index in 0..REPLICAS {
            self.cluster.stop_replica(index)?;
            let data = self.cluster.replicas()[index].data();
            self.disks.push(SmallDisk::mount(&data, DISK_MIB)?);
            self.cluster.start_replica(index)?;
            if !self.await_whole().await {
                let why = self.what_is_missing().await;
                let text = format!("the cluster is not whole on small disks: {why}");
                return Err(RunError::Harness(text));
            }
        }
        Ok(())
    }

    /// The replica that leads, by its position.
    async fn leader(&self) -> Result<usize, RunError> {
        let status = self.client.status(v1::Consistency::Linearizable).await?;
        let ids = self.cluster.replica_ids();
        let leader = ids.iter().position(|id| Some(id.get()) == status.leader_id);
        leader.ok_or_else(|| RunError::Harness("nobody leads a cluster that answers".to_owned()))
    }

    /// One that does not.
    async fn follower(&mut self) -> Result<usize, RunError> {
        let leader = self.leader().await?;
        Ok((leader + self.random.random_range(1..REPLICAS)) % REPLICAS)
    }

    fn name_of(&self, replica: usize) -> String {
        self.cluster.replicas()[replica].name.clone()
    }

    fn order(&self, replica: usize, orders: Orders) -> Result<(), RunError> {
        orders.give(&self.cluster.replicas()[replica])
    }
}

/// A cluster without processes, whose files can be read.
pub(super) struct Halted {
    // Before the cluster: they are unmounted before its folder is removed.
    disks: Vec<SmallDisk>,
    cluster: LocalCluster,
}

impl Halted {
    /// Data folders of the replicas that are members.
    pub(super) fn data_folders(&self) -> Vec<PathBuf> {
        let replicas = self.cluster.replicas().iter();
        replicas.map(crate::cluster::Member::data).collect()
    }

    /// Everything that it wrote.
    pub(super) fn folder(&self) -> &Path {
        self.cluster.folder()
    }

    /// What the agents wrote down.
    ///
    /// # Errors
    /// If a journal cannot be read.
    pub(super) fn journals(&self) -> Result<Vec<Journal>, RunError> {
        let workers = self.cluster.workers().iter();
        workers
            .map(|worker| Journal::read(worker.name.clone(), &worker.data()))
            .collect()
    }

    /// Leaves what the cluster wrote, where [`Self::folder`] says. What is on small disks goes with them: a copy of each stays
    /// beside its folder.
    ///
    /// # Errors
    /// If a small disk cannot be copied.
    pub(super) fn keep(&mut self) -> Result<(), RunError> {
        self.cluster.keep();
        for disk in &self.disks {
            disk.copy_beside()?;
        }
        Ok(())
    }

    /// Removes what is left, unless it is to be kept.
    pub(super) fn clear(self) -> Result<(), RunError> {
        drop(self.disks);
        Ok(self.cluster.stop()?)
    }
}

/// Gives every replica orders that say nothing, so that its library finds some when it begins.
pub(super) fn give_no_orders(cluster: &LocalCluster) -> Result<(), RunError> {
    let mut replicas = cluster.replicas().iter();
    replicas.try_for_each(|replica| Orders::default().give(replica))
}

async fn connect(addresses: Vec<String>) -> Result<Client, RunError> {
    let config = ClientConfig {
        discover: false,
        ..ClientConfig::new(addresses)
    };
    Ok(Client::connect(config).await?)
}
