//! Fault injection of the trials, each fault with its repair.

use std::fs;
use std::path::{Path, PathBuf};

use muster_model::event::{Event, EventKind};
use muster_proto::v1;
use tokio::time::{Duration, Instant, sleep};

use crate::cluster::timeline::LineKind;
use crate::cluster::{DOUBLE_BIT_XID, Disruption, Fault, Part, flip_bit, set_gpu_error};
use crate::trials::options::{BEFORE_RETURN, DISK_FULL, SHORT_CUT};
use crate::trials::stage::{RankLocation, Stage};
use crate::trials::{TrialError, jobs};

/// File of a checkpoint that holds the state, as the trainer writes it.
const STATE_FILE: &str = "state.bin";

impl Stage<'_> {
    /// Injects and repairs the fault of the trial; returns once that is done.
    pub(super) async fn break_and_repair(&mut self, from: usize) -> Result<(), TrialError> {
        let rank = self.rank_0().await?;
        let host = Part::Host(rank.worker);
        match self.trial.fault {
            Fault::AgentKilled => self.kill_agent(&rank, from).await,
            Fault::AgentUpgraded => self.upgrade_agent(&rank),
            Fault::SupervisorKilled => self.kill_supervisor(&rank),
            Fault::GpuFaulted => self.break_gpu(&rank).await,
            Fault::HostCutBriefly(direction) => {
                let cut = Disruption::Cut(host, direction);
                self.disrupt_for(&cut, SHORT_CUT).await
            }
            Fault::HostCut(direction) => {
                let cut = Disruption::Cut(host, direction);
                self.disrupt_until_moved(&cut, &rank, from).await
            }
            Fault::HostFrozen => {
                let frozen = Disruption::Frozen(host);
                self.disrupt_until_moved(&frozen, &rank, from).await
            }
            Fault::LeaderKilledInPreemption => self.kill_leader(from).await,
            Fault::CheckpointDamaged => {
                self.damage_newest_checkpoint()?;
                self.kill_supervisor(&rank)
            }
            Fault::CheckpointDiskFull => {
                let full = Disruption::DiskFull(self.checkpoints());
                self.disrupt_for(&full, DISK_FULL).await
            }
            Fault::HostDiskFull => {
                let data = self.testbed.cluster.workers()[rank.worker].data();
                let full = Disruption::DiskFull(data);
                self.disrupt_for(&full, DISK_FULL).await
            }
            Fault::StopIgnored => self.submit_urgent().await,
            other => {
                let name = other.name();
                Err(TrialError::Odd(format!("there is no trial of `{name}`")))
            }
        }
    }

    async fn disrupt_for(
        &mut self,
        disruption: &Disruption,
        time: Duration,
    ) -> Result<(), TrialError> {
        self.testbed.inject(disruption)?;
        sleep(time).await;
        Ok(self.testbed.repair(disruption)?)
    }

    /// Disrupts the host of a rank until all ranks run on other hosts.
    async fn disrupt_until_moved(
        &mut self,
        disruption: &Disruption,
        rank: &RankLocation,
        from: usize,
    ) -> Result<(), TrialError> {
        self.testbed.inject(disruption)?;
        self.await_training_elsewhere(&rank.host, from).await?;
        Ok(self.testbed.repair(disruption)?)
    }

    async fn kill_agent(&mut self, rank: &RankLocation, from: usize) -> Result<(), TrialError> {
        let killed = Disruption::Killed(Part::Agent(rank.worker));
        self.testbed.inject(&killed)?;
        let is_silent = |event: &Event| {
            matches!(&event.kind,
                EventKind::HostHealthChanged { name, .. } if *name == rank.host)
        };
        let what = "the host's silence";
        self.testbed.wait_for(what, from, is_silent).await?;
        Ok(self.testbed.repair(&killed)?)
    }

    fn upgrade_agent(&mut self, rank: &RankLocation) -> Result<(), TrialError> {
        let (program, which) = match &self.options.previous {
            Some(previous) => {
                let before = previous.display();
                (
                    self.options.binary.clone(),
                    format!("{before} by this program"),
                )
            }
            None => (self.copy_of_programs()?, "by another program".to_owned()),
        };
        let text = format!("the agent of {} is replaced: {which}", rank.host);
        self.testbed.print_line(LineKind::Fault, &text);
        let cluster = &mut self.testbed.cluster;
        Ok(cluster.upgrade_worker(rank.worker, &program)?)
    }

    /// Copy of the programs in a separate folder.
    fn copy_of_programs(&self) -> Result<PathBuf, TrialError> {
        let folder = self.testbed.cluster.folder().join("upgraded");
        let failed = || TrialError::io("copying the programs");
        fs::create_dir_all(&folder).map_err(failed())?;
        let binary = &self.options.binary;
        let supervisor = binary.with_file_name("muster-supervise");
        for program in [binary, &supervisor] {
            let copy = folder.join(program.file_name().unwrap_or_default());
            // A hard link where the file system supports it, else a copy.
            if program.is_file() && fs::hard_link(program, &copy).is_err() {
                fs::copy(program, &copy).map_err(failed())?;
            }
        }
        Ok(folder.join(binary.file_name().unwrap_or_default()))
    }

    fn kill_supervisor(&self, rank: &RankLocation) -> Result<(), TrialError> {
        let text = format!("kill -9 of the supervisor of rank 0 on {}", rank.host);
        self.testbed.print_line(LineKind::Fault, &text);
        let variables = [
            format!("MUSTER_JOB_ID={}", self.training),
            "RANK=0".to_owned(),
        ];
        let cluster = &self.testbed.cluster;
        Ok(cluster.kill_supervisor(rank.worker, &variables)?)
    }

    async fn break_gpu(&self, rank: &RankLocation) -> Result<(), TrialError> {
        let RankLocation { host, gpu, .. } = rank;
        let text = format!("XID {DOUBLE_BIT_XID} of {gpu} on {host}");
        self.testbed.print_line(LineKind::Fault, &text);
        let client = &self.testbed.client;
        Ok(set_gpu_error(client, host, gpu, Some(DOUBLE_BIT_XID)).await?)
    }

    /// Waits until all ranks run on other hosts than this one, and a little longer.
    async fn await_training_elsewhere(&self, host: &str, from: usize) -> Result<(), TrialError> {
        let job = self.training;
        let mut position = from;
        loop {
            let is_running = |kind: &EventKind| matches!(kind, EventKind::AttemptRunning { .. });
            let what = "resumption of the training";
            let resumed = self.testbed.wait_for_job(what, position, job, is_running);
            resumed.await?;
            position = self.testbed.events.position();
            let consistency = v1::Consistency::Linearizable;
            let detail = self.testbed.client.get_job(job, 1, consistency).await?;
            let attempt = detail.units.first().and_then(|it| it.attempt.as_ref());
            let is_elsewhere =
                attempt.is_some_and(|it| it.tasks.iter().all(|task| task.host != host));
            if is_elsewhere || detail.is_finished() {
                break;
            }
        }
        sleep(BEFORE_RETURN).await;
        Ok(())
    }

    async fn kill_leader(&mut self, from: usize) -> Result<(), TrialError> {
        self.submit_urgent().await?;
        let is_stopping = |kind: &EventKind| matches!(kind, EventKind::AttemptStopping { .. });
        let what = "the preemption";
        let stopping = self
            .testbed
            .wait_for_job(what, from, self.training, is_stopping);
        stopping.await?;
        let from = self.testbed.events.position();
        let status = self.testbed.client.status(v1::Consistency::Stale).await?;
        let Some(leader) = self.testbed.cluster.leader_in(&status) else {
            return Err(TrialError::Odd("there is no leader".to_owned()));
        };
        let killed = Disruption::Killed(Part::Replica(leader));
        self.testbed.inject(&killed)?;
        let has_begun = |event: &Event| matches!(event.kind, EventKind::LeadershipStarted { .. });
        let what = "the next leader";
        self.testbed.wait_for(what, from, has_begun).await?;
        Ok(self.testbed.repair(&killed)?)
    }

    async fn submit_urgent(&self) -> Result<(), TrialError> {
        let spec = jobs::urgent(&self.options.trainer, &self.files);
        let job = self.testbed.client.submit_job(spec).await?.job;
        let text = format!("job {job} of a higher priority needs the training's GPUs");
        self.testbed.print_line(LineKind::Fault, &text);
        Ok(())
    }

    fn damage_newest_checkpoint(&self) -> Result<(), TrialError> {
        let job = self.training;
        let events = &self.testbed.events;
        let newest = events.newest_before(Instant::now(), |event| {
            matches!(&event.kind, EventKind::CheckpointCommitted { job: of, .. } if *of == job)
        });
        let Some(EventKind::CheckpointCommitted { path, step, .. }) =
            newest.map(|seen| seen.event.kind)
        else {
            return Err(TrialError::Odd("there is no checkpoint".to_owned()));
        };
        flip_bit(&Path::new(&path).join(STATE_FILE))?;
        let text = format!("one bit of the checkpoint of step {step} is flipped");
        self.testbed.print_line(LineKind::Fault, &text);
        Ok(())
    }
}
