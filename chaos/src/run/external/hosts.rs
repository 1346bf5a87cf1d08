//! Selection of hosts and GPUs without workloads of others: only those are touched.
//!
//! The affected workloads of a candidate are queried first. Then it is blocked, so that nothing new can be
//! placed, and queried again: if another user's job was placed in between, the block is lifted at once, and
//! another candidate is tried.

use muster_client::ClientError;
use muster_model::ids::{HostId, JobId};
use muster_proto::v1;
use muster_proto::v1::block_target::Target;
use rand::Rng as _;
use tokio::time::{Duration, Instant, sleep};

use crate::run::RunError;
use crate::run::external::cleanup::{self, CurrentComponent};
use crate::run::external::nemesis::{ExternalNemesis, is_up};
use crate::run::options::POLL;

/// Maximum time to find a host or GPU without workloads of others.
pub(super) const SEARCH: Duration = Duration::from_secs(10);
/// Expiry of a block in milliseconds: longer than any fault.
const EXPIRY_MS: u64 = 60_000;
/// Reason of a legitimate refusal to block a host.
const LAST_HOST: &str = "LAST_HOST";
/// Phase of a component without findings or blocks.
const HEALTHY: &str = "healthy";

impl ExternalNemesis {
    /// Blocks a host on which only jobs of the run have tasks, at least `tasks_min` of them. `None` if
    /// there is no such host.
    pub(super) async fn take_host(
        &mut self,
        only: Option<&str>,
        tasks_min: u32,
    ) -> Result<Option<String>, RunError> {
        let deadline = Instant::now() + SEARCH;
        while Instant::now() < deadline {
            let (_, mut hosts) = self
                .client
                .list_hosts(v1::ListHostsRequest::default())
                .await?;
            hosts.retain(|host| only.is_none_or(|name| host.name == name));
            hosts.retain(|host| is_free_to_take(host) && host.tasks >= tasks_min);
            while !hosts.is_empty() {
                let drawn = self.random.random_range(0..hosts.len());
                let v1::Host { id, name: host, .. } = hosts.swap_remove(drawn);
                self.taken.insert(HostId(id), host.clone());
                if self.take(Target::Host(host.clone())).await? {
                    return Ok(Some(host));
                }
            }
            sleep(POLL).await;
        }
        Ok(None)
    }

    /// Blocks a GPU that is free or held by a job of the run; `None` if there is none.
    pub(super) async fn take_gpu(&mut self) -> Result<Option<v1::Gpu>, RunError> {
        let deadline = Instant::now() + SEARCH;
        while Instant::now() < deadline {
            let listed = self.client.list_gpus(v1::ListGpusRequest::default());
            let (_, mut gpus) = listed.await?;
            gpus.retain(is_gpu_free_to_take);
            while !gpus.is_empty() {
                let drawn = self.random.random_range(0..gpus.len());
                let gpu = gpus.swap_remove(drawn);
                if self.take(Target::Gpu(gpu.uuid.clone())).await? {
                    return Ok(Some(gpu));
                }
            }
            sleep(POLL).await;
        }
        Ok(None)
    }

    /// Blocks a component if only jobs of the run hold anything there, before and after.
    async fn take(&self, target: Target) -> Result<bool, RunError> {
        // Checked last: a block replaces an existing one, and the list may be outdated.
        if !self.hits_only_ours(&target).await? || !self.is_free(&target).await? {
            return Ok(false);
        }
        match self.block(&target, None).await {
            Ok(_) => {}
            Err(ClientError::Refused { refusal, .. }) if refusal.reason == LAST_HOST => {
                return Ok(false);
            }
            Err(error) => return Err(error.into()),
        }
        if self.hits_only_ours(&target).await? {
            return Ok(true);
        }
        self.give_back(&target).await?;
        Ok(false)
    }

