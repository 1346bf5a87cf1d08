//! Execution of each statement.

use std::sync::Arc;

use muster_harness::{self as testing, reports};
use muster_model::command::{
    Block, BlockTarget, CheckpointCommand, CheckpointCommit, Command, ConfigCommand,
    GpuDescription, GpuHealth, HostCommand, HostHealth, Planned,
};
use muster_model::ids::{GpuUuid, HostId, UnitIndex};
use muster_model::time::TimeMs;
use muster_model::topology::{
    CellGroup, CellPlace, HostShape, NamedCell, ReportedGpu, ReportedTopology,
};

use crate::scenario::engine::driver::Driver;
use crate::scenario::engine::{Failure, workers};
use crate::scenario::script::{
    Blocking, GpuName, HealthChange, HostsSpec, Statement, Target, TaskEnd,
};

/// Author of commands in scripts.
const AUTHOR: &str = "grace";

impl Driver {
    /// Executes a statement that changes something, and everything that follows from it.
    pub(crate) fn carry_out(&mut self, statement: &Statement) -> Result<(), Failure> {
        self.refusals.clear();
        self.act(statement)?;
        self.settle()
    }

    fn act(&mut self, statement: &Statement) -> Result<(), Failure> {
        match statement {
            Statement::Levels { above, inside } => {
                self.levels = (above.clone(), inside.clone());
            }
            Statement::Hosts(hosts) => self.add_hosts(hosts)?,
            Statement::Queues(tree) => {
                let command = Command::Config(ConfigCommand::ConfigureQueues {
                    request: self.engine.next_request(),
                    author: AUTHOR.to_owned(),
                    tree: Arc::clone(tree),
                });
                self.ask(command)?;
            }
            Statement::Topology(topology) => {
                self.topology = topology.as_ref().clone();
                self.levels = (self.topology.above.clone(), self.topology.inside.clone());
                self.set_topology()?;
            }
            Statement::Submit(submission) => self.submit(submission)?,
            Statement::Cancel { job } => self.cancel(job)?,
            Statement::End(ending) => self.end(ending)?,
            Statement::Checkpoint { job, step } => self.checkpoint(job, *step)?,
            Statement::Turn { target, turn } => self.turn(target, turn)?,
            Statement::Block(blocking) => self.block(blocking)?,
            Statement::Unblock { target, planned } => {
                let command = Command::Unblock {
                    request: self.engine.next_request(),
                    target: self.target(target)?,
                    author: AUTHOR.to_owned(),
                    planned: *planned,
                };
                self.ask(command)?;
            }
            Statement::Advance { span_ms } => self.advance(*span_ms)?,
            Statement::Workers { obey } => self.workers_obey = *obey,
            Statement::Planner { auto } => self.planner_auto = *auto,
            Statement::Plan { once } => self.plan_by_hand(*once)?,
            Statement::Start { job } => {
                let job = self.job(job)?;
                self.report(|state| workers::starts(state, job))?;
            }
            Statement::Stopped { job } => {
                let job = self.job(job)?;
                self.report(|state| workers::stops(state, job))?;
            }
            Statement::Leader => self.new_leader()?,
            Statement::Restart => {
                self.restart()?;
                self.new_leader()?;
            }
            Statement::EveryCut
            | Statement::Expect(_)
            | Statement::Show(_)
            | Statement::Explain { .. }
            | Statement::Repeat { .. } => {}
        }
        Ok(())
    }

    fn plan_by_hand(&mut self, once: bool) -> Result<(), Failure> {
        self.plan_round()?;
        if once {
            return Ok(());
        }
        let auto = std::mem::replace(&mut self.planner_auto, true);
        let settled = self.settle();
        self.planner_auto = auto;
        settled
    }

    fn add_hosts(&mut self, spec: &HostsSpec) -> Result<(), Failure> {
        let numbers = self.hosts + 1..=self.hosts + spec.count;
        let names: Vec<String> = numbers
            .clone()
            .map(|number| format!("{}{number}", spec.name))
            .collect();
        self.hosts += spec.count;
        if !spec.reported && self.place(spec, &names) {
            self.set_topology()?;
        }
        for (number, name) in numbers.zip(names) {
            let mut registration = testing::host_of_model(number, spec.gpus, &spec.model);
            registration.name = name;
            registration.cpus_milli = spec.cpus.saturating_mul(1_000);
            registration.memory_mib = spec.memory_gib.saturating_mul(1_024);
            if spec.reported {
                registration.reported = self.reported(spec, &registration.gpus);
            }
            let command = Command::Host(HostCommand::RegisterHost {
                leader: self.engine.leader(),
                registration: Arc::new(registration),
            });
            self.ask(command)?;
        }
        Ok(())
    }

