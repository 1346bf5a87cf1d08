//! Readings of a simulated host and its adapters, evaluated by the rules as in real workers: persistent
//! findings carry over to the next agent, and findings are reported until the state acknowledges them.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, LazyLock};

use muster_engine::state::HealthRules;
use muster_health::evaluate::{Reading, Readings};
use muster_health::rules::{Clears, RuleSet};
use muster_model::desired::CountedFindings;
use muster_model::health::{Component, Finding, Severity};
use muster_model::ids::{HostId, Revision};
use muster_model::time::TimeMs;

use crate::sim::faults::coverage::Situation;
use crate::sim::faults::host_fault::HostFault;
use crate::sim::host::{SimHost, lock};
use crate::sim::mutant::Mutant;

/// Rules of this build; those set by simulated admins differ only in their delays.
static RULES: LazyLock<Arc<RuleSet>> = LazyLock::new(|| HealthRules::default().set);

/// Duration of a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FaultDuration {
    /// Read once.
    Once,
    /// Read until repaired.
    On,
    /// Repaired.
    Over,
}

/// Faults behind the sensors of a host: by rule and component the last fault, and its duration.
#[derive(Debug, Default)]
pub(super) struct Sensors(BTreeMap<(&'static str, Component), (HostFault, FaultDuration)>);

/// Reading of a component for one rule.
struct Sample {
    rule: &'static str,
    component: Component,
    metrics: &'static [(&'static str, i64)],
}

impl Sensors {
    fn inject(&mut self, fault: HostFault, port: u32, persists: bool) {
        let key = (fault.readings().rule, fault.component(port));
        let lasts = if persists {
            FaultDuration::On
        } else {
            FaultDuration::Once
        };
        self.0.insert(key, (fault, lasts));
    }

    /// Repairs all faults; returns whether there was one.
    fn heal(&mut self) -> bool {
        let mut was_ill = false;
        for (_, lasts) in self.0.values_mut() {
            was_ill |= *lasts != FaultDuration::Over;
            *lasts = FaultDuration::Over;
        }
        was_ill
    }

    /// Handles the restart of services.
    fn restart(&mut self, rule: &str) {
        for ((of, _), (_, lasts)) in &mut self.0 {
            if *of == rule {
                *lasts = FaultDuration::Over;
            }
        }
    }

    fn read(&mut self) -> Vec<Sample> {
        let read = self.0.iter_mut().map(|((rule, component), known)| {
            let (fault, lasts) = *known;
            let readings = fault.readings();
            if lasts == FaultDuration::Once {
                known.1 = FaultDuration::Over;
            }
            Sample {
                rule,
                component: component.clone(),
                metrics: if lasts == FaultDuration::Over {
                    readings.healthy
                } else {
                    readings.faulty
                },
            }
        });
        // One-time events have no reading in between.
        read.filter(|sample| !sample.metrics.is_empty()).collect()
    }
}

/// Persistent notes of an agent for its successor.
#[derive(Debug, Default)]
pub(super) struct Notes {
    /// Unhealthy components by rule.
    standing: BTreeMap<(String, Component), Severity>,
    /// Findings not acknowledged by the state, by the agent's numbers.
    waiting: VecDeque<(u64, Finding)>,
    /// Boot in which they were made.
    boot: u64,
    /// Recovery of the cluster after which all findings were last reported again.
    recovered_at: Revision,
}

/// An agent's monitoring of its host.
pub(super) struct HostMonitor {
    host: SimHost,
    readings: Readings,
    /// Number of findings passed to the agent.
    last_sequence: u64,
    /// Findings that the cluster counts against the host, as last compared.
    counted: CountedFindings,
}

