//! What the leader, the workers and people do for the ill: repairs, checks, the hunt for lemons, and what only a person gives back.

use muster_control::reactor;
use muster_model::command::{BlockTarget, Command, HealthCommand};
use muster_model::health::{Component, Phase, Severity, WorkStep};
use muster_model::ids::HostId;
use muster_model::rejection::Rejection;
use muster_model::time::TimeMs;

use crate::workload::Place;
use crate::world::SimulateError;
use crate::world::agenda::Happening;
use crate::world::run::World;
use crate::world::ward::{AUTHOR, Work};

/// How long a repair or a check takes.
const WORK_MS: u64 = 60_000;
/// Between two looks for lemons. A leader looks each minute; each bad end is minutes away from the next.
const LEMON_PERIOD_MS: u64 = 600_000;
/// After which a person looks at what waits for one.
const PERSON_PERIOD_MS: u64 = 86_400_000;
/// The rule about GPUs that fail their check while their host passes.
const ACTIVE_CHECK: &str = "active_check";

impl World<'_> {
    /// A person looks through everything that waits for one.
    pub(super) fn person_looks(&mut self) -> Result<(), SimulateError> {
        let hosts: Vec<HostId> = self.engine.state.hosts.keys().copied().collect();
        for host in hosts {
            self.give_back(host)?;
        }
        let at = self.engine.now.after(PERSON_PERIOD_MS);
        self.agenda.add(at, Happening::PersonLook);
        Ok(())
    }

    /// A person gives back what of a host waits for one and is not ill.
    pub(super) fn give_back(&mut self, id: HostId) -> Result<(), SimulateError> {
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
        let book = &self.engine.state.health;
        let waits = |component: &Component| {
            let condition = book.condition(component);
            condition.is_some_and(|condition| {
                let is_out = !condition.phase.accepts_work();
                condition.phase == Phase::Rma || is_out && condition.is_for_a_person(now)
            })
        };
        let targets: Vec<BlockTarget> = gpus
            .chain([itself])
            .filter(|(component, _)| waits(component) && !self.is_ill(component))
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

    /// The leader looks after its hosts: begins repairs and checks that may begin, and lets time pass. Whether that changed
    /// anything.
    pub(super) fn look_after_health(&mut self) -> Result<bool, SimulateError> {
        if self.ward.is_none() || !self.engine.state.health.has_conditions() {
            return Ok(false);
        }
        let (leader, now) = (self.engine.leader(), self.engine.now);
        let (commands, next) = reactor::health::due(leader, &self.engine.state, now);
        let mut has_changed = false;
        for command in commands {
            has_changed |= self.begin_work(&command)?;
        }
        let is_later = |at: &TimeMs| *at > now;
        let known = self.ward().looks_at.filter(is_later);
        if let Some(at) = next.filter(is_later)
            && known.is_none_or(|known| at < known)
        {
            self.ward().looks_at = Some(at);
            self.agenda.add(at, Happening::HealthLook);
        }
        Ok(has_changed)
    }

    fn begin_work(&mut self, command: &Command) -> Result<bool, SimulateError> {
        // One that another one of this look has made superfluous, or for which there is no room any more, is refused.
        if !self.carry_out_work(command)? {
            return Ok(false);
        }
        if let Command::Health(HealthCommand::Work { component, .. }) = command {
            self.look_at_component(component);
        }
        Ok(true)
    }

    /// A worker has a repair or a check to do.
    pub(super) fn order_work(&mut self, component: &Component) {
        let condition = self.engine.state.health.condition(component);
        let Some(since) = condition.map(|condition| condition.since) else {
            return;
        };
        let works = &mut self.ward().works;
        works.push(Work {
            component: component.clone(),
            since,
        });
        let work = works.len() - 1;
        let at = self.engine.now.after(WORK_MS);
        self.agenda.add(at, Happening::WorkEnds { work });
    }

    /// A worker has done a repair or a check, if it is still wanted.
    pub(super) fn end_work(&mut self, work: usize) -> Result<(), SimulateError> {
        let Work { component, since } = self.ward().works[work].clone();
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
            self.agenda.add(ready_at, Happening::WorkEnds { work });
            return Ok(());
        }
        if passed && phase == Phase::Checking {
            self.tell_bad_gpus(&component)?;
        }
        let step = if passed {
            WorkStep::Passed
        } else {
            WorkStep::Failed
        };
        let leader = self.engine.leader();
        // Too early by the time of the state, or overtaken: then it is refused, and the worker is told anew.
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

    /// Carries out a step of a repair or a check, if the state takes it. Whether it does.
    fn carry_out_work(&mut self, command: &Command) -> Result<bool, SimulateError> {
        let is_taken = match self.engine.apply(command) {
            Ok(_) => true,
            Err(Rejection::HealthWork { .. }) => false,
            Err(rejection) => return Err(self.engine.refused(command, rejection)),
        };
        self.follow()?;
        Ok(is_taken)
    }

    /// A host passes its check: the GPUs of it that do not are found by themselves.
    fn tell_bad_gpus(&mut self, component: &Component) -> Result<(), SimulateError> {
        if !matches!(component, Component::Host(_)) {
            return Ok(());
        }
        let ill = self.illnesses_of(component).into_iter();
        let gpus = ill.filter(|illness| matches!(self.illness(*illness).place, Place::Gpu(..)));
        let gpus: Vec<Component> = gpus.map(|illness| self.component_of(illness)).collect();
        for gpu in gpus {
            self.find(gpu, ACTIVE_CHECK, Severity::Fatal)?;
        }
        Ok(())
    }

    /// Whether a check finds that a component is ill: always what a worker sees by itself, else with luck. Asked again, the same
    /// check finds the same.
    fn check_finds(&mut self, component: &Component, check: usize) -> bool {
        let is_host = matches!(component, Component::Host(_));
        let ill = self.illnesses_of(component).into_iter();
        // A host passes without its bad GPUs.
        let own: Vec<usize> = ill
            .filter(|illness| !is_host || matches!(self.illness(*illness).place, Place::Host(_)))
            .collect();
        let mut is_found = false;
        for illness in own {
            let is_told = self.illness(illness).sign.is_some();
            // Each illness counts its checks, whatever another one on the host comes to.
            is_found |= is_told || self.ward().luck.check_finds(illness, check);
        }
        is_found
    }

    /// The leader looks for hosts that fail more often than others.
    pub(super) fn look_for_lemons(&mut self) -> Result<(), SimulateError> {
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
            .add(now.after(LEMON_PERIOD_MS), Happening::LemonLook);
        Ok(())
    }
}
