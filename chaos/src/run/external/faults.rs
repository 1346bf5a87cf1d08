//! Faults on an external cluster. Each first determines the workloads that it would hit.

use muster_client::ClientError;
use muster_model::ids::JobId;
use muster_proto::v1;
use muster_proto::v1::block_target::Target;
use tokio::time::{Duration, Instant, sleep};

use crate::run::RunError;
use crate::run::external::cleanup;
use crate::run::external::hosts::SEARCH;
use crate::run::external::nemesis::{ExternalNemesis, InjectedFault, is_up};
use crate::run::options::{LONG_FAULT, NEMESIS, POLL, SHORT_FAULT, WHOLE_TIMEOUT};

/// Drain timeout of a host, in milliseconds.
const DRAIN_MS: u64 = 3_000;
/// Maximum time until a drained host has no tasks: the drain, the time to stop them, and slack for slow
/// machines.
const DRAINED: Duration = Duration::from_secs(15);
/// Maximum pause of an agent beyond the usual time, until the cluster detects its silence: the default of
/// 15 s (`timings.suspect_ms`), less the time already passed, plus slack. It ends before the block of its
/// host expires.
const SILENCE_MAX: Duration = Duration::from_secs(16);
/// Reasons why a fault was not injected.
const NO_GPU: &str = "no GPU is free or held by the run";
const NO_HOST: &str = "all hosts are used by others, or the last of their pool";

impl ExternalNemesis {
    pub(super) async fn block_gpu(&mut self) -> Result<InjectedFault, RunError> {
        let Some(gpu) = self.take_gpu().await? else {
            return Ok(InjectedFault::not_made(NO_GPU));
        };
        // The current holder may keep it, but no new attempt may get it.
        let before = self.holder_of(&gpu.uuid).await?;
        sleep(SHORT_FAULT).await;
        let after = self.holder_of(&gpu.uuid).await?;
        if let Some(epoch) = after.filter(|after| before != Some(*after)) {
            let text = format!(
                "{} was given to attempt {epoch} while it was blocked",
                gpu.uuid
            );
            self.odd.push(text);
        }
        self.give_back(&Target::Gpu(gpu.uuid.clone())).await?;
        Ok(InjectedFault::made(format!("{} on {}", gpu.uuid, gpu.host)))
    }

    async fn holder_of(&self, gpu: &str) -> Result<Option<u64>, RunError> {
        let listed = self.client.list_gpus(v1::ListGpusRequest::default());
        let found = listed.await?.1.into_iter().find(|known| known.uuid == gpu);
        Ok(found.and_then(|gpu| gpu.holder).map(|holder| holder.epoch))
    }

    pub(super) async fn block_host(&mut self) -> Result<InjectedFault, RunError> {
        let Some(host) = self.take_host(None, 0).await? else {
            return Ok(InjectedFault::not_made(NO_HOST));
        };
        // Placements in the meantime are checked from the watchers' events.
        sleep(SHORT_FAULT).await;
        self.give_back(&Target::Host(host.clone())).await?;
        Ok(InjectedFault::made(host))
    }

    pub(super) async fn drain_host(&mut self) -> Result<InjectedFault, RunError> {
        let search_end = Instant::now() + SEARCH;
        let (host, tasks) = loop {
            let Some(host) = self.take_host(None, 1).await? else {
                return Ok(InjectedFault::not_made(NO_HOST));
            };
            let tasks = self.look_at(&host).await?.tasks;
            if tasks > 0 || Instant::now() > search_end {
                break (host, tasks);
            }
            // Its tasks ended while it was being blocked: a drain would have no effect.
            self.give_back(&Target::Host(host)).await?;
        };
        let target = Target::Host(host.clone());
        // The drain replaces any block of the host, and displaces any tasks placed since the block was
        // lifted.
        if !self.has(&target).await? {
            return Ok(InjectedFault::not_made(format!(
                "{host}, whose block was lifted or replaced by another user"
            )));
        }
        self.block(&target, Some(DRAIN_MS)).await?;
        let deadline = Instant::now() + DRAINED;
        loop {
            let left = self.look_at(&host).await?.tasks;
            if left == 0 {
                break;
            }
            if Instant::now() > deadline {
                self.odd.push(format!(
                    "{left} tasks are still on {host}, which is drained"
                ));
                break;
            }
            sleep(POLL).await;
        }
        self.give_back(&target).await?;
        // They may have ended before they were asked to stop.
        if tasks == 0 {
            return Ok(InjectedFault::not_made(format!(
                "{host}, whose tasks had ended"
            )));
        }
        Ok(InjectedFault::made(format!("{host} with {tasks} tasks")))
    }

