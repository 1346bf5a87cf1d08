//! Everything that the cluster remembers of health, and the only ways in which it changes.
//!
//! One value of the replicated state. `apply` hands findings, ends of attempts, words of admins and the time in, with what it
//! knows of the place, and gets back what follows; it decides nothing of health itself.

mod admin;
mod clocks;
mod ended;
mod flapping;
mod hear;
mod kept;
mod parts;
mod past;
mod propose;
mod racks;
mod restarts;
mod work;

use std::sync::Arc;

use imbl::{OrdMap, OrdSet};
use muster_model::health::{Component, DeviceAction, Finding, Phase};
use muster_model::ids::{HostId, JobId};
use muster_model::time::TimeMs;

use self::kept::Kept;
use crate::component::{Change, Condition, Event, Held, Patience, Refusal, Repairs};
use crate::evaluate::Xids;
use crate::flaps::Flaps;
use crate::guard_rails::{Group, Incident, Incidents, PoolView, Rails, Refused};
use crate::lemons::HostRecord;
use crate::outbox::HeardUpTo;
use crate::rules::RuleSet;

pub use self::ended::Excludes;
pub use self::parts::Part;
pub use self::past::{BadEnd, ENDS_KEPT_MAX, PROGRAMS_KEPT_MAX, Program, RanWell};
pub use self::racks::Rack;
pub use self::work::{Due, WorkRefused};

/// Findings that are kept for dry runs and for people, newest last.
pub const FINDINGS_KEPT_MAX: usize = 4_096;
/// Findings that are kept while an incident lasts, at whose end they are judged: of 10,000 hosts six each.
pub const FINDINGS_IN_INCIDENTS_MAX: usize = 65_536;

/// Where a component is, as the rest of the state has it.
#[derive(Clone, Copy, Debug)]
pub struct Place<'a> {
    /// Its host.
    pub host: HostId,
    /// GPUs of the host.
    pub gpus: u32,
    /// The pool of the host.
    pub pool: &'a str,
    /// How the pool is.
    pub view: PoolView,
    /// What the host has in common with others, and with how many.
    pub groups: &'a [(Group, u32)],
    /// The job whose task has the component.
    pub job: Option<JobId>,
    /// Whose job.
    pub user: Option<&'a str>,
    /// Whether the scheduler is ending that task.
    pub is_ours: bool,
    /// Whether nothing runs on the component.
    pub is_idle: bool,
    /// Whether nothing runs on the host.
    pub is_host_idle: bool,
}

/// What follows from a change, for `apply` to do and to tell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// A component stands elsewhere.
    Changed {
        /// Which.
        component: Component,
        /// From where.
        from: Phase,
        /// To where.
        to: Phase,
    },
    /// What runs there is ended and begun again elsewhere, at nobody's cost.
    Kill(Component),
    /// A repair may begin.
    Repair(Component, DeviceAction),
    /// A check is due once nothing runs there.
    CheckIdle(Component),
    /// The host's worker is to start the services again that a rule is about.
    Restart {
        /// Which host.
        host: HostId,
        /// The rule.
        rule: String,
    },
    /// A rail refused something, or all but the end of placement.
    Railed(Component, Refused),
    /// The component's own state refused it.
    Refused(Component, Refusal),
    /// Many hosts at once: nothing is held against them.
    Incident(Incident),
    /// An incident is over: its work is placed again in one batch.
    IncidentOver(Incident),
    /// A breaker closed.
    BreakerClosed(String),
    /// What a component computed may be wrong.
    Doubted(Component, String),
    /// Something else is kept off a component than before.
    Held(Component),
    /// People should look, for the reason that is given.
    Alert(Component, String),
}

/// Everything that is remembered of health. A clone is cheap, as that of the state that it is part of.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Book {
    /// Components that are or were not healthy.
    conditions: OrdMap<Component, Condition>,
    /// What is to be done to components that are out of placement, once nothing runs there.
    wanted: OrdMap<Component, DeviceAction>,
    repairs: OrdMap<Component, Repairs>,
    records: OrdMap<HostId, Arc<HostRecord>>,
    flaps: OrdMap<HostId, Flaps>,
    /// Rules about racks, and the hosts of which they hold.
    of_racks: OrdSet<(String, HostId)>,
    heard: OrdMap<HostId, HeardUpTo>,
    findings: Kept<Finding>,
    /// Ends that nobody could explain, newest last.
    ends: Kept<BadEnd>,
    /// Where programs ran well.
    ran_well: OrdMap<Program, RanWell>,
    xids: Arc<Xids>,
    rails: Arc<Rails>,
    incidents: Arc<Incidents>,
    /// By the rules in force.
    patience: Patience,
}

impl Book {
    /// Where a component stands; healthy, if nothing is known.
    #[must_use]
    pub fn phase(&self, component: &Component) -> Phase {
        self.conditions
            .get(component)
            .map_or(Phase::Healthy, |it| it.phase)
    }

