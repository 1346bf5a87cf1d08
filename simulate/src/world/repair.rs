//! Simulated repairs, active checks, lemon detection and operator unblocks.

use muster_control::reactor;
use muster_model::command::{BlockTarget, Command, HealthCommand};
use muster_model::health::{Component, Phase, Severity, WorkStep};
use muster_model::ids::HostId;
use muster_model::rejection::Rejection;
use muster_model::time::TimeMs;

use crate::workload::OutageTarget;
use crate::world::SimulateError;
use crate::world::fault_injection::{AUTHOR, RepairOrder};
use crate::world::happening::Event;
use crate::world::run::World;

/// Duration of a repair or a check.
const WORK_MS: u64 = 60_000;
/// Interval of lemon detection. A real leader runs it each minute; failures are minutes apart.
const LEMON_PERIOD_MS: u64 = 600_000;
/// Interval at which an operator reviews blocked components.
const PERSON_PERIOD_MS: u64 = 86_400_000;
/// The rule about GPUs that fail their check while their host passes.
const ACTIVE_CHECK: &str = "active_check";

impl World<'_> {
    /// An operator reviews everything that requires one.
    pub(super) fn operator_review(&mut self) -> Result<(), SimulateError> {
        let hosts: Vec<HostId> = self.engine.state.hosts.keys().copied().collect();
        for host in hosts {
            self.operator_unblock(host)?;
        }
        let at = self.engine.now.after(PERSON_PERIOD_MS);
        self.agenda.add(at, Event::OperatorReview);
        Ok(())
    }

    /// An operator unblocks the healthy components of a host that require one.
    pub(super) fn operator_unblock(&mut self, id: HostId) -> Result<(), SimulateError> {
        let now = self.engine.now;
        let Some(host) = self.engine.state.host(id) else {
            return Ok(());
        };
        let gpus = host.gpus.iter().map(|gpu| {
            let target = BlockTarget::Gpu(gpu.uuid);
            (Component::Gpu(gpu.uuid), target)
        });
        let itself = (
            Component::Host(id),
            BlockTarget::Host(host.name.to_string()),
        );
        let health = &self.engine.state.health;
        let waits = |component: &Component| {
            let condition = health.condition(component);
            condition.is_some_and(|condition| {
                let is_out = !condition.phase.accepts_work();
                condition.phase == Phase::Rma || is_out && condition.needs_operator(now)
            })
        };
        let targets: Vec<BlockTarget> = gpus
            .chain([itself])
            .filter(|(component, _)| waits(component) && !self.is_faulty(component))
            .map(|(_, target)| target)
            .collect();
        for target in targets {
            let request = self.engine.next_request();
            self.engine.carry_out(&Command::Unblock {
                request,
                target,
                author: AUTHOR.to_owned(),
                planned: false,
            })?;
            self.follow()?;
        }
        self.look_at_host(id);
        Ok(())
    }

    /// Runs the leader's health actions: starts repairs and checks that may start, and advances timers.
    /// Returns whether anything changed.
    pub(super) fn run_health_actions(&mut self) -> Result<bool, SimulateError> {
        if self.fault_simulation.is_none() || !self.engine.state.health.has_conditions() {
            return Ok(false);
        }
        let (leader, now) = (self.engine.leader(), self.engine.now);
        let (commands, next) = reactor::health::due(leader, &self.engine.state, now);
        let mut has_changed = false;
        for command in commands {
            has_changed |= self.begin_work(&command)?;
        }
        let is_later = |at: &TimeMs| *at > now;
        let known = self.fault_simulation().looks_at.filter(is_later);
        if let Some(at) = next.filter(is_later)
            && known.is_none_or(|known| at < known)
        {
            self.fault_simulation().looks_at = Some(at);
            self.agenda.add(at, Event::HealthTick);
        }
        Ok(has_changed)
    }

    fn begin_work(&mut self, command: &Command) -> Result<bool, SimulateError> {
        // An action that an earlier one has made superfluous, or that exceeds the limits by now, is
        // refused.
        if !self.carry_out_work(command)? {
            return Ok(false);
        }
        if let Command::Health(HealthCommand::Work { component, .. }) = command {
            self.look_at_component(component);
        }
        Ok(true)
    }

    /// Orders a repair or a check from a worker.
    pub(super) fn order_work(&mut self, component: &Component) {
        let condition = self.engine.state.health.condition(component);
        let Some(since) = condition.map(|condition| condition.since) else {
            return;
        };
        let works = &mut self.fault_simulation().works;
        works.push(RepairOrder {
            component: component.clone(),
            since,
        });
        let work = works.len() - 1;
        let at = self.engine.now.after(WORK_MS);
        self.agenda.add(at, Event::WorkEnds { work });
    }

    /// A worker has completed a repair or a check, if it is still wanted.
    pub(super) fn end_work(&mut self, work: usize) -> Result<(), SimulateError> {
        let RepairOrder { component, since } = self.fault_simulation().works[work].clone();
        let now = self.engine.now;
        let Some(condition) = self.engine.state.health.condition(&component) else {
            return Ok(());
        };
        if condition.since != since {
            return Ok(());
        }
        let (phase, ready_at) = (condition.phase, condition.ready_at);
        let passed = phase != Phase::Checking || !self.check_finds(&component, work);
        if passed && phase == Phase::Checking && now < ready_at {
            self.agenda.add(ready_at, Event::WorkEnds { work });
            return Ok(());
        }
        if passed && phase == Phase::Checking {
            self.report_faulty_gpus(&component)?;
        }
        let step = if passed {
            WorkStep::Passed
        } else {
            WorkStep::Failed
        };
        let leader = self.engine.leader();
        // Too early by the state's time, or superseded: it is refused, and the worker gets a new order.
        self.carry_out_work(&Command::Health(HealthCommand::Work {
            leader,
            component: component.clone(),
            step,
            since,
            evidence: "simulated".to_owned(),
        }))?;
        self.look_at_component(&component);
        Ok(())
    }

    /// Applies a step of a repair or a check; returns whether the state accepted it.
    fn carry_out_work(&mut self, command: &Command) -> Result<bool, SimulateError> {
        let is_taken = match self.engine.apply(command).result {
            Ok(_) => true,
            Err(Rejection::HealthWork { .. }) => false,
            Err(rejection) => return Err(self.engine.refused(command, rejection).into()),
        };
        self.follow()?;
        Ok(is_taken)
    }

    /// When a host passes its check, its faulty GPUs are reported separately.
    fn report_faulty_gpus(&mut self, component: &Component) -> Result<(), SimulateError> {
        if !matches!(component, Component::Host(_)) {
            return Ok(());
        }
        let faults = self.faults_of(component).into_iter();
        let gpus = faults.filter(|fault| matches!(self.fault(*fault).place, OutageTarget::Gpu(..)));
        let gpus: Vec<Component> = gpus.map(|fault| self.component_of(fault)).collect();
        for gpu in gpus {
            self.report_finding(gpu, ACTIVE_CHECK, Severity::Fatal)?;
        }
        Ok(())
    }

    /// Whether a check finds a component faulty: always if workers detect the fault on their own, otherwise
    /// with a certain probability. Repeating the same check gives the same result.
    fn check_finds(&mut self, component: &Component, check: usize) -> bool {
        let is_host = matches!(component, Component::Host(_));
        let faults = self.faults_of(component).into_iter();
        // A host passes even if it has faulty GPUs.
        let own: Vec<usize> = faults
            .filter(|fault| !is_host || matches!(self.fault(*fault).place, OutageTarget::Host(_)))
            .collect();
        let mut is_found = false;
        for fault in own {
            let is_detected_by_workers = self.fault(fault).sign.is_some();
            // Each fault counts its own checks, independent of other faults on the host.
            is_found |=
                is_detected_by_workers || self.fault_simulation().random.check_finds(fault, check);
        }
        is_found
    }

    /// Runs the leader's lemon detection.
    pub(super) fn detect_lemons(&mut self) -> Result<(), SimulateError> {
        let (leader, now) = (self.engine.leader(), self.engine.now);
        if self.engine.state.health.has_records() {
            for command in reactor::health::lemons(leader, &self.engine.state, now) {
                self.engine.carry_out(&command)?;
                self.follow()?;
                if let Command::Health(HealthCommand::DrainLemon { host, .. }) = command {
                    self.look_at_host(host);
                }
            }
        }
        self.agenda
            .add(now.after(LEMON_PERIOD_MS), Event::LemonDetection);
        Ok(())
    }
}