    /// Cancels every active job of the run.
    pub(super) async fn cancel_jobs(&mut self) -> Result<InjectedFault, RunError> {
        let (_, jobs) = cleanup::own_jobs(&self.client, &self.tag).await?;
        let mut cancelled = 0;
        for job in jobs.iter().filter(|job| !cleanup::has_ended(job)) {
            let job = JobId(job.id);
            let cancelling = self
                .history
                .cancel(NEMESIS, &self.client, job, &self.tag.user);
            match cancelling.await {
                Ok(_) => cancelled += 1,
                // It ended meanwhile.
                Err(ClientError::Refused { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
        if cancelled == 0 {
            return Ok(InjectedFault::not_made(
                "the run has no active job to cancel",
            ));
        }
        Ok(InjectedFault::made(format!("{cancelled} jobs")))
    }

    pub(super) async fn transfer_leadership(&mut self) -> Result<InjectedFault, RunError> {
        let status = self.client.status(v1::Consistency::Linearizable).await?;
        let to = match self.client.transfer_leader(None).await {
            Ok(to) => to,
            Err(ClientError::Refused { refusal, .. }) => {
                return Ok(InjectedFault::not_made(format!(
                    "refused: {}",
                    refusal.reason
                )));
            }
            Err(error) => return Err(error.into()),
        };
        let deadline = Instant::now() + WHOLE_TIMEOUT;
        loop {
            let now = self.client.status(v1::Consistency::Linearizable).await?;
            if now.leadership_epoch > status.leadership_epoch {
                let leader = now.leader_id.unwrap_or_default();
                return Ok(InjectedFault::made(format!(
                    "replica {to} was asked to lead, but {leader} does"
                )));
            }
            if Instant::now() > deadline {
                return Ok(InjectedFault::not_made(format!(
                    "replica {to} was asked to lead, but there is no new leader"
                )));
            }
            sleep(POLL).await;
        }
    }

    pub(super) async fn freeze_agent(&mut self) -> Result<InjectedFault, RunError> {
        let Some((number, host)) = self.take_agent().await? else {
            return Ok(InjectedFault::not_made(NO_HOST));
        };
        self.processes[number].freeze()?;
        sleep(LONG_FAULT).await;
        let silent = self.await_silence(&host).await;
        self.processes[number].thaw()?;
        self.give_back(&Target::Host(host.clone())).await?;
        if !silent? {
            let pid = self.processes[number].pid;
            return Ok(InjectedFault::not_made(format!(
                "{host} counted as up while process {pid} was paused: either it is not the agent of that host, \
                 or detecting silence takes longer there"
            )));
        }
        Ok(InjectedFault::made(format!("the agent of {host}")))
    }

    /// Waits until the cluster reports a host as silent; returns false on timeout.
    async fn await_silence(&self, host: &str) -> Result<bool, RunError> {
        let deadline = Instant::now() + SILENCE_MAX;
        while is_up(&self.look_at(host).await?) {
            if Instant::now() > deadline {
                return Ok(false);
            }
            sleep(POLL).await;
        }
        Ok(true)
    }

    pub(super) async fn kill_agent(&mut self) -> Result<InjectedFault, RunError> {
        let Some((number, host)) = self.take_agent().await? else {
            return Ok(InjectedFault::not_made(NO_HOST));
        };
        let before = self.look_at(&host).await?.incarnation;
        self.processes[number].kill()?;
        let deadline = Instant::now() + WHOLE_TIMEOUT;
        while self.look_at(&host).await?.incarnation <= before {
            if Instant::now() > deadline {
                return Err(not_started_again(&format!("the agent of {host}")));
            }
            sleep(POLL).await;
        }
        self.give_back(&Target::Host(host.clone())).await?;
        Ok(InjectedFault::made(format!("the agent of {host}")))
    }

    /// A named live agent on a host with tasks of the run only. The host is blocked until it is returned,
    /// so that no task of others is placed under an agent that does not answer.
    async fn take_agent(&mut self) -> Result<Option<(usize, String)>, RunError> {
        let live: Vec<(usize, String)> = { self.processes.iter().enumerate() }
            .filter(|(_, process)| process.is_alive())
            .filter_map(|(number, process)| Some((number, process.host.clone()?)))
            .collect();
        for (number, host) in live {
            if self.take_host(Some(&host), 0).await?.is_some() {
                return Ok(Some((number, host)));
            }
        }
        Ok(None)
    }
}

/// Error for a killed process that was not restarted.
pub(super) fn not_started_again(what: &str) -> RunError {
    let wait_max = WHOLE_TIMEOUT.as_secs();
    RunError::Harness(format!(
        "{what} was killed and has not returned after {wait_max} s: it must be restarted by its operator, \
         and must belong to this cluster"
    ))
}