    /// Location that the worker of a new host reports.
    fn reported(&self, spec: &HostsSpec, gpus: &[GpuDescription]) -> ReportedTopology {
        let (above, _) = &self.levels;
        let above = above
            .iter()
            .zip(&spec.place)
            .map(|(level, name)| NamedCell {
                level: level.clone(),
                name: name.clone(),
            });
        let groups = groups(spec);
        let cell = |level: &str, position: u32| {
            let mut of_level = groups.iter().filter(|group| group.level == level);
            let cell = of_level.position(|group| group.gpus.contains(&position));
            cell.map_or_else(String::new, |cell| cell.to_string())
        };
        let levels: Vec<String> = spec.inside.iter().map(|(level, _)| level.clone()).collect();
        ReportedTopology {
            above: above.collect(),
            gpus: { gpus.iter().zip(0..) }
                .map(|(gpu, position)| ReportedGpu {
                    uuid: gpu.uuid,
                    pci_address: String::new(),
                    cells: levels.iter().map(|level| cell(level, position)).collect(),
                })
                .collect(),
            inside: levels,
        }
    }

    /// Adds the cells of new hosts to the topology; true if it changed.
    fn place(&mut self, spec: &HostsSpec, names: &[String]) -> bool {
        if spec.place.is_empty() && spec.inside.is_empty() {
            return false;
        }
        let (above, inside) = &self.levels;
        self.topology.above.clone_from(above);
        self.topology.inside.clone_from(inside);
        if !spec.place.is_empty() {
            let places = &mut self.topology.places;
            match places.iter_mut().find(|place| place.cell == spec.place) {
                Some(place) => place.hosts.extend_from_slice(names),
                None => places.push(CellPlace {
                    cell: spec.place.clone(),
                    hosts: names.to_vec(),
                }),
            }
        }
        if !spec.inside.is_empty() {
            let shape = HostShape {
                gpu_model: spec.model.clone(),
                gpus: spec.gpus,
                hosts: names.to_vec(),
                groups: groups(spec),
            };
            self.topology.shapes.push(shape);
        }
        true
    }

    fn set_topology(&mut self) -> Result<(), Failure> {
        let command = Command::Config(ConfigCommand::SetTopology {
            request: self.engine.next_request(),
            author: AUTHOR.to_owned(),
            topology: Arc::new(self.topology.clone()),
        });
        self.ask(command).map(|_| ())
    }

    fn cancel(&mut self, job: &str) -> Result<(), Failure> {
        let command = Command::CancelJob {
            request: self.engine.next_request(),
            job: self.job(job)?,
            author: AUTHOR.to_owned(),
            reason: String::new(),
        };
        self.ask(command).map(|_| ())
    }

    fn end(&mut self, ending: &TaskEnd) -> Result<(), Failure> {
        let job = self.job(&ending.job)?;
        self.report(|state| workers::starts(state, job))?;
        let (task, code) = (ending.task, ending.code);
        let leaving = workers::exits(&self.engine.state, job, task, code).len();
        // Reports are recomputed after each one: a failed member may end the others.
        let mut left = leaving;
        while left > 0 {
            let Some(report) = workers::exits(&self.engine.state, job, task, code)
                .into_iter()
                .next()
            else {
                break;
            };
            let stopping = code != 0 && self.is_stopping(job);
            if stopping {
                break;
            }
            self.ask(report)?;
            left -= 1;
        }
        if leaving == 0 {
            return Err(Failure::Unknown(format!(
                "job `{}` has no such running task",
                ending.job
            )));
        }
        Ok(())
    }

    /// Whether an attempt of a job is being stopped.
    fn is_stopping(&self, job: muster_model::ids::JobId) -> bool {
        let stopping = |attempt: &muster_engine::state::Attempt| attempt.stop.is_some();
        let mut attempts = reports::attempts(&self.engine.state);
        attempts.any(|(of, _, _, attempt)| of.id == job && stopping(attempt))
    }

