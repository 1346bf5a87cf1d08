//! Faults of hosts, their agents and GPUs, and of their workload.

use muster_model::ids::RequestId;
use muster_proto::v1;
use rand::Rng as _;
use tokio::time::{Duration, sleep};

use crate::cluster::{DOUBLE_BIT_XID, Disruption, Part, set_gpu_error};
use crate::run::RunError;
use crate::run::load::storm_job;
use crate::run::nemesis::Nemesis;
use crate::run::options::{GPUS_PER_HOST, LONG_FAULT, NEMESIS, SHORT_FAULT, STORM_JOBS, WORKERS};

impl Nemesis {
    /// Draws a host to silence: its position and name.
    fn draw_host(&mut self) -> (usize, String) {
        let worker = self.random.random_range(0..WORKERS);
        let name = self.cluster.workers()[worker].name.clone();
        self.silenced.insert(name.clone());
        (worker, name)
    }

    /// Disrupts a random host for a while.
    pub(super) async fn disrupt_host(
        &mut self,
        how: impl Fn(usize) -> Disruption,
        time: Duration,
    ) -> Result<String, RunError> {
        let (worker, name) = self.draw_host();
        let disruption = how(worker);
        if matches!(disruption, Disruption::Killed(_)) {
            self.expect_agent(worker).await?;
        }
        self.cluster.inject(&disruption)?;
        sleep(time).await;
        self.cluster.repair(&disruption)?;
        Ok(name)
    }

    /// The host first: possibly only the leader received its last heartbeat.
    pub(super) async fn kill_leader_and_host(&mut self) -> Result<String, RunError> {
        let leader = self.leader().await?;
        let (worker, name) = self.draw_host();
        self.expect_agent(worker).await?;
        let host = Disruption::Killed(Part::Host(worker));
        let replica = Disruption::Killed(Part::Replica(leader));
        self.cluster.inject(&host)?;
        self.cluster.inject(&replica)?;
        sleep(LONG_FAULT).await;
        self.cluster.repair(&replica)?;
        self.cluster.repair(&host)?;
        Ok(format!("{} and {name}", self.name_of(leader)))
    }

    pub(super) async fn break_gpu(&mut self) -> Result<String, RunError> {
        let listed = self.client.list_hosts(v1::ListHostsRequest::default());
        let gpus = listed.await?.1.into_iter().flat_map(|host| host.gpus);
        // After a manual unblock the rule ignores the GPU for a day.
        let mut gpus: Vec<v1::Gpu> = gpus
            .filter(|gpu| gpu.block.is_none() && !self.broken_gpus.contains(&gpu.uuid))
            .collect();
        if gpus.is_empty() {
            let text = "every GPU of the cluster is out of placement or was broken before";
            return Err(RunError::Harness(text.to_owned()));
        }
        let drawn = self.random.random_range(0..gpus.len());
        let v1::Gpu {
            uuid: gpu, host, ..
        } = gpus.swap_remove(drawn);
        self.broken_gpus.insert(gpu.clone());
        self.gpu = gpu.parse().ok();
        set_gpu_error(&self.client, &host, &gpu, Some(DOUBLE_BIT_XID)).await?;
        sleep(SHORT_FAULT).await;
        set_gpu_error(&self.client, &host, &gpu, None).await?;
        Ok(format!("{gpu} on {host}"))
    }

    pub(super) async fn storm_preemption(&mut self) -> Result<String, RunError> {
        for _ in 0..STORM_JOBS {
            let request = RequestId(self.random.random());
            let spec = storm_job(&self.tools.trainer, &self.tools.ledger, GPUS_PER_HOST);
            let submitted = self.history.submit(NEMESIS, &self.client, request, spec);
            submitted.await?;
        }
        sleep(SHORT_FAULT).await;
        Ok(format!("{STORM_JOBS} jobs"))
    }
}
