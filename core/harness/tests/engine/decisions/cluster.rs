//! A cluster whose jobs and hosts scripts refer to by name.

use std::collections::BTreeMap;
use std::error::Error;

use muster_engine::state::State;
use muster_harness::{self as testing, Cluster};
use muster_model::command::{
    Block, BlockTarget, CheckpointCommand, CheckpointCommit, Command, GpuHealth, HostCommand,
    HostHealth, HostRegistration, Placement, Planned, TaskPlacement,
};
use muster_model::host::ENGINE_LABEL;
use muster_model::ids::{GpuUuid, HostId, JobId, UnitId, UnitIndex};
use muster_model::spec::JobSpec;
use muster_model::time::TimeMs;
use muster_planner::{Budget, Plan, plan};

/// A state, and the names that a script gave to its jobs.
#[derive(Default)]
pub(crate) struct NamedCluster {
    pub(crate) cluster: Cluster,
    pub(crate) jobs: BTreeMap<String, JobId>,
    hosts: u32,
    registrations: BTreeMap<String, HostRegistration>,
}

impl NamedCluster {
    pub(crate) fn state(&self) -> &State {
        &self.cluster.state
    }

    /// Registers `count` more hosts.
    pub(crate) fn add_hosts(&mut self, count: u32, gpus: u32, model: &str, cpus: u32) {
        for _ in 0..count {
            self.hosts += 1;
            let mut registration = testing::host_of_model(self.hosts, gpus, model);
            registration.cpus_milli = cpus * 1_000;
            self.register(registration);
        }
    }

    fn register(&mut self, registration: HostRegistration) {
        self.apply(&Command::Host(HostCommand::RegisterHost {
            leader: self.cluster.leader(),
            registration: registration.clone().into(),
        }));
        let name = registration.name.clone();
        self.registrations.insert(name, registration);
    }

    /// Registers a host again with a container engine, or without one.
    pub(crate) fn equip(&mut self, host: &str, has_engine: bool) -> Result<(), Box<dyn Error>> {
        let known = self.registrations.get(host).cloned();
        let mut registration = known.ok_or_else(|| format!("no host {host}"))?;
        registration.labels.clear();
        if has_engine {
            let engine = "podman 4.3.1".to_owned();
            registration.labels.insert(ENGINE_LABEL.to_owned(), engine);
        }
        self.register(registration);
        Ok(())
    }

    pub(crate) fn submit(&mut self, name: &str, spec: JobSpec) {
        let job = self.cluster.submit(spec);
        self.jobs.insert(name.to_owned(), job);
    }

    /// Applies a command that must take effect.
    pub(crate) fn apply(&mut self, command: &Command) {
        self.cluster.carry_out(command).unwrap();
    }

    /// Plans a round; every step must be accepted unchanged.
    pub(crate) fn plan(&mut self, budget: Budget) -> Plan {
        self.plan_with_barrier(budget, false)
    }

    /// Like `plan`; with `barrier`, members of gangs wait for each other.
    pub(crate) fn plan_with_barrier(&mut self, budget: Budget, barrier: bool) -> Plan {
        let mut planned = plan(&self.cluster.state, self.cluster.now, budget);
        for step in &mut planned.steps {
            if let Command::Place(placement) = step {
                placement.barrier = barrier;
            }
        }
        self.cluster.carry_out_plan(&planned).unwrap();
        planned
    }

    /// Commits a checkpoint of the job's first unit.
    pub(crate) fn checkpoint(&mut self, job: JobId) -> Result<(), Box<dyn Error>> {
        let attempt = self.cluster.attempt(job, UnitIndex(0));
        let epoch = attempt.ok_or("it does not run")?.epoch;
        let step = self.cluster.now.0;
        self.apply(&Command::Checkpoint(CheckpointCommand::CommitCheckpoint {
            leader: self.cluster.leader(),
            job,
            unit: UnitIndex(0),
            checkpoint: CheckpointCommit {
                epoch,
                step,
                path: format!("/checkpoints/step_{step}"),
                size_bytes: 0,
                digest: String::new(),
                save_ms: None,
            },
        }));
        Ok(())
    }

    pub(crate) fn job(&self, name: &str) -> Result<JobId, Box<dyn Error>> {
        let job = self.jobs.get(name).copied();
        job.ok_or_else(|| format!("no job {name}").into())
    }

