//! What a simulated host reads of itself and of its adapters, held against the rules as real workers do it: what stands is known
//! to the next agent, and what was found is told until the state has heard it.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, LazyLock};

use muster_engine::state::HealthRules;
use muster_health::evaluate::{Reading, Readings};
use muster_health::rules::{Clears, RuleSet};
use muster_model::health::{Component, Finding, Severity};
use muster_model::time::TimeMs;

use crate::sim::ailments::Ailment;
use crate::sim::coverage::Situation;
use crate::sim::host::{SimHost, lock};
use crate::sim::mutant::Mutant;

/// The rules of this build: those that simulated admins set differ from them in how long components wait alone.
static RULES: LazyLock<Arc<RuleSet>> = LazyLock::new(|| HealthRules::default().set);

/// How long something is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lasts {
    /// It is read once.
    Once,
    /// It is read until it is healed.
    On,
    /// It is well again.
    Over,
}

/// What the sensors of a host have to tell: of each rule and component the last that was wrong, and whether it is.
#[derive(Debug, Default)]
pub(super) struct Sensors(BTreeMap<(&'static str, Component), (Ailment, Lasts)>);

/// What is read of a component for one rule.
struct Sample {
    rule: &'static str,
    component: Component,
    metrics: &'static [(&'static str, i64)],
}

impl Sensors {
    fn fall_ill(&mut self, ailment: Ailment, port: u32, lasts: bool) {
        let key = (ailment.signs().rule, ailment.component(port));
        let lasts = if lasts { Lasts::On } else { Lasts::Once };
        self.0.insert(key, (ailment, lasts));
    }

    /// Whether anything was wrong.
    fn heal(&mut self) -> bool {
        let mut was_ill = false;
        for (_, lasts) in self.0.values_mut() {
            was_ill |= *lasts != Lasts::Over;
            *lasts = Lasts::Over;
        }
        was_ill
    }

    /// Services were started again.
    fn restart(&mut self, rule: &str) {
        for ((of, _), (_, lasts)) in &mut self.0 {
            if *of == rule {
                *lasts = Lasts::Over;
            }
        }
    }

    fn read(&mut self) -> Vec<Sample> {
        let read = self.0.iter_mut().map(|((rule, component), known)| {
            let (ailment, lasts) = *known;
            let signs = ailment.signs();
            if lasts == Lasts::Once {
                known.1 = Lasts::Over;
            }
            Sample {
                rule,
                component: component.clone(),
                metrics: if lasts == Lasts::Over {
                    signs.well
                } else {
                    signs.ill
                },
            }
        });
        // Of what only happens there is nothing to read when it does not.
        read.filter(|sample| !sample.metrics.is_empty()).collect()
    }
}

/// What an agent leaves on its disk for the next one.
#[derive(Debug, Default)]
pub(super) struct Notes {
    /// What is not well, by which rule.
    standing: BTreeMap<(String, Component), Severity>,
    /// What the state has not acknowledged, by the agent's numbers.
    waiting: VecDeque<(u64, Finding)>,
    /// The boot in which they were made.
    boot: u64,
}

/// An agent's watch over its host.
pub(super) struct Watch {
    host: SimHost,
    readings: Readings,
    /// Findings that the agent was told of.
    told: u64,
}

impl Watch {
    /// Goes on with what the last agent left.
    pub(super) fn recover(host: SimHost) -> Self {
        let now = time(&host);
        let mut readings = Readings::default();
        let mut disk = lock(&host.disk);
        if host.settings.mutant == Some(Mutant::ForgetfulNotes) {
            disk.notes = Notes::default();
        }
        let is_of_another_boot = disk.notes.boot != disk.boots;
        disk.notes.boot = disk.boots;
        for ((id, component), severity) in &disk.notes.standing {
            let Some(rule) = RULES.rule(id) else { continue };
            if is_of_another_boot {
                readings.doubt(now, rule, component);
            } else {
                readings.stand(now, rule, component, *severity);
            }
        }
        drop(disk);
        Self {
            host,
            readings,
            told: 0,
        }
    }

    /// What earlier agents found and nobody has heard: to be told again at once.
    pub(super) fn unheard(&self) -> Vec<Finding> {
        let waiting = std::mem::take(&mut lock(&self.host.disk).notes.waiting);
        let waiting: Vec<Finding> = waiting.into_iter().map(|(_, finding)| finding).collect();
        for _ in &waiting {
            self.host.reached(Situation::FindingRetold);
        }
        waiting
    }

