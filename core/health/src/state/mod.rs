//! Replicated health state, and the only operations that change it.
//!
//! One value of the replicated state. `apply` passes in findings, ends of attempts, actions of admins and the
//! time, with the circumstances of the component, and receives the effects; it makes no health decisions
//! itself.

mod admin;
mod clock_skew;
mod ended;
mod flapping;
mod history;
mod ingest;
mod ordered_list;
mod parts;
mod propose;
mod racks;
mod restarts;
mod work;

use std::sync::Arc;

use imbl::{OrdMap, OrdSet};
use muster_model::health::{Component, DeviceAction, Finding, Phase};
use muster_model::ids::{HostId, JobId};
use muster_model::time::TimeMs;

use crate::component::{
    Change, ChangeRejected, Condition, Event, RecoveryLimits, Repairs, Restriction,
};
use crate::evaluate::Xids;
use crate::flap_history::Flaps;
use crate::guard_rails::{Group, Incident, Incidents, PoolView, Rails, Refused};
use crate::lemons::HostRecord;
use crate::outbox::AppliedUpTo;
use crate::rules::RuleSet;
use crate::state::ordered_list::OrderedList;

pub use self::ended::Excludes;
pub use self::history::{ENDS_KEPT_MAX, FailedEnd, PROGRAMS_KEPT_MAX, Program, Successes};
pub use self::parts::Part;
pub use self::racks::Rack;
pub use self::work::{Due, WorkRefused};

/// Findings kept for dry runs and for operators, newest last.
pub const FINDINGS_KEPT_MAX: usize = 4_096;
/// Findings kept during an incident, to be judged at its end: six each for 10,000 hosts.
pub const FINDINGS_IN_INCIDENTS_MAX: usize = 65_536;

/// Circumstances of a component in the rest of the state.
#[derive(Clone, Copy, Debug)]
pub struct Circumstances<'a> {
    /// The host.
    pub host: HostId,
    /// Number of GPUs of the host.
    pub gpus: u32,
    /// The pool of the host.
    pub pool: &'a str,
    /// State of the pool.
    pub view: PoolView,
    /// Groups of the host, with their sizes.
    pub groups: &'a [(Group, u32)],
    /// The job whose task holds the component.
    pub job: Option<JobId>,
    /// User who owns the job.
    pub user: Option<&'a str>,
    /// Whether the scheduler is stopping that task.
    pub is_ours: bool,
    /// Whether nothing runs on the component.
    pub is_idle: bool,
    /// Whether nothing runs on the host.
    pub is_host_idle: bool,
}

/// Effect of a change, for `apply` to carry out and to report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// The phase of a component changed.
    Changed {
        /// The component.
        component: Component,
        /// Previous phase.
        from: Phase,
        /// New phase.
        to: Phase,
    },
    /// Running tasks are stopped and restarted elsewhere, not charged to any budget.
    Kill(Component),
    /// A repair may begin.
    Repair(Component, DeviceAction),
    /// A check is due once nothing runs there.
    CheckIdle(Component),
    /// The host's worker must restart the services of a rule.
    Restart {
        /// The host.
        host: HostId,
        /// The rule.
        rule: String,
    },
    /// A guard rail refused an action, or everything but the end of placement.
    Railed(Component, Refused),
    /// The component's own condition refused it.
    Refused(Component, ChangeRejected),
    /// Many hosts failed at once: it is held against none of them.
    Incident(Incident),
    /// An incident is over: its work is placed again in one batch.
    IncidentOver(Incident),
    /// The breaker of a pool closed.
    BreakerClosed(String),
    /// Results computed on a component may be wrong.
    Doubted(Component, String),
    /// The placement restriction of a component changed.
    Held(Component),
    /// Operators should look, for the given reason.
    Alert(Component, String),
}

/// The replicated health state. A clone is cheap, like that of the state that contains it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HealthState {
    /// Conditions of components that are or were not healthy.
    conditions: OrdMap<Component, Condition>,
    /// Actions wanted for components out of placement, once nothing runs there.
    wanted: OrdMap<Component, DeviceAction>,
    repairs: OrdMap<Component, Repairs>,
    records: OrdMap<HostId, Arc<HostRecord>>,
    flaps: OrdMap<HostId, Flaps>,
    /// Rules about racks, and the hosts that report them.
    of_racks: OrdSet<(String, HostId)>,
    applied: OrdMap<HostId, AppliedUpTo>,
    findings: OrderedList<Finding>,
    /// Unexplained ends, newest last.
    ends: OrderedList<FailedEnd>,
    /// GPUs on which programs succeeded.
    ran_well: OrdMap<Program, Successes>,
    xids: Arc<Xids>,
    rails: Arc<Rails>,
    incidents: Arc<Incidents>,
    /// Waiting times set by the rules in force.
    recovery_limits: RecoveryLimits,
}

impl HealthState {
    /// Phase of a component; healthy if nothing is known.
    #[must_use]
    pub fn phase(&self, component: &Component) -> Phase {
        self.conditions
            .get(component)
            .map_or(Phase::Healthy, |it| it.phase)
    }

    /// Condition of a component, if known.
    #[must_use]
    pub fn condition(&self, component: &Component) -> Option<&Condition> {
        self.conditions.get(component)
    }

    /// Conditions of all known components.
    pub fn conditions(&self) -> impl Iterator<Item = (&Component, &Condition)> {
        self.conditions.iter()
    }