    /// Whether a block would hit only jobs of the run, and not the last host that accepts work.
    async fn hits_only_ours(&self, target: &Target) -> Result<bool, RunError> {
        let request = v1::BlockRequest {
            dry_run: true,
            ..self.request(target)
        };
        let impact = match self.client.block(request).await {
            Ok(answer) => answer.impact.unwrap_or_default(),
            Err(ClientError::Refused { .. }) => return Ok(false),
            Err(error) => return Err(error.into()),
        };
        // Jobs beyond the listed ones may belong to others.
        if impact.takes_last || impact.jobs_total as usize != impact.jobs.len() {
            return Ok(false);
        }
        for hit in &impact.jobs {
            if !self.is_ours(JobId(hit.job_id)).await? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Whether a component accepts work, without any block or drain.
    async fn is_free(&self, target: &Target) -> Result<bool, RunError> {
        let found = cleanup::find(&self.client, target).await?;
        Ok(match found {
            Some(CurrentComponent::Host(host)) => is_free_to_take(&host),
            Some(CurrentComponent::Gpu(gpu)) => is_gpu_free_to_take(&gpu),
            None => false,
        })
    }

    /// Whether a job belongs to the run, according to the cluster.
    pub(super) async fn is_ours(&self, job: JobId) -> Result<bool, RunError> {
        let read = self.client.get_job(job, 1, v1::Consistency::Linearizable);
        match read.await {
            Ok(detail) => Ok(self.tag.owns(&detail.job)),
            Err(ClientError::Refused { .. }) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Blocks a component, or drains it within `drain_ms` milliseconds.
    pub(super) async fn block(
        &self,
        target: &Target,
        drain_ms: Option<u64>,
    ) -> Result<v1::BlockResponse, ClientError> {
        // By the cluster's clock, since ours may differ.
        let now_ms = self
            .client
            .status(v1::Consistency::Linearizable)
            .await?
            .time_ms;
        let request = v1::BlockRequest {
            expires_at_ms: Some(now_ms + EXPIRY_MS),
            drain_deadline_ms: drain_ms.map(|ms| now_ms + ms),
            ..self.request(target)
        };
        self.client.block(request).await
    }

    fn request(&self, target: &Target) -> v1::BlockRequest {
        v1::BlockRequest {
            target: Some(v1::BlockTarget {
                target: Some(target.clone()),
            }),
            reason: self.tag.reason(),
            author: self.tag.user.clone(),
            ..v1::BlockRequest::default()
        }
    }

    /// Lifts a block of the run, if it is still in force.
    pub(super) async fn give_back(&self, target: &Target) -> Result<(), RunError> {
        Ok(cleanup::lift(&self.client, &self.tag, target).await?)
    }

    /// Whether the only block on a component is one of the run.
    pub(super) async fn has(&self, target: &Target) -> Result<bool, RunError> {
        Ok(cleanup::has_blocked(&self.client, &self.tag, target).await?)
    }

    /// Reads the state of a host.
    pub(super) async fn look_at(&self, name: &str) -> Result<v1::Host, RunError> {
        let listed = self.client.list_hosts(v1::ListHostsRequest::default());
        let found = listed.await?.1.into_iter().find(|host| host.name == name);
        found.ok_or_else(|| RunError::Harness(format!("host {name} is gone")))
    }
}

/// Whether a host accepts work and is not being drained.
fn is_free_to_take(host: &v1::Host) -> bool {
    let is_free = host.block.is_none() && host.planned.is_none() && host.claims.is_empty();
    is_up(host) && is_free && is_healthy(&host.health_phase, &host.restrictions)
}

/// Whether a GPU accepts work and is not being drained.
fn is_gpu_free_to_take(gpu: &v1::Gpu) -> bool {
    let is_free = gpu.block.is_none() && gpu.claim.is_none();
    is_free && is_healthy(&gpu.health_phase, &gpu.restrictions)
}

/// Whether no rule applies to it: lifting the block would count as an admin's decision about the rule.
fn is_healthy(phase: &str, restrictions: &[v1::Restriction]) -> bool {
    phase == HEALTHY && restrictions.is_empty()
}
