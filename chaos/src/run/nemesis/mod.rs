//! The nemesis: injects one fault at a time into a running cluster, repairs it, and waits until the cluster
//! has recovered.

mod effects;
mod health_check;
mod hosts;
mod members;
mod operator;
mod pinned_client;
mod replicas;
mod wipe;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use effects::Effect;
use muster_client::Client;
use muster_model::ids::GpuUuid;
use muster_proto::v1;
use rand::Rng as _;
use rand_chacha::ChaCha8Rng;
use serde::Serialize;

use crate::cluster::timeline::{LineKind, Timeline};
use crate::cluster::{Disruption, Fault, LocalCluster, Part};
use crate::error_chain::chain;
use crate::preemption::let_priority_preempt;
use crate::run::RunError;
use crate::run::checkers::{Journal, Violation};
use crate::run::clock::now_us;
use crate::run::history::History;
use crate::run::options::{
    AWAY, CALM, DISK_MIB, LOAD_MIN_PER_S, LONG_FAULT, REPLICAS, SHORT_FAULT,
};
use crate::run::state_snapshots::StateSnapshot;

pub(super) use operator::out_of_use;

/// Target of a fault that the cluster refused to let anyone inject.
pub(super) const NO_TARGET: &str = "?";

/// A leader that reached no other replica but was reachable by clients.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct IsolatedLeader {
    /// Its address for clients, as `host:port`.
    pub(super) address: String,
    /// Time from which it was certainly isolated.
    pub(super) from_us: u64,
    /// Time until which it was certainly isolated.
    pub(super) until_us: u64,
    /// Whether the pinned client reached it: if not, a missing response proves nothing.
    pub(super) is_reached: bool,
}

/// One fault, from the calm before it until recovery. Times are those of the run's clock.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Episode {
    /// The fault.
    pub(super) fault: Fault,
    /// Its target: `replica-1`, `node02`.
    pub(super) target: String,
    /// Answered calls per second in the calm before.
    pub(super) load_per_s: f64,
    /// The broken GPU, for a GPU fault.
    pub(super) gpu: Option<GpuUuid>,
    /// The isolated leader with its pinned client, for a fault that isolates one.
    pub(super) severed: Option<IsolatedLeader>,
    /// Time of injection.
    pub(super) began_us: u64,
    /// Time of repair.
    pub(super) healed_us: u64,
    /// Time of recovery; `None` if it took too long.
    pub(super) recovered_us: Option<u64>,
    /// Whether the fault had its effect, where no event shows it: see [`effects`].
    pub(super) effect: Option<bool>,
    /// Hosts and GPUs that rules had taken out of placement and that were unblocked afterwards.
    pub(super) unblocked: Vec<String>,
    /// Other anomalies.
    pub(super) anomalies: Vec<String>,
}

impl Episode {
    /// Measures the load in a calm, and begins a fault.
    pub(super) async fn begin(fault: Fault, history: &History, timeline: Timeline) -> Self {
        let calm_us = now_us();
        tokio::time::sleep(CALM).await;
        let began_us = now_us();
        let answered = history.answered_between(calm_us, began_us);
        timeline.print_line(LineKind::Fault, fault.name());
        Self {
            fault,
            target: NO_TARGET.to_owned(),
            load_per_s: answered as f64 / CALM.as_secs_f64(),
            gpu: None,
            severed: None,
            began_us,
            healed_us: began_us,
            recovered_us: None,
            effect: None,
            unblocked: Vec::new(),
            anomalies: Vec::new(),
        }
    }

    /// An episode injected at 1,000, repaired at 5,000 and recovered at 6,000, under load.
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
            recovered_us: Some(6_000),
            effect: None,
            unblocked: Vec::new(),
            anomalies: Vec::new(),
        }
    }

    /// Whether there was enough load to prove anything.
    pub(super) fn has_load(&self) -> bool {
        self.load_per_s >= LOAD_MIN_PER_S
    }

    /// Time of its end, recovered or not.
    pub(super) fn ended_us(&self) -> u64 {
        self.recovered_us.unwrap_or(self.healed_us)
    }
}

/// The fault injector with everything it needs.
pub(super) struct Nemesis {
    pub(super) cluster: LocalCluster,
    /// Client of all replicas.
    pub(super) client: Client,
    /// One client per replica, in order of their ids.
    pinned: Vec<Client>,
    random: ChaCha8Rng,
    /// Minimum incarnation of the agent of a host after its restart.
    incarnations: BTreeMap<String, u64>,
    /// GPUs that were broken once: after a manual unblock the same rule does not block them again on the
    /// same day.
    broken_gpus: BTreeSet<String>,
    /// Hosts that were silenced.
    silenced: BTreeSet<String>,
    /// Components out of placement without a fault that explains it, already recorded.
    accused: BTreeSet<String>,
    /// Anomalies since the start of the fault.
    odd: Vec<String>,
    /// Evidence of the fault's effect, where no event shows it.
    effect: Option<Effect>,
    /// The broken GPU.
    gpu: Option<GpuUuid>,
    /// The isolated leader.
    severed: Option<IsolatedLeader>,
    tools: FaultTools,
    history: Arc<History>,
    timeline: Timeline,
}

