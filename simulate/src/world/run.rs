//! Simulated world: the engine, its environment, and the clock.

use std::collections::BTreeMap;
use std::sync::Arc;

use muster_engine::state::Answer;
use muster_harness::Agenda;
use muster_model::command::{Command, GpuHealth, HostCommand, HostHealth};
use muster_model::ids::{AttemptEpoch, HostId, JobId};
use muster_model::time::TimeMs;

use crate::measure::JobEnd;
use crate::policy::Policy;
use crate::workload::{LeftOut, OutageTarget, Scenario};
use crate::world::engine::{self, Engine, gpu_uuid};
use crate::world::fault_injection::FaultSimulation;
use crate::world::happening::Event;
use crate::world::observer::Observer;
use crate::world::{Outcome, Progress, SimulateError};

/// Data about a job in addition to its record.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Run {
    /// Job id, once accepted.
    pub(super) id: Option<JobId>,
    /// Its current attempt and the time since which its work proceeds.
    pub(super) attempt: Option<(AttemptEpoch, TimeMs)>,
    /// True while its tasks report that all its work is done.
    pub(super) is_done: bool,
    /// Number of attempts, the current one included.
    pub(super) attempts: u32,
}

/// A scenario in progress.
pub(super) struct World<'a> {
    pub(super) scenario: &'a Scenario,
    pub(super) policy: Policy,
    pub(super) engine: Engine,
    pub(super) agenda: Agenda<Event>,
    pub(super) observer: Observer,
    /// One entry per job, as in the scenario.
    pub(super) runs: Vec<Run>,
    /// Index of every accepted job that has not ended.
    pub(super) positions: BTreeMap<JobId, usize>,
    /// Number of current outages of each host and GPU.
    outages: BTreeMap<OutageTarget, u32>,
    arrived: usize,
    pub(super) ended: u64,
    instants: u64,
    pub(super) rounds: u64,
    pub(super) placements: u64,
    pub(super) fits_nowhere: LeftOut,
    refused: LeftOut,
    /// Simulated faults and repairs, if enabled.
    pub(super) fault_simulation: Option<FaultSimulation>,
}

impl<'a> World<'a> {
    pub(super) fn new(scenario: &'a Scenario, policy: Policy) -> Result<Self, SimulateError> {
        let mut engine = engine::with_hosts(&scenario.cluster)?;
        for command in policy.setup(scenario) {
            let result = engine.apply(&command).result;
            result.map_err(|rejection| SimulateError::Setup {
                rejection: Box::new(rejection),
            })?;
        }
        engine.observer.clear();
        let mut agenda = Agenda::default();
        for outage in &scenario.outages {
            let (lost, back) = match outage.place {
                OutageTarget::Host(host) => (Event::HostLost { host }, Event::HostBack { host }),
                OutageTarget::Gpu(host, gpu) => {
                    (Event::GpuLost { host, gpu }, Event::GpuBack { host, gpu })
                }
            };
            agenda.add(TimeMs(outage.start_ms), lost);
            agenda.add(TimeMs(outage.end_ms), back);
        }
        let mut world = Self {
            observer: Observer::new(scenario, &engine.state),
            scenario,
            policy,
            engine,
            agenda,
            runs: vec![Run::default(); scenario.jobs.len()],
            positions: BTreeMap::new(),
            outages: BTreeMap::new(),
            arrived: 0,
            ended: 0,
            instants: 0,
            rounds: 0,
            placements: 0,
            fits_nowhere: LeftOut::default(),
            refused: LeftOut::default(),
            fault_simulation: None,
        };
        if let Some(features) = scenario.health_features {
            world.start_fault_simulation(features)?;
        }
        Ok(world)
    }

    /// Simulates the next event's instant; false if nothing more can happen.
    pub(super) fn step(&mut self) -> Result<bool, SimulateError> {
        let Some(now) = self.next_instant() else {
            return Ok(false);
        };
        self.observer.advance(now);
        if let Some(simulation) = &mut self.fault_simulation {
            simulation.advance(now);
        }
        self.engine.now = now;
        // A checkpoint changes the choice of victims, not whether a unit can be placed, except where
        // running work leaves after it.
        let mut changed = self.submission_is_due();
        let ended_before = self.observer.attempts_ended();
        while let Some(happening) = self.agenda.due(now) {
            changed |= !happening.changes_no_room();
            self.happen(happening)?;
        }
        changed |= self.observer.attempts_ended() > ended_before;
        self.submit_due()?;
        changed |= self.run_health_actions()?;
        if changed {
            self.decide()?;
        }
        self.engine.prune()?;
        self.engine.observer.clear();
        self.instants += 1;
        let every = self.scenario.settings.audit_every;
        if every.is_some_and(|every| self.instants.is_multiple_of(every.max(1))) {
            self.engine.audit()?;
        }
        Ok(true)
    }

    /// Once every job has ended, later outages do not matter.
    fn next_instant(&self) -> Option<TimeMs> {
        if self.ended == self.scenario.jobs.len() as u64 {
            return None;
        }
        let arrival = self.scenario.jobs.get(self.arrived);
        let arrival = arrival.map(|job| TimeMs(job.submit_ms));
        [arrival, self.agenda.next_at()].into_iter().flatten().min()
    }