    /// What is known of a component.
    #[must_use]
    pub fn condition(&self, component: &Component) -> Option<&Condition> {
        self.conditions.get(component)
    }

    /// All that is known of components.
    pub fn conditions(&self) -> impl Iterator<Item = (&Component, &Condition)> {
        self.conditions.iter()
    }

    /// How long what failed must wait and prove itself from now on, and how much harm rules may do.
    pub fn obey(&mut self, rules: &RuleSet) {
        self.patience = rules.patience;
        if self.rails.limits() != rules.rails {
            Arc::make_mut(&mut self.rails).set_limits(rules.rails);
        }
    }

    /// Whether anything is known of any component.
    #[must_use]
    pub fn has_conditions(&self) -> bool {
        !self.conditions.is_empty()
    }

    /// Whether anything is known of what hosts went through.
    #[must_use]
    pub fn has_records(&self) -> bool {
        !self.records.is_empty()
    }

    /// The findings that are kept, oldest first: what a dry run is made on.
    pub fn findings(&self) -> impl Iterator<Item = &Finding> {
        self.findings.iter()
    }

    /// The rails.
    #[must_use]
    pub fn rails(&self) -> &Rails {
        &self.rails
    }

    /// A person has looked at a pool's breaker. Whether there was anything to reset.
    pub fn reset_breaker(&mut self, pool: &str) -> bool {
        let breaker = self.rails.breaker(pool);
        let is_tripped = breaker.is_some_and(|breaker| breaker.tripped_since().is_some());
        if is_tripped {
            Arc::make_mut(&mut self.rails).reset_breaker(pool);
        }
        is_tripped
    }

    /// The incident that a host is part of.
    #[must_use]
    pub fn incident(&self, host: HostId, now: TimeMs) -> Option<&Incident> {
        self.incidents.of(host, now)
    }

    /// The incidents that are not over.
    pub fn incidents(&self) -> impl Iterator<Item = &Incident> {
        self.incidents.open()
    }

    /// Rules about racks, and hosts of which they hold.
    pub fn of_racks(&self) -> impl Iterator<Item = (&str, HostId)> {
        self.of_racks
            .iter()
            .map(|(rule, host)| (rule.as_str(), *host))
    }

    /// Up to where a worker's findings were heard, to acknowledge.
    #[must_use]
    pub fn acknowledged(&self, host: HostId, incarnation: u64) -> u64 {
        self.heard
            .get(&host)
            .map_or(0, |heard| heard.acknowledged(incarnation))
    }

    /// All of a worker's findings up to there were heard.
    pub fn heard_up_to(&mut self, host: HostId, incarnation: u64, sequence: u64) {
        let heard = self.heard.entry(host).or_default();
        heard.is_new(incarnation, sequence);
    }

    /// Forgets a host with all that is known of it and its adapters; its GPUs are forgotten one by one.
    pub fn forget(&mut self, component: &Component) {
        self.conditions.remove(component);
        self.wanted.remove(component);
        self.repairs.remove(component);
        match component {
            Component::Gpu(gpu) => Arc::make_mut(&mut self.xids).forget(*gpu),
            Component::Host(host) => {
                self.records.remove(host);
                self.flaps.remove(host);
                self.of_racks = { self.of_racks.iter() }
                    .filter(|(_, of)| of != host)
                    .cloned()
                    .collect();
                self.heard.remove(host);
                for adapter in self.adapters_of(*host) {
                    self.conditions.remove(&adapter);
                    self.wanted.remove(&adapter);
                    self.repairs.remove(&adapter);
                }
            }
            Component::Nic { .. } | Component::Rack(_) => {}
        }
    }

    /// Adapters of a host of which something is known.
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

    /// Keeps something off a component whenever it accepts work, if no admin overruled the rule.
    fn keep_off(&mut self, component: &Component, held: Held) -> Option<Effect> {
        let known = self.conditions.entry(component.clone());
        let condition = known.or_insert_with(|| Condition::new(held.since));
        let is_new = condition.hold(held);
        is_new.then(|| Effect::Held(component.clone()))
    }

    /// Changes a component and says what became of it.
    fn change(&mut self, component: &Component, change: Change) -> Vec<Effect> {
        let at = change.at;
        let is_new = !self.conditions.contains_key(component);
        let condition = self
            .conditions
            .entry(component.clone())
            .or_insert_with(|| Condition::new(at));
        let from = condition.phase;
        match condition.change(change, self.patience) {
            Ok(_) if condition.phase != from => {
                let to = condition.phase;
                let is_kept = to.is_admins() && condition.pending.is_some();
                let is_over = match to {
                    Phase::Healthy | Phase::Probation => true,
                    Phase::Blocked | Phase::Draining | Phase::Repairing => false,
                    // A check may still be wanted, but nothing is repaired that is not out of use for it.
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