    pub(crate) fn job_name(&self, id: JobId) -> &str {
        let mut names = self.jobs.iter();
        names
            .find(|(_, job)| **job == id)
            .map_or("?", |(name, _)| name.as_str())
    }

    pub(crate) fn host(&self, name: &str) -> Result<HostId, Box<dyn Error>> {
        let host = self.state().host_by_name(name);
        host.map(|host| host.id)
            .ok_or_else(|| format!("no host {name}").into())
    }

    pub(crate) fn host_name(&self, id: HostId) -> &str {
        self.state().host(id).map_or("?", |host| host.name.as_ref())
    }

    /// `node-0001` or, for one of its GPUs, `node-0001/3`.
    pub(crate) fn target(&self, text: &str) -> Result<BlockTarget, Box<dyn Error>> {
        Ok(match text.split_once('/') {
            None => BlockTarget::Host(text.to_owned()),
            Some((host, index)) => BlockTarget::Gpu(self.gpu(host, index.parse()?)?),
        })
    }

    fn gpu(&self, host: &str, index: usize) -> Result<GpuUuid, Box<dyn Error>> {
        let host = self.state().host_by_name(host).ok_or("no such host")?;
        Ok(host.gpus.get(index).ok_or("no such GPU")?.uuid)
    }

    pub(crate) fn block(
        &mut self,
        target: &str,
        planned: Option<(Planned, Option<TimeMs>)>,
    ) -> Result<(), Box<dyn Error>> {
        let command = Command::Block {
            request: self.cluster.next_request(),
            target: self.target(target)?,
            block: Block {
                reason: "maintenance".to_owned(),
                author: "grace".to_owned(),
                evidence: String::new(),
                since: TimeMs::default(),
                expires_at: planned.and_then(|(_, expires_at)| expires_at),
                drain_deadline: None,
                planned: planned.map(|(planned, _)| planned),
            },
            spares_last: false,
        };
        self.apply(&command);
        Ok(())
    }

    pub(crate) fn unblock(&mut self, target: &str, planned: bool) -> Result<(), Box<dyn Error>> {
        let command = Command::Unblock {
            request: self.cluster.next_request(),
            target: self.target(target)?,
            author: "grace".to_owned(),
            planned,
        };
        self.apply(&command);
        Ok(())
    }

    pub(crate) fn set_health(&mut self, host: &str, health: &str) -> Result<(), Box<dyn Error>> {
        let health = match health {
            "up" => HostHealth::Up,
            "suspect" => HostHealth::Suspect,
            "lost" => HostHealth::Lost,
            other => return Err(format!("no health {other}").into()),
        };
        let command = Command::Host(HostCommand::SetHostHealth {
            leader: self.cluster.leader(),
            host: self.host(host)?,
            health,
            one_way: false,
        });
        self.apply(&command);
        Ok(())
    }

    pub(crate) fn fault(&mut self, host: &str, index: usize) -> Result<(), Box<dyn Error>> {
        let command = Command::Host(HostCommand::SetGpuHealth {
            leader: self.cluster.leader(),
            host: self.host(host)?,
            gpu: self.gpu(host, index)?,
            health: GpuHealth::Faulted {
                signal: "xid-79".to_owned(),
                detail: "fell off the bus".to_owned(),
            },
        });
        self.apply(&command);
        Ok(())
    }

    /// `train/0: node-0001 0[0 1] 1[2 3], node-0002 2[0 1]`: by host the tasks and the GPUs of each.
    pub(crate) fn describe(&self, placement: &Placement) -> String {
        self.describe_tasks(placement.unit_id(), &placement.tasks)
    }

    pub(crate) fn describe_tasks(&self, id: UnitId, tasks: &[TaskPlacement]) -> String {
        let UnitId { job, unit } = id;
        let mut text = format!("{}/{unit}:", self.job_name(job));
        let mut last = None;
        for task in tasks {
            if last != Some(task.host) {
                let comma = if last.is_some() { "," } else { "" };
                text.push_str(&format!("{comma} {}", self.host_name(task.host)));
                last = Some(task.host);
            }
            let gpus: Vec<String> = task.gpus.iter().map(|gpu| self.gpu_index(*gpu)).collect();
            text.push_str(&format!(" {}[{}]", task.task, gpus.join(" ")));
        }
        text
    }

    fn gpu_index(&self, uuid: GpuUuid) -> String {
        self.state()
            .gpu(uuid)
            .map_or_else(|| "?".to_owned(), |(_, gpu)| gpu.index.to_string())
    }
}
