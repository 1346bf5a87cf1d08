//! Faults of hosts, their agents and GPUs, and of their workload.

use muster_model::ids::RequestId;
use muster_proto::v1;
use rand::Rng as _;
use rustix::process::Signal;
use tokio::time::sleep;

use crate::cluster::Direction;
use crate::run::RunError;
use crate::run::load::storm_job;
use crate::run::nemesis::Nemesis;
use crate::run::options::{
    AWAY, GPUS_PER_HOST, LONG_FAULT, NEMESIS, SHORT_FAULT, STORM_JOBS, WORKERS,
};

impl Nemesis {
    /// Draws a host to silence: its position and name.
    fn draw_host(&mut self) -> (usize, String) {
        let worker = self.random.random_range(0..WORKERS);
        let name = self.cluster.workers()[worker].name.clone();
        self.silenced.insert(name.clone());
        (worker, name)
    }

    pub(super) async fn kill_agent(&mut self) -> Result<String, RunError> {
        let (worker, name) = self.draw_host();
        self.expect_agent(worker).await?;
        self.cluster.kill_agent(worker)?;
        sleep(AWAY).await;
        self.cluster.start_worker(worker)?;
        Ok(name)
    }

    pub(super) async fn freeze_agent(&mut self) -> Result<String, RunError> {
        let (worker, name) = self.draw_host();
        let agent = &self.cluster.workers()[worker];
        agent.signal(Signal::STOP)?;
        sleep(LONG_FAULT).await;
        agent.signal(Signal::CONT)?;
        Ok(name)
    }

    pub(super) async fn kill_host(&mut self) -> Result<String, RunError> {
        let (worker, name) = self.draw_host();
        self.expect_agent(worker).await?;
        self.cluster.kill_host(worker)?;
        sleep(LONG_FAULT).await;
        self.cluster.start_worker(worker)?;
        Ok(name)
    }

    /// The host first: possibly only the leader received its last heartbeat.
    pub(super) async fn kill_leader_and_host(&mut self) -> Result<String, RunError> {
        let leader = self.leader().await?;
        let (worker, name) = self.draw_host();
        self.expect_agent(worker).await?;
        self.cluster.kill_host(worker)?;
        self.cluster.kill_replica(leader)?;
        sleep(LONG_FAULT).await;
        self.cluster.start_replica(leader)?;
        self.cluster.start_worker(worker)?;
        Ok(format!("{} and {name}", self.name_of(leader)))
    }

    pub(super) async fn cut_host(&mut self) -> Result<String, RunError> {
        let (worker, name) = self.draw_host();
        self.cluster.cut_worker(worker, Direction::Both)?;
        sleep(LONG_FAULT).await;
        self.cluster.heal_worker(worker, Direction::Both)?;
        Ok(name)
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
        let fault = v1::GpuFault {
            signal: "xid-48".to_owned(),
            detail: "a double bit error (chaos)".to_owned(),
        };
        self.client
            .inject_gpu_fault(&host, &gpu, Some(fault))
            .await?;
        sleep(SHORT_FAULT).await;
        self.client.inject_gpu_fault(&host, &gpu, None).await?;
        Ok(format!("{gpu} on {host}"))
    }

    pub(super) async fn storm_preemption(&mut self) -> Result<String, RunError> {
        for _ in 0..STORM_JOBS {
            let request = RequestId(self.random.random());
            let spec = storm_job(&self.tools.trainer, &self.tools.ledger, GPUS_PER_HOST);
            let caller = (NEMESIS, &self.client);
            self.history.submit(caller, request, spec).await?;
        }
        sleep(SHORT_FAULT).await;
        Ok(format!("{STORM_JOBS} jobs"))
    }
}
