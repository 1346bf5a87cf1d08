//! Repairs and checks: due ones, orders for workers, and results.

use std::collections::BTreeSet;

use muster_model::desired::FindingKey;
use muster_model::health::{Component, DeviceAction, Order, Phase, WorkStep};
use muster_model::ids::{GpuUuid, HostId};
use muster_model::time::TimeMs;

use crate::component::{Condition, Event};
use crate::flap_history::Flaps;
use crate::rules::{Clears, LEMON, Rule, RuleSet};
use crate::state::{Effect, HealthState};

/// Strikes from which on a check is thorough; from the next one on only an operator can unblock the
/// component.
const THOROUGH_STRIKES: u32 = 3;

/// Reason why a repair or a check cannot start or finish.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{component} is {phase}: no repair or check can be {step}")]
pub struct WorkRefused {
    /// The component.
    pub component: Component,
    /// Current phase.
    pub phase: Phase,
    /// The requested step.
    pub step: WorkStep,
}

/// Due repairs, checks and timed transitions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Due {
    /// Components whose repair or check may start, if nothing runs on them.
    pub work: Vec<Component>,
    /// Whether [`HealthState::tick`] would change something.
    pub ticks: bool,
    /// Time of the next query, if nothing happens before.
    pub next: Option<TimeMs>,
}

impl Due {
    fn at(&mut self, when: TimeMs) {
        self.next = Some(self.next.map_or(when, |next| next.min(when)));
    }

    fn tick_at(&mut self, when: TimeMs, now: TimeMs) {
        if when <= now {
            self.ticks = true;
        } else {
            self.at(when);
        }
    }
}

impl HealthState {
    /// Schedules an action for a component once nothing runs there. Of several actions, the one with the
    /// largest reach wins.
    pub fn want(&mut self, component: &Component, action: DeviceAction) {
        let condition = self.conditions.get(component);
        let pending = condition.and_then(|condition| condition.pending.as_ref());
        let is_check = action == DeviceAction::Check;
        let may = match self.phase(component) {
            Phase::Blocked | Phase::Draining => true,
            Phase::Suspect => is_check,
            Phase::BlockedAdmin | Phase::DrainingAdmin => {
                pending.is_some_and(|pending| is_check || pending.event.is_fault())
            }
            _ => false,
        };
        if may {
            let wanted = self.wanted.entry(component.clone()).or_insert(action);
            if reach(action) >= reach(*wanted) {
                *wanted = action;
            }
        }
    }

