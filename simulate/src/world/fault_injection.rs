//! Simulated faults: reports of workers, effects on tasks, and the leader's health actions.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use muster_engine::state::Attempt;
use muster_model::command::{
    Command, ConfigCommand, Exit, HealthCommand, JobDefaults, TaskOutcome,
};
use muster_model::event::EventKind;
use muster_model::health::{Component, Finding, Phase, Severity};
use muster_model::ids::{AttemptEpoch, HostId, JobId, TaskIndex};
use muster_model::time::TimeMs;

use crate::fault::{FaultEffect, HardwareFault, HealthFeatures};
use crate::workload::OutageTarget;
use crate::world::SimulateError;
use crate::world::engine::gpu_uuid;
use crate::world::fault_random::FaultRandom;
use crate::world::follow::current_attempt;
use crate::world::happening::Event;
use crate::world::out_of_placement::{HealthyOutByCause, HostSum};
use crate::world::run::{World, host_id};

/// Time until a task dies of a fault that occurs while it runs.
const DIES_MS: u64 = 1_000;
/// The same time for a fault that existed before: the task has to start up first.
const COMES_UP_MS: u64 = 60_000;
/// Mean time until a task dies of an intermittent fault. Our assumption.
const DIES_SOMETIMES_MS: u64 = 4 * 3_600_000;
/// Author of operator repairs.
pub(super) const AUTHOR: &str = "simulated operator";
/// SIGABRT, with which CUDA and NCCL end a process.
const SIGNAL_ABORT: i32 = 6;

/// Health figures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HealthCounts {
    /// Components that the engine took out of placement.
    pub blocks: u64,
    /// Number of those without a faulty part.
    pub false_blocks: u64,
    /// Attempts of which a task died of a fault.
    pub struck: u64,
    /// GPU-milliseconds of healthy, unheld GPUs out of placement, by what they waited for.
    pub healthy_out_gpu_ms: HealthyOutByCause<u128>,
    /// GPU-milliseconds of faulty GPUs.
    pub faulty_gpu_ms: u128,
    /// Maximum number of GPUs out of placement at a time.
    pub out_max: u32,
}

/// A repair or check in progress.
#[derive(Clone, Debug)]
pub(super) struct RepairOrder {
    pub(super) component: Component,
    pub(super) since: TimeMs,
}

/// Current faults and the repairs in progress.
#[derive(Debug, Default)]
pub(super) struct FaultSimulation {
    /// Current faults, by index of the host.
    active: BTreeMap<usize, BTreeSet<usize>>,
    /// Sequence number of the last finding of each host.
    last_sequence: BTreeMap<HostId, u64>,
    pub(super) works: Vec<RepairOrder>,
    pub(super) random: FaultRandom,
    /// Time of the leader's next health action that is in the agenda.
    pub(super) looks_at: Option<TimeMs>,
    sums: BTreeMap<HostId, HostSum>,
    all: HostSum,
    counted_to: TimeMs,
    counts: HealthCounts,
}

impl FaultSimulation {
    /// Advances time over a span without changes.
    pub(super) fn advance(&mut self, now: TimeMs) {
        let span_ms = u128::from(now.since(self.counted_to));
        let healthy_out = { self.all.healthy_out }.map(|gpus| span_ms * u128::from(gpus));
        self.counts.healthy_out_gpu_ms = self.counts.healthy_out_gpu_ms.plus(healthy_out);
        self.counts.faulty_gpu_ms += span_ms * u128::from(self.all.faulty);
        if span_ms > 0 {
            self.counts.out_max = self.counts.out_max.max(self.all.out);
        }
        self.counted_to = now;
    }

    pub(super) const fn counts(&self) -> HealthCounts {
        self.counts
    }

    /// Sets a host's GPUs out of placement from now on.
    pub(super) fn set_host(&mut self, host: HostId, now: HostSum) {
        let before = self.sums.insert(host, now).unwrap_or_default();
        self.all = self.all.plus(now).minus(before);
    }

    pub(super) fn active_on(&self, host: usize) -> Vec<usize> {
        let on_host = self.active.get(&host);
        on_host.into_iter().flatten().copied().collect()
    }
}

/// Initial commands of a cluster with these health features, except those that need a leader.
pub(super) fn defaults() -> JobDefaults {
    JobDefaults {
        attempts_without_progress_max: 0,
        bad_checkpoints_max: 3,
        restore_window_ms: 600_000,
    }
}