impl HostMonitor {
    /// Restores the notes of the last agent.
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
                readings.resume(now, rule, component, *severity);
            }
        }
        drop(disk);
        Self {
            host,
            readings,
            last_sequence: 0,
            counted: CountedFindings::default(),
        }
    }

    /// Unacknowledged findings of earlier agents, to be reported again at once.
    pub(super) fn unacknowledged(&self) -> Vec<Finding> {
        let waiting = std::mem::take(&mut lock(&self.host.disk).notes.waiting);
        let waiting: Vec<Finding> = waiting.into_iter().map(|(_, finding)| finding).collect();
        for _ in &waiting {
            self.host.reached(Situation::FindingReportedAgain);
        }
        waiting
    }

    /// Reads all sensors; returns new findings.
    pub(super) fn look(&mut self) -> Vec<Finding> {
        let now = time(&self.host);
        let mut found = Vec::new();
        for (id, component) in self.readings.quiet(now) {
            self.stands(id.as_str(), &component, Severity::Healthy);
            found.push(finding(id.as_str(), component, Severity::Healthy, "", 0));
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
            self.stands(sample.rule, &sample.component, transition.severity);
            found.push(finding(
                sample.rule,
                sample.component,
                transition.severity,
                transition.metric.as_str(),
                transition.measured,
            ));
        }
        found
    }

    fn stands(&self, id: &str, component: &Component, severity: Severity) {
        let key = (id.to_owned(), component.clone());
        let standing = &mut lock(&self.host.disk).notes.standing;
        if severity == Severity::Healthy {
            standing.remove(&key);
        } else {
            standing.insert(key, severity);
        }
    }

    /// Records findings passed to the agent, which numbers them. Findings of GPUs are read again by the
    /// next agent.
    pub(super) fn report(&mut self, found: &[Finding]) {
        let waiting = &mut lock(&self.host.disk).notes.waiting;
        for finding in found {
            self.last_sequence += 1;
            if !matches!(finding.component, Component::Gpu(_)) {
                waiting.push_back((self.last_sequence, finding.clone()));
            }
        }
    }

    /// Records that the state acknowledged all findings up to this number.
    pub(super) fn acknowledge(&self, number: u64) {
        let waiting = &mut lock(&self.host.disk).notes.waiting;
        while waiting
            .front()
            .is_some_and(|(sequence, _)| *sequence <= number)
        {
            waiting.pop_front();
        }
    }

    /// Compares its findings with those that the cluster counts against the host, and reports again about
    /// those that differ, as real workers do.
    pub(super) fn compare(&mut self, counted: &CountedFindings) {
        let is_forgetful = self.host.settings.mutant == Some(Mutant::ForgetfulNotes);
        if is_forgetful || self.counted == *counted {
            return;
        }
        self.counted.clone_from(counted);
        let now = time(&self.host);
        let mut disk = lock(&self.host.disk);
        let notes = &mut disk.notes;
        let mut doubted = Vec::new();
        if notes.recovered_at != counted.recovered_at {
            notes.recovered_at = counted.recovered_at;
            doubted.extend(notes.standing.keys().cloned());
        }
        for key in &counted.findings {
            let component = match &key.component {
                Component::Host(_) => Component::Host(HostId(0)),
                Component::Nic { name, .. } => Component::Nic {
                    host: HostId(0),
                    name: name.clone(),
                },
                // Reported when they change, not by a reading.
                Component::Gpu(_) | Component::Rack(_) => continue,
            };
            let mut waiting = notes.waiting.iter();
            let is_waiting =
                waiting.any(|(_, it)| it.rule == key.rule && it.component == component);
            let own = (key.rule.clone(), component);
            if !is_waiting && !notes.standing.contains_key(&own) {
                doubted.push(own);
            }
        }
        drop(disk);
        for (id, component) in doubted {
            if let Some(rule) = RULES.rule(&id) {
                self.host.reached(Situation::FindingDoubted);
                self.readings.doubt(now, rule, &component);
            }
        }
    }

    /// Records that services were restarted.
    pub(super) fn restarted(&self, rule: &str) {
        lock(&self.host.sensors).restart(rule);
    }

    /// Whether a rule whose findings end with a reading finds a component faulty; for a host also one of
    /// its parts.
    pub(super) fn is_faulty(&self, component: &Component) -> bool {
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
    /// Injects a fault into the host, or a port of one of its adapters: for one reading, or until repaired.
    pub fn inject_fault(&self, fault: HostFault, port: u32, persists: bool) {
        lock(&self.sensors).inject(fault, port, persists);
    }

    /// Repairs all sensors and accounts. Returns whether anything was faulty.
    pub fn heal(&self) -> bool {
        let lacked_accounts = std::mem::take(&mut *lock(&self.lacks_accounts));
        lock(&self.sensors).heal() || lacked_accounts
    }

    /// Whether all findings of its agent are reported and acknowledged.
    #[must_use]
    pub fn is_acknowledged(&self) -> bool {
        lock(&self.disk).notes.waiting.is_empty()
    }

    /// Whether hosts evaluate this rule themselves.
    #[must_use]
    pub fn can_find(rule: &str) -> bool {
        HostFault::ALL.iter().any(|it| it.readings().rule == rule)
    }

    /// Whether a component is faulty by a rule, as far as its agents know.
    #[must_use]
    pub fn is_faulty_by(&self, rule: &str, component: &Component) -> bool {
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

/// Monotonic time of the host, on which windows are based.
fn time(host: &SimHost) -> TimeMs {
    TimeMs(host.now().0)
}

fn finding(
    rule: &str,
    component: Component,
    severity: Severity,
    metric: &str,
    measured: i64,
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
