//! What is done to a cluster of others. Each act asks whom it would hit before it does anything.

use muster_client::ClientError;
use muster_model::ids::JobId;
use muster_proto::v1;
use muster_proto::v1::block_target::Target;
use tokio::time::{Duration, Instant, sleep};

use crate::run::RunError;
use crate::run::options::{LONG_FAULT, NEMESIS, POLL, SHORT_FAULT, WHOLE_PATIENCE};
use crate::run::target::clean;
use crate::run::target::nemesis::{Act, Outside, is_up};

/// Time that tasks get to leave a host, in milliseconds.
const DRAIN_MS: u64 = 3_000;
/// Longest that a drained host may still have tasks: the drain, the time to stop them, and slack for slow machines.
const DRAINED: Duration = Duration::from_secs(15);
/// Longest that an agent stands still beyond the usual time, until the cluster hears that it is silent: the product's 15 s
/// (`timings.suspect_ms`), less what went by, and slack. It is over before the block of its host ends by itself.
const SILENCE_MAX: Duration = Duration::from_secs(16);
/// Why nothing was done.
const NO_GPU: &str = "no GPU is free or the run's";
const NO_HOST: &str = "there is no host that others do not use, beside the last one of its pool";

impl Outside {
    pub(super) async fn block_gpu(&mut self) -> Result<Act, RunError> {
        let Some(gpu) = self.take_gpu().await? else {
            return Ok(Act::not_made(NO_GPU));
        };
        // Whoever has it may keep it; nobody else may get it.
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
        Ok(Act::made(format!("{} on {}", gpu.uuid, gpu.host)))
    }

    async fn holder_of(&self, gpu: &str) -> Result<Option<u64>, RunError> {
        let listed = self.client.list_gpus(v1::ListGpusRequest::default());
        let found = listed.await?.1.into_iter().find(|known| known.uuid == gpu);
        Ok(found.and_then(|gpu| gpu.holder).map(|holder| holder.epoch))
    }

    pub(super) async fn block_host(&mut self) -> Result<Act, RunError> {
        let Some(host) = self.take_host(None, 0).await? else {
            return Ok(Act::not_made(NO_HOST));
        };
        // Whether anything comes meanwhile is judged by what watchers heard.
        sleep(SHORT_FAULT).await;
        self.give_back(&Target::Host(host.clone())).await?;
        Ok(Act::made(host))
    }

    pub(super) async fn drain_host(&mut self) -> Result<Act, RunError> {
        let Some(host) = self.take_host(None, 1).await? else {
            return Ok(Act::not_made(NO_HOST));
        };
        let target = Target::Host(host.clone());
        let tasks = self.look_at(&host).await?.tasks;
        // The drain takes the place of whatever block is there, and displaces whatever came since it was lifted.
        if !self.has(&target).await? {
            return Ok(Act::not_made(format!(
                "{host}, whose block somebody lifted or replaced"
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
        // They may have ended before they were asked to leave.
        if tasks == 0 {
            return Ok(Act::not_made(format!(
                "{host}, which had no tasks any more"
            )));
        }
        Ok(Act::made(format!("{host} with {tasks} tasks")))
    }

    /// Cancels every job of the run that lives.
    pub(super) async fn cancel_jobs(&mut self) -> Result<Act, RunError> {
        let (_, jobs) = clean::own_jobs(&self.client, &self.tag).await?;
        let mut cancelled = 0;
        for job in jobs.iter().filter(|job| !clean::has_ended(job)) {
            let job = JobId(job.id);
            let caller = (NEMESIS, &self.client);
            match self.history.cancel(caller, job, &self.tag.user).await {
                Ok(_) => cancelled += 1,
                // It ended meanwhile.
                Err(ClientError::Refused { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
        if cancelled == 0 {
            return Ok(Act::not_made("no job of the run was left to be cancelled"));
        }
        Ok(Act::made(format!("{cancelled} jobs")))
    }

    pub(super) async fn transfer_leadership(&mut self) -> Result<Act, RunError> {
        let status = self.client.status(v1::Consistency::Linearizable).await?;
        let to = match self.client.transfer_leader(None).await {
            Ok(to) => to,
            Err(ClientError::Refused { refusal, .. }) => {
                return Ok(Act::not_made(format!("refused: {}", refusal.reason)));
            }
            Err(error) => return Err(error.into()),
        };
        let deadline = Instant::now() + WHOLE_PATIENCE;
        loop {
            let now = self.client.status(v1::Consistency::Linearizable).await?;
            if now.leadership_epoch > status.leadership_epoch {
                let leader = now.leader_id.unwrap_or_default();
                return Ok(Act::made(format!(
                    "replica {to} was asked to lead, {leader} does"
                )));
            }
            if Instant::now() > deadline {
                return Ok(Act::not_made(format!(
                    "replica {to} was asked to lead, nobody new does"
                )));
            }
            sleep(POLL).await;
        }
    }

    pub(super) async fn freeze_agent(&mut self) -> Result<Act, RunError> {
        let Some((number, host)) = self.take_agent().await? else {
            return Ok(Act::not_made(NO_HOST));
        };
        self.processes[number].freeze()?;
        sleep(LONG_FAULT).await;
        let silent = self.await_silence(&host).await;
        self.processes[number].thaw()?;
        self.give_back(&Target::Host(host.clone())).await?;
        if !silent? {
            let pid = self.processes[number].pid;
            return Ok(Act::not_made(format!(
                "{host} counted as up while process {pid} stood still: it is not the agent of that host, or silence takes \
                 longer there"
            )));
        }
        Ok(Act::made(format!("the agent of {host}")))
    }

    /// Waits until the cluster says that it hears nothing from a host; no if that takes too long.
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

    pub(super) async fn kill_agent(&mut self) -> Result<Act, RunError> {
        let Some((number, host)) = self.take_agent().await? else {
            return Ok(Act::not_made(NO_HOST));
        };
        let before = self.look_at(&host).await?.incarnation;
        self.processes[number].kill()?;
        let deadline = Instant::now() + WHOLE_PATIENCE;
        while self.look_at(&host).await?.incarnation <= before {
            if Instant::now() > deadline {
                return Err(not_started_again(&format!("the agent of {host}")));
            }
            sleep(POLL).await;
        }
        self.give_back(&Target::Host(host.clone())).await?;
        Ok(Act::made(format!("the agent of {host}")))
    }

    /// A named agent that lives, on a host on which only the run has tasks; the host is blocked until it is given back, so that
    /// nobody's task comes under an agent that does not answer.
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

/// What was killed did not come back.
pub(super) fn not_started_again(what: &str) -> RunError {
    let patience = WHOLE_PATIENCE.as_secs();
    RunError::Harness(format!(
        "{what} was killed and is not back after {patience} s: whatever runs it must start it again, and it must be of this \
         cluster"
    ))
}