impl World<'_> {
    /// Sets the rules and fills the agenda.
    pub(super) fn start_fault_simulation(
        &mut self,
        features: HealthFeatures,
    ) -> Result<(), SimulateError> {
        let leader = self.engine.leader();
        if features.attributes() {
            self.engine
                .carry_out(&Command::Config(ConfigCommand::SetJobDefaults {
                    leader,
                    defaults: defaults(),
                }))?;
        }
        let request = self.engine.next_request();
        self.engine
            .carry_out(&Command::Health(HealthCommand::SetRules {
                request,
                author: AUTHOR.to_owned(),
                text: Arc::from(features.rules()),
                shipped: None,
            }))?;
        for (fault, known) in self.scenario.faults.iter().enumerate() {
            self.agenda
                .add(TimeMs(known.start_ms), Event::FaultBegins { fault });
            self.agenda
                .add(TimeMs(known.end_ms), Event::FaultEnds { fault });
        }
        self.agenda.add(TimeMs(0), Event::LemonDetection);
        self.agenda.add(TimeMs(0), Event::OperatorReview);
        self.fault_simulation = Some(FaultSimulation {
            random: FaultRandom::new(self.scenario.fault_seed),
            ..FaultSimulation::default()
        });
        Ok(())
    }

    pub(super) fn fault(&self, fault: usize) -> &HardwareFault {
        &self.scenario.faults[fault]
    }

    pub(super) fn fault_simulation(&mut self) -> &mut FaultSimulation {
        self.fault_simulation
            .as_mut()
            .expect("faults are simulated")
    }

    /// The component that a finding about a fault names.
    pub(super) fn component_of(&self, fault: usize) -> Component {
        let known = self.fault(fault);
        let host = host_id(known.host());
        known.component(host, |index| Component::Gpu(gpu_uuid(host.get(), index)))
    }

    pub(super) fn begin_fault(&mut self, fault: usize) -> Result<(), SimulateError> {
        let now = self.engine.now;
        let known = self.fault(fault);
        let host = known.host();
        let seen = known.sign.map(|sign| now.after(sign.after_ms));
        if let Some(at) = seen {
            self.agenda.add(at, Event::FaultDetected { fault });
        }
        let active = &mut self.fault_simulation().active;
        active.entry(host).or_default().insert(fault);
        for id in self.jobs_on(host_id(host)) {
            let attempt = current_attempt(&self.engine.state, id);
            let struck = attempt.filter(|attempt| self.harms(fault, attempt));
            if let Some(epoch) = struck.map(|attempt| attempt.epoch) {
                self.expect_death(id, epoch, fault, DIES_MS);
            }
        }
        self.look_at_host(host_id(host));
        Ok(())
    }

    /// Schedules the effects of existing faults on an attempt that has just begun.
    pub(super) fn schedule_fault_effects(&mut self, id: JobId, epoch: AttemptEpoch) {
        let Some(simulation) = &self.fault_simulation else {
            return;
        };
        let Some(attempt) = current_attempt(&self.engine.state, id) else {
            return;
        };
        let hosts = attempt.hosts().into_iter();
        let active = hosts.flat_map(|host| simulation.active_on(position(host)));
        let striking: Vec<usize> = active.filter(|fault| self.harms(*fault, attempt)).collect();
        for fault in striking {
            self.expect_death(id, epoch, fault, COMES_UP_MS);
        }
    }

    /// Whether a fault harms an attempt.
    fn harms(&self, fault: usize, attempt: &Attempt) -> bool {
        let known = self.fault(fault);
        match known.effect {
            FaultEffect::None => false,
            FaultEffect::Gangs(_) => {
                attempt.hosts().len() > 1 && self.victim(fault, attempt).is_some()
            }
            FaultEffect::Always(_) | FaultEffect::Sometimes => {
                self.victim(fault, attempt).is_some()
            }
        }
    }

    /// The task of an attempt that a fault affects.
    fn victim(&self, fault: usize, attempt: &Attempt) -> Option<TaskIndex> {
        let known = self.fault(fault);
        let host = host_id(known.host());
        let mut here = attempt.tasks.iter().filter(|run| run.host == host);
        let victim = match known.place {
            OutageTarget::Host(_) => here.next(),
            OutageTarget::Gpu(_, index) => {
                let gpu = gpu_uuid(host.get(), index);
                here.find(|run| run.gpus.contains(&gpu))
            }
        };
        victim.map(|run| run.task)
    }

    fn expect_death(&mut self, id: JobId, epoch: AttemptEpoch, fault: usize, soon_ms: u64) {
        let Some(&job) = self.positions.get(&id) else {
            return;
        };
        let attempt = self.runs[job].attempts;
        let effect = self.fault(fault).effect;
        let wait_ms = match effect {
            FaultEffect::Sometimes => {
                let random = &self.fault_simulation().random;
                random.dies_after_ms(fault, job, attempt, DIES_SOMETIMES_MS)
            }
            _ => soon_ms,
        };
        let at = self.engine.now.after(wait_ms.max(1));
        let dies = Event::TaskDies { job, epoch, fault };
        self.agenda.add(at, dies);
    }

    fn is_active(&self, fault: usize) -> bool {
        let host = self.fault(fault).host();
        let simulation = self.fault_simulation.as_ref();
        let active = simulation.and_then(|simulation| simulation.active.get(&host));
        active.is_some_and(|active| active.contains(&fault))
    }

    /// A task dies of a fault, if it still runs and the fault persists.
    pub(super) fn kill_task(
        &mut self,
        job: usize,
        epoch: AttemptEpoch,
        fault: usize,
    ) -> Result<(), SimulateError> {
        let Some(id) = self.runs[job].id else {
            return Ok(());
        };
        if !self.is_active(fault) {
            return Ok(());
        }
        let attempt = current_attempt(&self.engine.state, id);
        let attempt = attempt.filter(|attempt| attempt.epoch == epoch && attempt.stop.is_none());
        let Some(task) = attempt.and_then(|attempt| self.victim(fault, attempt)) else {
            return Ok(());
        };
        let evidence = match self.fault(fault).effect {
            FaultEffect::Always(message) | FaultEffect::Gangs(message) => message,
            FaultEffect::None | FaultEffect::Sometimes => "",
        };
        self.fault_simulation().counts.struck += 1;
        let exit = Exit {
            signal: Some(SIGNAL_ABORT),
            evidence: evidence.to_owned(),
            ..Exit::default()
        };
        let is_it = |run: &muster_engine::state::TaskRun| run.task == task;
        self.end_live_tasks(id, &TaskOutcome::Exited(exit), is_it)?;
        self.follow()
    }

    /// A worker has detected a fault that persists.
    pub(super) fn detect_fault(&mut self, fault: usize) -> Result<(), SimulateError> {
        if !self.is_active(fault) {
            return Ok(());
        }
        self.report_fault(fault, HardwareFault::SEVERITY)
    }

    fn report_fault(&mut self, fault: usize, severity: Severity) -> Result<(), SimulateError> {
        let Some(sign) = self.fault(fault).sign else {
            return Ok(());
        };
        self.report_finding(self.component_of(fault), sign.rule, severity)
    }

    /// A worker reports a finding.
    pub(super) fn report_finding(
        &mut self,
        component: Component,
        rule: &str,
        severity: Severity,
    ) -> Result<(), SimulateError> {
        let Some(host) = self.host_with(&component) else {
            return Ok(());
        };
        let sequence = self
            .fault_simulation()
            .last_sequence
            .entry(host)
            .or_default();
        *sequence += 1;
        let finding = Finding {
            sequence: *sequence,
            rule: rule.to_owned(),
            component,
            severity,
            metric: rule.to_owned(),
            measured: 1,
            code: None,
            cluster: None,
            evidence: "by the faults file".to_owned(),
            at: self.engine.now,
        };
        let leader = self.engine.leader();
        self.engine
            .carry_out(&Command::Health(HealthCommand::Report {
                leader,
                host,
                incarnation: 1,
                findings: vec![finding],
            }))?;
        self.follow()?;
        self.look_at_host(host);
        Ok(())
    }

    /// A part was repaired: its reading is healthy again, and an operator unblocks it where required.
    pub(super) fn repair_part(&mut self, fault: usize) -> Result<(), SimulateError> {
        let host = self.fault(fault).host();
        if let Some(active) = self.fault_simulation().active.get_mut(&host) {
            active.remove(&fault);
        }
        self.report_fault(fault, Severity::Healthy)?;
        self.operator_unblock(host_id(host))?;
        self.look_at_host(host_id(host));
        Ok(())
    }

    /// Whether a component, or a part of it, is faulty.
    pub(super) fn is_faulty(&self, component: &Component) -> bool {
        !self.faults_of(component).is_empty()
    }

    pub(super) fn faults_of(&self, component: &Component) -> Vec<usize> {
        let Some(simulation) = &self.fault_simulation else {
            return Vec::new();
        };
        let host = self.host_with(component);
        let active = host.map_or_else(Vec::new, |host| simulation.active_on(position(host)));
        let is_its = |fault: &usize| {
            let is_meant =
                matches!(component, Component::Host(_)) || self.component_of(*fault) == *component;
            is_meant && !self.fault(*fault).is_false
        };
        active.into_iter().filter(is_its).collect()
    }

    /// A component changed its health state: its worker may have something to do, and it is counted.
    pub(super) fn take_health(&mut self, event: &EventKind) {
        let EventKind::HealthChanged {
            component,
            host,
            from,
            to,
            ..
        } = event
        else {
            return;
        };
        let host = *host;
        if matches!(to, Phase::Repairing | Phase::Checking) && self.fault_simulation.is_some() {
            self.order_work(component);
        }
        if from.accepts_work() && !to.accepts_work() && self.fault_simulation.is_some() {
            let is_false = !self.is_faulty(component);
            let counts = &mut self.fault_simulation().counts;
            counts.blocks += 1;
            counts.false_blocks += u64::from(is_false);
        }
        self.look_at_host(host);
    }

    pub(super) fn look_at_component(&mut self, component: &Component) {
        if let Some(host) = self.host_with(component) {
            self.look_at_host(host);
        }
    }

    pub(super) fn host_with(&self, component: &Component) -> Option<HostId> {
        match component {
            Component::Gpu(uuid) => self.engine.state.gpu_hosts.get(uuid).copied(),
            Component::Host(host) | Component::Nic { host, .. } => Some(*host),
            Component::Rack(_) => None,
        }
    }

    /// Jobs with tasks on a host.
    pub(super) fn jobs_on(&self, host: HostId) -> Vec<JobId> {
        let units = self.engine.state.index.units_on(host);
        units.map(|unit| unit.job).collect()
    }
}

/// The index of a host in the cluster.
pub(super) const fn position(host: HostId) -> usize {
    host.get() as usize - 1
}
