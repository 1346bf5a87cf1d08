//! Stage of one trial: a fresh cluster under test, and the training on it.

use std::fs;

use muster_model::event::{Event, EventKind};
use muster_model::ids::JobId;
use muster_proto::v1;
use tokio::time::Instant;

use crate::cluster::testbed::Testbed;
use crate::cluster::timeline::Timeline;
use crate::cluster::{ClusterOptions, Disruption, Fault, NetworkKind, Part};
use crate::preemption::let_priority_preempt;
use crate::trials::jobs::{self, TaskFiles};
use crate::trials::options::{
    CHECKPOINTS_BEFORE, DISK_MIB, GPUS_PER_HOST, STRIKE_AFTER, TrialsOptions, WORKERS,
};
use crate::trials::{Trial, TrialError};

/// State of a running trial.
pub(super) struct Stage<'a> {
    pub(super) options: &'a TrialsOptions,
    pub(super) trial: Trial,
    pub(super) testbed: Testbed,
    pub(super) files: TaskFiles,
    pub(super) training: JobId,
}

/// Location of a rank.
#[derive(Clone, Debug)]
pub(super) struct RankLocation {
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
        let shape = ClusterOptions {
            worker_binary: previous.filter(|_| trial.fault == Fault::AgentUpgraded),
            workers: WORKERS,
            gpus_per_host: GPUS_PER_HOST,
            keep: options.keep,
            network: Some(NetworkKind::Namespaces),
            ..ClusterOptions::small(options.binary.clone())
        };
        let testbed = Testbed::start(shape, timeline).await?;
        let files = TaskFiles::below(&testbed.cluster.shared_folder());
        for folder in [&files.ledger, &files.run_records] {
            let failed = TrialError::io(format!("creating {}", folder.display()));
            fs::create_dir_all(folder).map_err(failed)?;
        }
        Ok(Self {
            options,
            trial,
            testbed,
            files,
            training: JobId(0),
        })
    }

    /// Waits for the cluster, and configures it for the trial.
    pub(super) async fn prepare(&mut self) -> Result<(), TrialError> {
        self.testbed.cluster.await_ready().await?;
        if self.trial.preempts() {
            let_priority_preempt(&self.testbed.client, "trials").await?;
        }
        match self.trial.fault {
            Fault::CheckpointDiskFull => {
                let checkpoints = self.checkpoints();
                let cluster = &mut self.testbed.cluster;
                cluster.mount_small_disk(&checkpoints, DISK_MIB)?;
            }
            Fault::HostDiskFull => self.move_workers_to_small_disks().await?,
            _ => {}
        }
        Ok(())
    }

    /// The folder of the checkpoints.
    pub(super) fn checkpoints(&self) -> std::path::PathBuf {
        self.testbed.cluster.shared_folder().join("checkpoints")
    }

    /// Moves every worker, since the placement of the training is not known yet.
    async fn move_workers_to_small_disks(&mut self) -> Result<(), TrialError> {
        for worker in 0..WORKERS {
            let cluster = &mut self.testbed.cluster;
            let member = &cluster.workers()[worker];
            let (name, data) = (member.name.clone(), member.data());
            let stopped = Disruption::Killed(Part::Agent(worker));
            cluster.inject(&stopped)?;
            cluster.mount_small_disk(&data, DISK_MIB)?;
            let from = self.testbed.events.position();
            self.testbed.cluster.repair(&stopped)?;
            let is_registered = |event: &Event| {
                matches!(&event.kind,
                    EventKind::HostRegistered { name: of, .. } if *of == name)
            };
            let what = "a worker on its small disk";
            self.testbed.wait_for(what, from, is_registered).await?;
        }
        Ok(())
    }

    /// Submits the training and waits for the moment of the fault: a while after its second checkpoint.
    pub(super) async fn start_training(&mut self) -> Result<(), TrialError> {
        let spec = jobs::training(self.trial, &self.options.trainer, &self.files);
        let mut from = self.testbed.events.position();
        let job = self.testbed.client.submit_job(spec).await?.job;
        self.training = job;
        self.testbed.events.follow(job);
        let is_checkpoint =
            |kind: &EventKind| matches!(kind, EventKind::CheckpointCommitted { .. });
        let mut newest = Instant::now();
        for _ in 0..CHECKPOINTS_BEFORE {
            let what = "a checkpoint";
            let committed = self.testbed.wait_for_job(what, from, job, is_checkpoint);
            newest = committed.await?.at;
            from = self.testbed.events.position();
        }
        tokio::time::sleep_until(newest + STRIKE_AFTER).await;
        Ok(())
    }

    /// Location of rank 0.
    pub(super) async fn rank_0(&self) -> Result<RankLocation, TrialError> {
        let consistency = v1::Consistency::Linearizable;
        let client = &self.testbed.client;
        let detail = client.get_job(self.training, 1, consistency).await?;
        let unit = detail.units.into_iter().next();
        let task = unit
            .and_then(|unit| unit.attempt)
            .and_then(|attempt| attempt.tasks.into_iter().next());
        let task = task.unwrap_or_default();
        let (host, gpu) = (task.host, task.gpus.into_iter().next().unwrap_or_default());
        match self.testbed.cluster.worker_named(&host) {
            Some(worker) => Ok(RankLocation { worker, host, gpu }),
            None => Err(TrialError::Odd(format!("rank 0 runs on host {host:?}"))),
        }
    }

    /// Ends everything and checks that nothing is left.
    pub(super) async fn tear_down(self) -> Result<(), TrialError> {
        Ok(self.testbed.tear_down().await?)
    }
}