    /// Reads all sensors; returns what was found.
    pub(super) fn look(&mut self) -> Vec<Finding> {
        let now = time(&self.host);
        let mut found = Vec::new();
        for (id, component) in self.readings.quiet(now) {
            self.stands((id.as_str(), &component), Severity::Healthy);
            let over = (id.as_str(), component);
            found.push(finding(over, Severity::Healthy, ("", 0)));
        }
        let samples = lock(&self.host.sensors).read();
        for sample in samples {
            let Some(rule) = RULES.rule(sample.rule) else {
                continue;
            };
            let reading = Reading {
                component: &sample.component,
                model: "",
                metrics: sample.metrics,
            };
            let Some(transition) = self.readings.read(now, rule, &reading) else {
                continue;
            };
            self.stands((sample.rule, &sample.component), transition.severity);
            let measured = (transition.metric.as_str(), transition.measured);
            let of = (sample.rule, sample.component);
            found.push(finding(of, transition.severity, measured));
        }
        found
    }

    fn stands(&self, (id, component): (&str, &Component), severity: Severity) {
        let key = (id.to_owned(), component.clone());
        let standing = &mut lock(&self.host.disk).notes.standing;
        if severity == Severity::Healthy {
            standing.remove(&key);
        } else {
            standing.insert(key, severity);
        }
    }

    /// The agent is told of these, and numbers them. What a GPU shows is looked at anew by the next agent.
    pub(super) fn told(&mut self, found: &[Finding]) {
        let waiting = &mut lock(&self.host.disk).notes.waiting;
        for finding in found {
            self.told += 1;
            if !matches!(finding.component, Component::Gpu(_)) {
                waiting.push_back((self.told, finding.clone()));
            }
        }
    }

    /// The state has heard all up to this number.
    pub(super) fn heard(&self, number: u64) {
        let waiting = &mut lock(&self.host.disk).notes.waiting;
        while waiting.front().is_some_and(|(told, _)| *told <= number) {
            waiting.pop_front();
        }
    }

    /// Services were started again.
    pub(super) fn restarted(&self, rule: &str) {
        lock(&self.host.sensors).restart(rule);
    }

    /// Whether a rule that a reading ends finds a component ill; of a host, or of a part of it.
    pub(super) fn is_ill(&self, component: &Component) -> bool {
        let is_its = |of: &Component| match (component, of) {
            (Component::Host(_), _) => true,
            (Component::Nic { name, .. }, Component::Nic { name: own, .. }) => name == own,
            _ => false,
        };
        let lasts = |id: &str| {
            let rule = RULES.rule(id);
            rule.is_some_and(|rule| rule.clears == Clears::Reading)
        };
        let disk = lock(&self.host.disk);
        let mut standing = disk.notes.standing.iter();
        standing.any(|((id, of), severity)| *severity == Severity::Fatal && is_its(of) && lasts(id))
    }
}

impl SimHost {
    /// Something is wrong with it, or with a port of an adapter of it: for one reading, or until it is healed.
    pub fn fall_ill(&self, ailment: Ailment, port: u32, lasts: bool) {
        lock(&self.sensors).fall_ill(ailment, port, lasts);
    }

    /// All of its sensors read what they should, and all accounts are there. Whether anything was otherwise.
    pub fn heal(&self) -> bool {
        let lacked_accounts = std::mem::take(&mut *lock(&self.lacks_accounts));
        lock(&self.sensors).heal() || lacked_accounts
    }

    /// Whether its agent has told all that it found, and was heard.
    #[must_use]
    pub fn is_heard(&self) -> bool {
        lock(&self.disk).notes.waiting.is_empty()
    }

    /// Whether hosts find something by a rule themselves.
    #[must_use]
    pub fn can_find(rule: &str) -> bool {
        Ailment::ALL.iter().any(|it| it.signs().rule == rule)
    }

    /// Whether it is not well by a rule, as far as its agents know.
    #[must_use]
    pub fn is_ill_by(&self, rule: &str, component: &Component) -> bool {
        let is_its = |of: &Component| match (component, of) {
            (Component::Nic { name, .. }, Component::Nic { name: own, .. }) => name == own,
            (Component::Nic { .. }, _) => false,
            _ => true,
        };
        let disk = lock(&self.disk);
        let mut standing = disk.notes.standing.keys();
        standing.any(|(id, of)| id == rule && is_its(of))
    }
}

/// The host's monotonic time, by which windows run.
fn time(host: &SimHost) -> TimeMs {
    TimeMs(host.now().0)
}

fn finding(
    (rule, component): (&str, Component),
    severity: Severity,
    (metric, measured): (&str, i64),
) -> Finding {
    Finding {
        sequence: 0,
        rule: rule.to_owned(),
        component,
        severity,
        metric: metric.to_owned(),
        measured,
        code: None,
        cluster: None,
        evidence: format!("{metric} is {measured}"),
        at: TimeMs(0),
    }
}