    fn checkpoint(&mut self, name: &str, step: Option<u64>) -> Result<(), Failure> {
        let job = self.job(name)?;
        let known = reports::attempts(&self.engine.state);
        let units: Vec<(UnitIndex, _, u64)> = known
            .filter(|(of, ..)| of.id == job)
            .map(|(_, index, unit, attempt)| {
                let last = unit.checkpoints.last();
                let next = last.map_or(1, |checkpoint| checkpoint.step + 1);
                (index, attempt.epoch, step.unwrap_or(next))
            })
            .collect();
        if units.is_empty() {
            return Err(Failure::Unknown(format!("job `{name}` is not running")));
        }
        for (unit, epoch, step) in units {
            let command = Command::Checkpoint(CheckpointCommand::CommitCheckpoint {
                leader: self.engine.leader(),
                job,
                unit,
                checkpoint: CheckpointCommit {
                    epoch,
                    step,
                    path: format!("/checkpoints/{name}/step_{step}"),
                    size_bytes: 0,
                    digest: String::new(),
                    save_ms: None,
                },
            });
            self.ask(command)?;
        }
        Ok(())
    }

    fn turn(&mut self, target: &Target, turn: &HealthChange) -> Result<(), Failure> {
        let leader = self.engine.leader();
        match target {
            Target::Gpu(name) => {
                let health = match turn {
                    HealthChange::Bad { signal } => GpuHealth::Faulted {
                        signal: signal.clone(),
                        detail: String::new(),
                    },
                    HealthChange::Good | HealthChange::Suspect => GpuHealth::Healthy,
                };
                let (host, gpu) = (self.host(&name.host)?, self.gpu(name)?);
                self.ask(Command::Host(HostCommand::SetGpuHealth {
                    leader,
                    host,
                    gpu,
                    health,
                }))?;
            }
            Target::Host(name) => {
                let host = self.host(name)?;
                let health = match turn {
                    HealthChange::Good => HostHealth::Up,
                    HealthChange::Suspect => HostHealth::Suspect,
                    HealthChange::Bad { .. } => HostHealth::Lost,
                };
                self.ask(Command::Host(HostCommand::SetHostHealth {
                    leader,
                    host,
                    health,
                    one_way: false,
                }))?;
                if health == HostHealth::Lost {
                    self.report(|state| workers::fences(state, host))?;
                }
            }
        }
        Ok(())
    }

    fn block(&mut self, blocking: &Blocking) -> Result<(), Failure> {
        let now = self.engine.now;
        let planned = blocking.planned.map(|ahead| Planned {
            at: now.after(ahead.in_ms),
            notice_ms: ahead.notice_ms,
        });
        let begins_at = planned.map_or(now, |planned| planned.at);
        let later = |span_ms: Option<u64>| span_ms.map(|span_ms| begins_at.after(span_ms));
        let block = Block {
            reason: blocking.reason.clone(),
            author: AUTHOR.to_owned(),
            evidence: String::new(),
            since: TimeMs::default(),
            expires_at: later(blocking.for_ms),
            drain_deadline: later(blocking.drain_ms),
            planned,
        };
        let target = self.target(&blocking.target)?;
        let request = self.engine.next_request();
        self.ask(Command::Block {
            request,
            target,
            block,
            spares_last: false,
        })
        .map(|_| ())
    }

    fn target(&self, target: &Target) -> Result<BlockTarget, Failure> {
        Ok(match target {
            Target::Host(name) => BlockTarget::Host(name.clone()),
            Target::Gpu(name) => BlockTarget::Gpu(self.gpu(name)?),
        })
    }

    fn host(&self, name: &str) -> Result<HostId, Failure> {
        let host = self.engine.state.host_by_name(name);
        host.map(|host| host.id)
            .ok_or_else(|| Failure::Unknown(format!("there is no host `{name}`")))
    }

    /// The identity of a host's GPU.
    pub(super) fn gpu(&self, name: &GpuName) -> Result<GpuUuid, Failure> {
        let host = self.engine.state.host_by_name(&name.host);
        let mut gpus = host.into_iter().flat_map(|host| &host.gpus);
        gpus.find(|gpu| gpu.index == name.index)
            .map(|gpu| gpu.uuid)
            .ok_or_else(|| {
                Failure::Unknown(format!("there is no GPU `{}:{}`", name.host, name.index))
            })
    }
}

/// The cells inside hosts: as many of one size as there is room for, or those of the given sizes.
fn groups(spec: &HostsSpec) -> Vec<CellGroup> {
    let mut groups = Vec::new();
    for (level, sizes) in &spec.inside {
        let each: Vec<u32> = match sizes.as_slice() {
            [size] => vec![*size; (spec.gpus / size.max(&1)) as usize],
            sizes => sizes.to_vec(),
        };
        let mut first = 0;
        for size in each {
            groups.push(CellGroup {
                level: level.clone(),
                gpus: (first..first + size).collect(),
            });
            first += size;
        }
    }
    groups
}
