//! Stage of one trial: a fresh cluster, its client, and the observed events.

use std::sync::Arc;
use std::{fs, io};

use muster_client::{Client, ClientConfig};
use muster_model::event::{Event, EventKind};
use muster_model::ids::JobId;
use muster_proto::v1;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::cluster::{ClusterOptions, LocalCluster, NetworkKind, SmallDisk, processes_of};
use crate::demo::observer::{Observed, observe};
use crate::demo::timeline::{Timeline, Voice};
use crate::preemption::let_priority_preempt;
use crate::trials::jobs::{self, Traces};
use crate::trials::options::{
    CHECKPOINTS_BEFORE, DISK_MIB, GPUS_PER_HOST, PATIENCE, STRIKE_AFTER, TrialsOptions, WORKERS,
};
use crate::trials::{Trial, TrialError};

/// State of a running trial. The disks are declared first: they are unmounted before the cluster's folder
/// is removed.
pub(super) struct Stage<'a> {
    pub(super) options: &'a TrialsOptions,
    pub(super) trial: Trial,
    pub(super) disks: Vec<SmallDisk>,
    pub(super) cluster: LocalCluster,
    pub(super) client: Client,
    pub(super) observed: Arc<Observed>,
    pub(super) timeline: Timeline,
    pub(super) traces: Traces,
    pub(super) training: JobId,
    watcher: JoinHandle<()>,
}

/// Location of a rank.
#[derive(Clone, Debug)]
pub(super) struct Whereabouts {
    /// Index of the worker.
    pub(super) worker: usize,
    /// Name of the host.
    pub(super) host: String,
    /// Its first GPU there.
    pub(super) gpu: String,
}

impl<'a> Stage<'a> {
    /// Starts a cluster whose hosts have a network each.
    pub(super) async fn set(
        options: &'a TrialsOptions,
        trial: Trial,
        timeline: Timeline,
    ) -> Result<Self, TrialError> {
        let previous = options.previous.clone();
        let cluster = LocalCluster::start(ClusterOptions {
            worker_binary: previous.filter(|_| trial == Trial::AgentUpgraded),
            workers: WORKERS,
            gpus_per_host: GPUS_PER_HOST,
            keep: options.keep,
            network: Some(NetworkKind::Namespaces),
            ..ClusterOptions::small(options.binary.clone())
        })?;
        let folder = cluster.folder().display().to_string();
        timeline.say(Voice::Stage, &format!("data and logs: {folder}"));
        let config = ClientConfig {
            discover: false,
            ..ClientConfig::new(cluster.addresses())
        };
        let client = Client::connect(config).await?;
        let observed = Arc::new(Observed::default());
        let watcher = observe(client.clone(), Arc::clone(&observed), timeline);
        let traces = Traces::below(&cluster.shared_folder());
        for folder in [&traces.ledger, &traces.lives] {
            let failed = TrialError::io(format!("creating {}", folder.display()));
            fs::create_dir_all(folder).map_err(failed)?;
        }
        Ok(Self {
            options,
            trial,
            disks: Vec::new(),
            cluster,
            client,
            observed,
            timeline,
            traces,
            training: JobId(0),
            watcher,
        })
    }

    pub(super) fn say(&self, voice: Voice, text: &str) {
        self.timeline.say(voice, text);
    }

    /// Waits for the cluster, and configures it for the trial.
    pub(super) async fn prepare(&mut self) -> Result<(), TrialError> {
        crate::dev::await_ready(&self.cluster).await?;
        if self.trial.preempts() {
            let_priority_preempt(&self.client, "trials").await?;
        }
        match self.trial {
            Trial::CheckpointDiskFull => {
                let checkpoints = self.cluster.shared_folder().join("checkpoints");
                self.disks.push(SmallDisk::mount(&checkpoints, DISK_MIB)?);
            }
            Trial::HostDiskFull => self.move_workers_to_small_disks().await?,
            _ => {}
        }
        Ok(())
    }

    /// Moves every worker, since the placement of the training is not known yet.
    async fn move_workers_to_small_disks(&mut self) -> Result<(), TrialError> {
        for worker in 0..WORKERS {
            let (name, data) = {
                let member = &self.cluster.workers()[worker];
                (member.name.clone(), member.folder.join("data"))
            };
            self.cluster.kill_agent(worker)?;
            self.disks.push(SmallDisk::mount(&data, DISK_MIB)?);
            let from = self.observed.here();
            self.cluster.start_worker(worker)?;
            let registered = move |event: &Event| {
                matches!(&event.kind,
                    EventKind::HostRegistered { name: of, .. } if *of == name)
            };
            self.await_event("a worker on its small disk", from, registered)
                .await?;
        }
        Ok(())
    }

    /// Submits the training and waits for the moment of the fault: a while after its second checkpoint.
    pub(super) async fn start_training(&mut self) -> Result<(), TrialError> {
        let spec = jobs::training(self.trial, &self.options.trainer, &self.traces);
        let mut from = self.observed.here();
        let job = self.client.submit_job(spec).await?.job;
        self.training = job;
        self.observed.follow(job);
        let committed = move |event: &Event| {
            matches!(&event.kind,
                EventKind::CheckpointCommitted { job: of, .. } if *of == job)
        };
        let mut newest = Instant::now();
        for _ in 0..CHECKPOINTS_BEFORE {
            newest = self.await_event("a checkpoint", from, committed).await?;
            from = self.observed.here();
        }
        tokio::time::sleep_until(newest + STRIKE_AFTER).await;
        Ok(())
    }

    /// Waits for an event from position `from` on; returns its time of arrival.
    pub(super) async fn await_event(
        &self,
        what: &str,
        from: usize,
        expected: impl Fn(&Event) -> bool,
    ) -> Result<Instant, TrialError> {
        let seen = self
            .observed
            .wait_for(what, from, PATIENCE, expected)
            .await?;
        Ok(seen.at)
    }

    /// Location of rank 0.
    pub(super) async fn rank_0(&self) -> Result<Whereabouts, TrialError> {
        let consistency = v1::Consistency::Linearizable;
        let detail = self.client.get_job(self.training, 1, consistency).await?;
        let unit = detail.units.into_iter().next();
        let task = unit
            .and_then(|unit| unit.attempt)
            .and_then(|attempt| attempt.tasks.into_iter().next());
        let task = task.unwrap_or_default();
        let (host, gpu) = (task.host, task.gpus.into_iter().next().unwrap_or_default());
        let mut workers = self.cluster.workers().iter();
        match workers.position(|worker| worker.name == host) {
            Some(worker) => Ok(Whereabouts { worker, host, gpu }),
            None => Err(TrialError::Odd(format!("rank 0 runs on host {host:?}"))),
        }
    }

    /// Ends everything and checks that nothing is left.
    pub(super) async fn strike(mut self) -> Result<(), TrialError> {
        self.watcher.abort();
        self.disks.clear();
        let folder = self.cluster.folder().to_owned();
        let cluster = self.cluster;
        tokio::task::spawn_blocking(move || cluster.stop())
            .await
            .map_err(|error| TrialError::io("stopping the cluster")(io::Error::other(error)))??;
        let left = processes_of(&folder);
        if !left.is_empty() {
            return Err(TrialError::Odd(format!(
                "processes are still running: {left:?}"
            )));
        }
        if self.options.keep {
            let kept = format!("kept for inspection: {}", folder.display());
            self.timeline.say(Voice::Stage, &kept);
        }
        Ok(())
    }
}