    /// Current orders for a host's worker.
    pub fn orders<'a>(
        &'a self,
        host: HostId,
        gpus: impl Iterator<Item = GpuUuid> + 'a,
    ) -> impl Iterator<Item = Order> + 'a {
        self.components_of(host, gpus)
            .filter_map(|component| {
                let condition = self.conditions.get(&component)?;
                let action = match condition.phase {
                    Phase::Checking => DeviceAction::Check,
                    Phase::Repairing => *self.wanted.get(&component)?,
                    _ => return None,
                };
                Some(Order {
                    since: condition.since,
                    component,
                    action,
                    rule: String::new(),
                    is_thorough: action == DeviceAction::Check && is_repeated(condition),
                })
            })
            .chain(self.restarts(host))
    }

    /// A host, its GPUs, and its adapters with known conditions.
    fn components_of<I: Iterator<Item = GpuUuid>>(
        &self,
        host: HostId,
        gpus: I,
    ) -> impl Iterator<Item = Component> + use<I> {
        std::iter::once(Component::Host(host))
            .chain(gpus.map(Component::Gpu))
            .chain(self.adapters_of(host))
    }

    /// Findings of a host's worker that count against it, as far as a reading may end them, ascending.
    #[must_use]
    pub fn counted_findings(
        &self,
        rules: &RuleSet,
        host: HostId,
        gpus: impl Iterator<Item = GpuUuid>,
    ) -> Vec<FindingKey> {
        let mut counted = BTreeSet::new();
        for component in self.components_of(host, gpus) {
            let Some(condition) = self.conditions.get(&component) else {
                continue;
            };
            counted.extend(counted_rules(rules, condition).map(|rule| FindingKey {
                rule: rule.to_owned(),
                component: component.clone(),
            }));
        }
        if !self.of_racks.is_empty() {
            let all = rules.rules.iter().map(|rule| (rule.id.clone(), host));
            let reported = all.filter(|key| self.of_racks.contains(key));
            counted.extend(reported.map(|(rule, host)| FindingKey {
                rule,
                component: Component::Host(host),
            }));
        }
        counted.into_iter().collect()
    }

    /// What is due now, and when more will be due.
    #[must_use]
    pub fn due(&self, now: TimeMs) -> Due {
        let mut due = Due::default();
        for (component, condition) in &self.conditions {
            match condition.phase {
                Phase::Suspect if self.wanted.contains_key(component) => {
                    due.work.push(component.clone());
                }
                Phase::Blocked if condition.needs_operator(now) => {}
                Phase::Blocked if self.wants_repair(component) => due.work.push(component.clone()),
                Phase::Blocked if condition.ready_at <= now => due.work.push(component.clone()),
                Phase::Blocked => due.at(condition.ready_at),
                Phase::Probation => due.tick_at(condition.ready_at, now),
                _ => {}
            }
        }
        for until in self.flaps.values().filter_map(Flaps::until) {
            due.tick_at(until, now);
        }
        for until in self.incidents.ends() {
            due.tick_at(until, now);
        }
        let restart = self.restart_due(now);
        for at in self.rails.breakers_due().chain(restart) {
            due.tick_at(at, now);
        }
        due
    }

    /// Applies the start or the result of a repair or a check.
    ///
    /// # Errors
    /// The component is not in a phase that allows it.
    pub fn step(
        &mut self,
        component: &Component,
        step: WorkStep,
        by: &str,
        now: TimeMs,
    ) -> Result<Vec<Effect>, WorkRefused> {
        let phase = self.phase(component);
        let wanted = self.wanted.get(component).copied();
        let action = wanted.filter(|action| is_repair(*action));
        Ok(match (phase, step) {
            (Phase::Blocked, WorkStep::Began) => {
                let event = action.map_or(Event::CheckBegan, |_| Event::RepairBegan);
                self.work(component, event, by, now)
            }
            (Phase::Suspect, WorkStep::Began) if wanted.is_some() => {
                self.work(component, Event::CheckBegan, by, now)
            }
            (Phase::Repairing, WorkStep::Passed) => {
                self.wanted.remove(component);
                let done = action.unwrap_or(DeviceAction::Reset);
                self.repaired(component, done, now)
            }
            (Phase::Repairing, WorkStep::Failed) => {
                self.wanted.remove(component);
                self.work(component, Event::RepairFailed, by, now)
            }
            (Phase::Checking, WorkStep::Passed) => {
                self.work(component, Event::CheckPassed, by, now)
            }
            (Phase::Checking, WorkStep::Failed) => {
                self.work(component, Event::CheckFailed, by, now)
            }
            _ => {
                return Err(WorkRefused {
                    component: component.clone(),
                    phase,
                    step,
                });
            }
        })
    }

    /// Nothing runs any more on a component that waited for that.
    pub fn drained(&mut self, component: &Component, now: TimeMs) -> Vec<Effect> {
        if matches!(
            self.phase(component),
            Phase::Draining | Phase::DrainingAdmin
        ) {
            self.work(
                component,
                Event::Drained,
                "nothing runs there any more",
                now,
            )
        } else {
            Vec::new()
        }
    }

    /// The host has booted: actions that a reboot completes are done.
    pub fn rebooted(
        &mut self,
        host: HostId,
        gpus: impl Iterator<Item = GpuUuid>,
        now: TimeMs,
    ) -> Vec<Effect> {
        let places = std::iter::once(Component::Host(host)).chain(gpus.map(Component::Gpu));
        let mut effects = Vec::new();
        for component in places {
            if self.phase(&component) == Phase::Repairing {
                self.wanted.remove(&component);
                effects.extend(self.repaired(&component, DeviceAction::Reboot, now));
            }
        }
        effects
    }

    /// Action that a component waits for, or that is in progress.
    #[must_use]
    pub fn wanted(&self, component: &Component) -> Option<DeviceAction> {
        self.wanted.get(component).copied()
    }

    /// Whether a component waits for a repair, or is being repaired.
    #[must_use]
    pub fn wants_repair(&self, component: &Component) -> bool {
        let wanted = self.wanted.get(component);
        wanted.is_some_and(|action| is_repair(*action))
    }
}

/// Whether a component failed so often that a quick check is not enough: at its third strike, and for a
/// lemon.
fn is_repeated(condition: &Condition) -> bool {
    let is_lemon = condition.accusation().is_some_and(|it| it.rule == LEMON);
    is_lemon || condition.strikes_at(condition.since) >= THOROUGH_STRIKES
}

/// Ids of workers' rules that restrict or suspect a component, or keep it out of placement until a reading
/// ends that.
fn counted_rules<'a>(
    rules: &'a RuleSet,
    condition: &'a Condition,
) -> impl Iterator<Item = &'a str> {
    let is_accused = matches!(
        condition.phase,
        Phase::Suspect | Phase::Draining | Phase::Blocked
    );
    let accusation = condition.accusation().filter(|_| is_accused);
    let accusations = accusation.into_iter().chain(&condition.pending);
    let accusing = accusations.map(|change| &*change.rule).filter(|id| {
        let rule = rules.rule(id);
        rule.is_some_and(|rule| rule.clears == Clears::Reading)
    });
    let restricting = condition.holds.iter().map(|held| &*held.rule);
    let suspecting = condition.suspected.iter().map(|suspected| &*suspected.rule);
    restricting.chain(suspecting).chain(accusing).filter(|id| {
        let rule = rules.rule(id);
        rule.is_some_and(Rule::is_read_by_workers)
    })
}

/// Reach of a repair; 0 for actions that are not repairs.
const fn reach(action: DeviceAction) -> u8 {
    match action {
        DeviceAction::ResetIdle => 1,
        DeviceAction::Reset => 2,
        DeviceAction::Reboot => 3,
        _ => 0,
    }
}

pub(super) const fn is_repair(action: DeviceAction) -> bool {
    matches!(
        action,
        DeviceAction::Reset | DeviceAction::ResetIdle | DeviceAction::Reboot
    )
}