    fn happen(&mut self, happening: Event) -> Result<(), SimulateError> {
        match happening {
            Event::WorkDone { job, epoch } => self.work_done(job, epoch),
            Event::Checkpoint { job, epoch } => self.commit_checkpoint(job, epoch),
            Event::FaultBegins { fault } => self.begin_fault(fault),
            Event::FaultEnds { fault } => self.repair_part(fault),
            Event::FaultDetected { fault } => self.detect_fault(fault),
            Event::TaskDies { job, epoch, fault } => self.kill_task(job, epoch, fault),
            Event::WorkEnds { work } => self.end_work(work),
            Event::LemonDetection => self.detect_lemons(),
            Event::OperatorReview => self.operator_review(),
            Event::HostLost { host } if self.is_first(OutageTarget::Host(host)) => {
                self.set_host_health(host, HostHealth::Lost)?;
                self.fence_tasks_on(host_id(host))
            }
            Event::HostBack { host } if self.was_last(OutageTarget::Host(host)) => {
                self.set_host_health(host, HostHealth::Up)
            }
            Event::GpuLost { host, gpu } if self.is_first(OutageTarget::Gpu(host, gpu)) => {
                let health = GpuHealth::Faulted {
                    signal: "fault".to_owned(),
                    detail: "outage in the faults file".to_owned(),
                };
                self.set_gpu_health(host, gpu, health)
            }
            Event::GpuBack { host, gpu } if self.was_last(OutageTarget::Gpu(host, gpu)) => {
                self.set_gpu_health(host, gpu, GpuHealth::Healthy)
            }
            Event::HostLost { .. }
            | Event::HostBack { .. }
            | Event::GpuLost { .. }
            | Event::GpuBack { .. }
            | Event::HealthTick
            | Event::Plan => Ok(()),
        }
    }

    /// Counts an outage that begins; returns whether it is the only one of its place.
    fn is_first(&mut self, place: OutageTarget) -> bool {
        let outages = self.outages.entry(place).or_default();
        *outages += 1;
        *outages == 1
    }

    /// Counts an outage that ends; returns whether its place has no other one left.
    fn was_last(&mut self, place: OutageTarget) -> bool {
        let outages = self.outages.entry(place).or_default();
        *outages = outages.saturating_sub(1);
        *outages == 0
    }

    fn set_gpu_health(
        &mut self,
        host: usize,
        gpu: u32,
        health: GpuHealth,
    ) -> Result<(), SimulateError> {
        let host = host_id(host);
        self.engine
            .carry_out(&Command::Host(HostCommand::SetGpuHealth {
                leader: self.engine.leader(),
                host,
                gpu: gpu_uuid(host.get(), gpu),
                health,
            }))?;
        self.follow()?;
        self.look_at_host(host);
        Ok(())
    }

    fn set_host_health(&mut self, host: usize, health: HostHealth) -> Result<(), SimulateError> {
        self.engine
            .carry_out(&Command::Host(HostCommand::SetHostHealth {
                leader: self.engine.leader(),
                host: host_id(host),
                health,
                one_way: false,
            }))?;
        self.follow()
    }

    fn submission_is_due(&self) -> bool {
        let next = self.scenario.jobs.get(self.arrived);
        next.is_some_and(|job| job.submit_ms <= self.engine.now.0)
    }

    fn submit_due(&mut self) -> Result<(), SimulateError> {
        let now = self.engine.now;
        while let Some(job) = self.scenario.jobs.get(self.arrived)
            && job.submit_ms <= now.0
        {
            let position = self.arrived;
            self.arrived += 1;
            let request = self.engine.next_request();
            let submitted = self.engine.apply(&Command::SubmitJob {
                request,
                spec: Arc::new(self.policy.spec(self.scenario, job)),
            });
            match submitted.result {
                Ok(Answer::Job(id)) => {
                    self.positions.insert(id, position);
                    self.runs[position].id = Some(id);
                    self.observer.submitted(position);
                }
                Ok(other) => unreachable!("a submission is answered by a job, not {other:?}"),
                Err(rejection) => {
                    self.refused.add(|| format!("{}: {rejection}", job.name));
                    self.end_job(position, JobEnd::Refused);
                }
            }
            self.follow()?;
        }
        Ok(())
    }

    /// Records that a job has ended.
    pub(super) fn end_job(&mut self, job: usize, end: JobEnd) {
        self.ended += 1;
        self.observer.ended(job, end);
    }

    pub(super) fn progress(&self) -> Progress {
        Progress {
            jobs_ended: self.ended,
            jobs: self.scenario.jobs.len() as u64,
            virtual_ms: self.engine.now.0,
        }
    }

    pub(super) fn finish(self) -> Outcome {
        let (queues, records, observed) = self.observer.finish();
        Outcome {
            policy: self.policy,
            records,
            fits_nowhere: self.fits_nowhere,
            refused: self.refused,
            commands: self.engine.commands(),
            rounds: self.rounds,
            placements: self.placements,
            audits: self.engine.audits(),
            health: self.fault_simulation.as_ref().map(FaultSimulation::counts),
            queues,
            observed,
        }
    }
}

/// The engine's id of a host at a position of the cluster.
pub(super) fn host_id(position: usize) -> HostId {
    let number = u32::try_from(position + 1).expect("a cluster has at most HOSTS_MAX hosts");
    HostId(number)
}