    /// Adopts waiting times and guard rails of the rules.
    pub fn adopt_rules(&mut self, rules: &RuleSet) {
        self.recovery_limits = rules.recovery_limits;
        if self.rails.limits() != rules.rails {
            Arc::make_mut(&mut self.rails).set_limits(rules.rails);
        }
    }

    /// Whether there are any conditions.
    #[must_use]
    pub fn has_conditions(&self) -> bool {
        !self.conditions.is_empty()
    }

    /// Whether there are any host records.
    #[must_use]
    pub fn has_records(&self) -> bool {
        !self.records.is_empty()
    }

    /// Stored findings, oldest first: the input of dry runs.
    pub fn findings(&self) -> impl Iterator<Item = &Finding> {
        self.findings.iter()
    }

    /// The guard rails.
    #[must_use]
    pub fn rails(&self) -> &Rails {
        &self.rails
    }

    /// Resets a pool's breaker after an operator has looked; returns whether there was anything to reset.
    pub fn reset_breaker(&mut self, pool: &str) -> bool {
        let breaker = self.rails.breaker(pool);
        let is_tripped = breaker.is_some_and(|breaker| breaker.tripped_since().is_some());
        if is_tripped {
            Arc::make_mut(&mut self.rails).reset_breaker(pool);
        }
        is_tripped
    }

    /// The open incident that includes a host.
    #[must_use]
    pub fn incident(&self, host: HostId, now: TimeMs) -> Option<&Incident> {
        self.incidents.of(host, now)
    }

    /// Open incidents.
    pub fn incidents(&self) -> impl Iterator<Item = &Incident> {
        self.incidents.open()
    }

    /// Rules about racks, and the hosts that report them.
    pub fn of_racks(&self) -> impl Iterator<Item = (&str, HostId)> {
        self.of_racks
            .iter()
            .map(|(rule, host)| (rule.as_str(), *host))
    }

    /// Newest applied finding of a worker, to be acknowledged.
    #[must_use]
    pub fn acknowledged(&self, host: HostId, incarnation: u64) -> u64 {
        self.applied
            .get(&host)
            .map_or(0, |applied| applied.acknowledged(incarnation))
    }

    /// Marks all findings of a worker up to this number as applied.
    pub fn mark_applied(&mut self, host: HostId, incarnation: u64, sequence: u64) {
        let applied = self.applied.entry(host).or_default();
        applied.is_new(incarnation, sequence);
    }

    /// Removes everything about a host and its adapters; its GPUs are removed individually.
    pub fn forget(&mut self, component: &Component) {
        self.conditions.remove(component);
        self.wanted.remove(component);
        self.repairs.remove(component);
        match component {
            Component::Gpu(gpu) => Arc::make_mut(&mut self.xids).forget(*gpu),
            Component::Host(host) => {
                self.records.remove(host);
                self.flaps.remove(host);
                let all = self.of_racks.iter();
                self.of_racks = all.filter(|(_, of)| of != host).cloned().collect();
                self.applied.remove(host);
                for adapter in self.adapters_of(*host) {
                    self.conditions.remove(&adapter);
                    self.wanted.remove(&adapter);
                    self.repairs.remove(&adapter);
                }
            }
            Component::Nic { .. } | Component::Rack(_) => {}
        }
    }

    /// Adapters of a host with known conditions.
    #[must_use]
    pub fn adapters_of(&self, host: HostId) -> Vec<Component> {
        let first = Component::Nic {
            host,
            name: String::new(),
        };
        let known = self.conditions.range(first..).map(|(of, _)| of);
        known
            .take_while(|of| matches!(of, Component::Nic { host: at, .. } if *at == host))
            .cloned()
            .collect()
    }

    /// Restricts placement on a component whenever it accepts work, unless an admin overruled the rule.
    fn restrict(&mut self, component: &Component, held: Restriction) -> Option<Effect> {
        let known = self.conditions.entry(component.clone());
        let condition = known.or_insert_with(|| Condition::new(held.since));
        let is_new = condition.hold(held);
        is_new.then(|| Effect::Held(component.clone()))
    }

    /// Changes a component and returns the effects.
    fn change(&mut self, component: &Component, change: Change) -> Vec<Effect> {
        let at = change.at;
        let is_new = !self.conditions.contains_key(component);
        let condition = self
            .conditions
            .entry(component.clone())
            .or_insert_with(|| Condition::new(at));
        let from = condition.phase;
        match condition.change(change, self.recovery_limits) {
            Ok(_) if condition.phase != from => {
                let to = condition.phase;
                let is_kept = to.is_admins() && condition.pending.is_some();
                let is_over = match to {
                    Phase::Healthy | Phase::Probation => true,
                    Phase::Blocked | Phase::Draining | Phase::Repairing => false,
                    // A check may still be wanted, but nothing is repaired that is not out of service for it.
                    Phase::Suspect | Phase::Checking => self.wants_repair(component),
                    Phase::Rma | Phase::DrainingAdmin | Phase::BlockedAdmin => !is_kept,
                };
                if is_over {
                    self.wanted.remove(component);
                }
                vec![Effect::Changed {
                    component: component.clone(),
                    from,
                    to,
                }]
            }
            Ok(_) => Vec::new(),
            Err(refusal) => {
                if is_new {
                    self.conditions.remove(component);
                }
                vec![Effect::Refused(component.clone(), refusal)]
            }
        }
    }

    fn has(&self, component: &Component, event: Event) -> bool {
        super::component::next(self.phase(component), event).is_some()
    }
}

#[cfg(test)]
mod tests;