/// Programs and folders that faults need.
#[derive(Clone, Debug)]
pub(super) struct FaultTools {
    /// Binary of replicas and workers, and target of an upgrade.
    pub(super) binary: PathBuf,
    /// The example trainer.
    pub(super) trainer: PathBuf,
    /// Folder of the tasks' GPU ledger.
    pub(super) ledger: PathBuf,
}

impl Nemesis {
    /// Takes over a cluster.
    pub(super) async fn new(
        cluster: LocalCluster,
        tools: FaultTools,
        random: ChaCha8Rng,
        history: Arc<History>,
        timeline: Timeline,
    ) -> Result<Self, RunError> {
        let client = cluster.client().await?;
        let mut pinned = Vec::new();
        for replica in 0..cluster.replicas().len() {
            pinned.push(cluster.client_of(replica).await?);
        }
        Ok(Self {
            cluster,
            client,
            pinned,
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

    /// Prepares the cluster for the faults, before any load.
    pub(super) async fn prepare(&mut self, faults: &[Fault]) -> Result<(), RunError> {
        self.cluster.await_ready().await?;
        if faults.contains(&Fault::LeaderDiskFull) {
            self.move_replicas_to_small_disks().await?;
        }
        if faults.contains(&Fault::PreemptStorm) {
            let_priority_preempt(&self.client, "chaos").await?;
        }
        Ok(())
    }

    /// Injects one fault after a calm. A cluster that does not answer or recover is recorded in the
    /// episode.
    ///
    /// # Errors
    /// If the fault cannot be injected or repaired: the harness failed, not the cluster.
    pub(super) async fn strike(&mut self, fault: Fault) -> Result<Episode, RunError> {
        let mut episode = Episode::begin(fault, &self.history, self.timeline).await;
        match self.break_and_repair(fault).await {
            Ok(target) => episode.target = target,
            Err(RunError::Client(error)) => {
                self.odd
                    .push(format!("no replica answers: {}", chain(&error)));
            }
            Err(error) => return Err(error),
        }
        episode.healed_us = now_us();
        let expected = self.effect.take();
        let whole = async { self.await_recovery().await.then(now_us) };
        let (whole_us, effect) = tokio::join!(whole, effects::await_effect(expected));
        episode.unblocked = self.unblock_all().await;
        for index in 0..REPLICAS {
            if !self.cluster.is_replica_running(index)? {
                let ended = format!("replica {} ended by itself", index + 1);
                self.odd.push(ended);
            }
        }
        let took_s = |until_us: u64| (until_us - episode.began_us) as f64 / 1e6;
        match whole_us {
            Some(whole_us) => self.timeline.print_line(
                LineKind::Recovery,
                &format!(
                    "{}: repaired after {:.1} s, recovered after {:.1} s",
                    episode.target,
                    took_s(episode.healed_us),
                    took_s(whole_us)
                ),
            ),
            None => {
                let why = self.failed_check().await;
                let late = format!("the cluster did not recover in time: {why}");
                self.timeline.print_line(LineKind::Fault, &late);
                self.odd.push(late);
            }
        }
        Ok(Episode {
            recovered_us: whole_us,
            effect: effect?,
            gpu: self.gpu.take(),
            severed: self.severed.take(),
            anomalies: std::mem::take(&mut self.odd),
            ..episode
        })
    }

    /// Injects and repairs a fault; returns its target.
    async fn break_and_repair(&mut self, fault: Fault) -> Result<String, RunError> {
        match fault {
            Fault::LeaderKilled => self.disrupt_leader(Disruption::Killed, AWAY).await,
            Fault::FollowerKilled => {
                let replica = self.follower().await?;
                self.disrupt_replica(replica, Disruption::Killed, AWAY)
                    .await
            }
            Fault::LeaderFrozen => self.disrupt_leader(Disruption::Frozen, SHORT_FAULT).await,
            Fault::LeaderCut(direction) => {
                let cut = |leader| Disruption::Cut(leader, direction);
                self.disrupt_leader(cut, SHORT_FAULT).await
            }
            Fault::LeaderIsolated => self.isolate_leader().await,
            Fault::LeaderDiskFull => self.fill_disk().await,
            Fault::SyncsSlow => self.slow_syncs().await,
            Fault::SyncFailed => self.fail_sync().await,
            Fault::ClockSet => self.set_clock().await,
            Fault::RollingRestart | Fault::RollingUpgrade => self.restart_all().await,
            Fault::SnapshotStorm => self.storm_snapshots().await,
            Fault::DataWiped => self.wipe_replica().await,
            Fault::MembersChanged => self.change_members().await,
            Fault::AgentKilled => {
                let killed = |host| Disruption::Killed(Part::Agent(host));
                self.disrupt_host(killed, AWAY).await
            }
            Fault::AgentFrozen => {
                let frozen = |host| Disruption::Frozen(Part::Agent(host));
                self.disrupt_host(frozen, LONG_FAULT).await
            }
            Fault::HostKilled => {
                let killed = |host| Disruption::Killed(Part::Host(host));
                self.disrupt_host(killed, LONG_FAULT).await
            }
            Fault::LeaderAndHostKilled => self.kill_leader_and_host().await,
            Fault::HostCut(direction) => {
                let cut = |host| Disruption::Cut(Part::Host(host), direction);
                self.disrupt_host(cut, LONG_FAULT).await
            }
            Fault::GpuFaulted => self.break_gpu().await,
            Fault::PreemptStorm => self.storm_preemption().await,
            other => {
                let name = other.name();
                let text = format!("`{name}` is not possible on a cluster started by the run");
                Err(RunError::Harness(text))
            }
        }
    }

    /// States of the replicas, except those that do not send theirs; and violations in states that cannot
    /// be read.
    pub(super) async fn pictures(&self) -> (Vec<StateSnapshot>, Vec<Violation>) {
        let (mut pictures, mut violations) = (Vec::new(), Vec::new());
        for (replica, client) in self.pinned.iter().enumerate() {
            let name = self.name_of(replica);
            match StateSnapshot::of(&name, client).await {
                Ok(Ok(picture)) => pictures.push(picture),
                Ok(Err(violation)) => violations.push(violation),
                Err(refusal) => {
                    let why = format!("{name} does not send its state: {refusal}");
                    self.timeline.print_line(LineKind::Cluster, &why);
                }
            }
        }
        (pictures, violations)
    }

    /// Ends the cluster's processes but leaves their files; keeps the files permanently if that fails.
    pub(super) fn pause(mut self) -> Result<StoppedCluster, RunError> {
        if let Err(error) = self.cluster.shutdown() {
            self.cluster.keep();
            let kept = format!("kept for inspection: {}", self.cluster.folder().display());
            self.timeline.print_line(LineKind::Stage, &kept);
            return Err(error.into());
        }
        Ok(StoppedCluster {
            cluster: self.cluster,
        })
    }

    /// Folder of the tasks' GPU ledger.
    pub(super) fn ledger(&self) -> &Path {
        &self.tools.ledger
    }

    async fn move_replicas_to_small_disks(&mut self) -> Result<(), RunError> {
        for index in 0..REPLICAS {
            self.cluster.stop_replica(index)?;
            let data = self.cluster.replicas()[index].data();
            self.cluster.mount_small_disk(&data, DISK_MIB)?;
            self.cluster.start_replica(index)?;
            if !self.await_recovery().await {
                let why = self.failed_check().await;
                let text = format!("the cluster did not recover on small disks: {why}");
                return Err(RunError::Harness(text));
            }
        }
        Ok(())
    }

    /// Position of the leader.
    async fn leader(&self) -> Result<usize, RunError> {
        let status = self.client.status(v1::Consistency::Linearizable).await?;
        let leader = self.cluster.leader_in(&status);
        leader.ok_or_else(|| RunError::Harness("the cluster answers without a leader".to_owned()))
    }

    /// Position of a random follower.
    async fn follower(&mut self) -> Result<usize, RunError> {
        let leader = self.leader().await?;
        Ok((leader + self.random.random_range(1..REPLICAS)) % REPLICAS)
    }

    fn name_of(&self, replica: usize) -> String {
        self.cluster.replicas()[replica].name.clone()
    }
}

/// A stopped cluster with readable files.
pub(super) struct StoppedCluster {
    cluster: LocalCluster,
}

impl StoppedCluster {
    /// Data folders of the replicas that are members.
    pub(super) fn data_folders(&self) -> Vec<PathBuf> {
        let replicas = self.cluster.replicas().iter();
        replicas.map(crate::cluster::Member::data).collect()
    }

    /// The cluster folder.
    pub(super) fn folder(&self) -> &Path {
        self.cluster.folder()
    }

    /// Reads the journals of all agents.
    ///
    /// # Errors
    /// If a journal cannot be read.
    pub(super) fn journals(&self) -> Result<Vec<Journal>, RunError> {
        let workers = self.cluster.workers().iter();
        workers
            .map(|worker| Journal::read(worker.name.clone(), &worker.data()))
            .collect()
    }

    /// Keeps the cluster's files, in [`Self::folder`]. Small disks are unmounted: their contents are copied
    /// to a neighbouring folder.
    ///
    /// # Errors
    /// If a small disk cannot be copied.
    pub(super) fn keep(&mut self) -> Result<(), RunError> {
        self.cluster.keep();
        Ok(self.cluster.keep_disks()?)
    }

    /// Removes the remaining files, unless they are kept.
    pub(super) fn clear(self) -> Result<(), RunError> {
        Ok(self.cluster.stop()?)
    }
}
