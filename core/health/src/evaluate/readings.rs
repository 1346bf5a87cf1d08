//! Thresholds of single components, with confirmation and recovery.

use std::collections::BTreeMap;

use muster_model::health::{Component, Severity};
use muster_model::time::{HOUR_MS, TimeMs};

use crate::evaluate::window::Window;
use crate::rules::{Condition, Hold, Rule};

/// Pairs of rule and component that are remembered: 128 GPUs and 16 adapters with all shipped rules fit.
pub(super) const TRACKS_MAX: usize = 16_384;
/// Quiet time after which an event-based rule counts as over, if the rule sets no longer span.
const QUIET_MS: u64 = HOUR_MS;

/// Readings of a component for one rule.
#[derive(Clone, Copy, Debug)]
pub struct Reading<'a> {
    /// The component.
    pub component: &'a Component,
    /// The GPU's model; empty for other components.
    pub model: &'a str,
    /// Metrics and their values. Missing ones were not read, and change nothing.
    pub metrics: &'a [(&'a str, i64)],
}

/// A component reached another severity of a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transition {
    /// Current severity.
    pub severity: Severity,
    /// The metric that decided; empty if it is over.
    pub metric: String,
    /// Value of the metric.
    pub measured: i64,
    /// The condition that decided, as written; empty if it is over.
    pub condition: String,
}

/// State of one rule on one component.
#[derive(Debug)]
struct Track {
    /// The rule that the windows belong to.
    rule: Rule,
    healthy: Vec<Window>,
    degraded: Vec<Window>,
    fatal: Vec<Window>,
    severity: Severity,
    /// Whether the cluster may have another severity: the current one is reported in any case.
    is_in_doubt: bool,
    /// Time at which a condition of either side was last met.
    met_at: TimeMs,
}

/// All rules on all components of a host. Kept in the worker's memory: after a restart, windows start empty.
#[derive(Debug, Default)]
pub struct Readings {
    tracks: BTreeMap<(String, Component), Track>,
}

impl Readings {
    /// Applies a reading; returns the transition if the component reached another severity.
    pub fn read(&mut self, now: TimeMs, rule: &Rule, reading: &Reading<'_>) -> Option<Transition> {
        let key = (rule.id.clone(), reading.component.clone());
        if self.tracks.len() >= TRACKS_MAX && !self.tracks.contains_key(&key) {
            self.make_room();
        }
        let track = self.tracks.entry(key).or_insert_with(|| Track::new(rule));
        if track.rule != *rule {
            // Another set of rules: confirmed severities stay, the windows restart.
            *track = Track {
                severity: track.severity,
                is_in_doubt: track.is_in_doubt,
                ..Track::new(rule)
            };
        }
        track.read(now, reading)
    }

    /// Resumes from the findings of an earlier agent: the component has this severity of a rule, which is not
    /// reported again. Its recovery starts now.
    pub fn resume(&mut self, now: TimeMs, rule: &Rule, component: &Component, severity: Severity) {
        let mut track = Track::new(rule);
        track.severity = severity;
        track.met_at = now;
        let key = (rule.id.clone(), component.clone());
        self.tracks.insert(key, track);
    }

    /// Marks the severity that the cluster counts as unknown, for instance after a boot or a recovery from a
    /// backup: the fault is reported again if it still holds, or as over if it does not.
    pub fn doubt(&mut self, now: TimeMs, rule: &Rule, component: &Component) {
        let key = (rule.id.clone(), component.clone());
        let track = self.tracks.entry(key).or_insert_with(|| Track::new(rule));
        track.severity = Severity::Healthy;
        track.is_in_doubt = true;
        track.met_at = now;
    }

    /// Faults of event-based rules that are over because nothing happened for long enough.
    pub fn quiet(&mut self, now: TimeMs) -> Vec<(String, Component)> {
        let mut over = Vec::new();
        for ((id, component), track) in &mut self.tracks {
            if track.is_quiet(now) {
                track.settle(Severity::Healthy);
                over.push((id.clone(), component.clone()));
            }
        }
        over
    }

    /// Resets a component after its repair.
    pub fn forget(&mut self, component: &Component) {
        self.tracks.retain(|(_, of), _| of != component);
    }

    /// Drops a track without a severity; if all have one, the one that was met longest ago.
    fn make_room(&mut self) {
        let least = self
            .tracks
            .iter()
            .min_by_key(|(_, it)| (it.severity, it.is_in_doubt, it.met_at));
        if let Some((key, _)) = least {
            let key = key.clone();
            self.tracks.remove(&key);
        }
    }
}

impl Track {
    fn new(rule: &Rule) -> Self {
        let windows = |conditions: &[Condition]| -> Vec<Window> {
            conditions.iter().map(|it| Window::new(it.hold)).collect()
        };
        Self {
            healthy: windows(&rule.healthy),
            degraded: windows(&rule.degraded.when),
            fatal: windows(&rule.fatal.when),
            rule: rule.clone(),
            severity: Severity::Healthy,
            is_in_doubt: false,
            met_at: TimeMs(0),
        }
    }

    /// Whether the cluster may still treat it as not healthy.
    fn may_count(&self) -> bool {
        self.severity != Severity::Healthy || self.is_in_doubt
    }

    const fn settle(&mut self, severity: Severity) {
        self.severity = severity;
        self.is_in_doubt = false;
    }

    fn read(&mut self, now: TimeMs, reading: &Reading<'_>) -> Option<Transition> {
        let Rule {
            healthy,
            degraded,
            fatal,
            ..
        } = &self.rule;
        let well = observe(&mut self.healthy, healthy, now, reading);
        let bad = observe(&mut self.degraded, &degraded.when, now, reading);
        let worst = observe(&mut self.fatal, &fatal.when, now, reading);
        if bad.any_met || worst.any_met {
            self.met_at = now;
        }
        let found = match (worst.holding, bad.holding) {
            (Some(at), _) => Some((Severity::Fatal, &fatal.when[at])),
            (None, Some(at)) => Some((Severity::Degraded, &degraded.when[at])),
            (None, None) => None,
        };
        let transition = match found {
            Some((severity, condition)) if severity > self.severity => Transition {
                severity,
                metric: condition.metric.clone(),
                measured: value(reading, &condition.metric).unwrap_or(condition.value),
                condition: condition.to_string(),
            },
            Some(_) => return None,
            None if !self.may_count() || !well.all_hold => return None,
            None if healthy.is_empty() && happens(&self.rule) => return None,
            None => Transition {
                severity: Severity::Healthy,
                metric: String::new(),
                measured: 0,
                condition: String::new(),
            },
        };
        self.settle(transition.severity);
        Some(transition)
    }

    fn is_quiet(&self, now: TimeMs) -> bool {
        let conditions = self.rule.degraded.when.iter().chain(&self.rule.fatal.when);
        let spans_ms = conditions.filter_map(|it| match it.hold {
            Hold::Within { span_ms, .. } => Some(span_ms),
            _ => None,
        });
        let span_ms = spans_ms.max().unwrap_or(QUIET_MS);
        self.may_count()
            && self.rule.healthy.is_empty()
            && happens(&self.rule)
            && now.since(self.met_at) > span_ms
    }
}

/// Whether a rule is based on events rather than on a level that is read repeatedly.
fn happens(rule: &Rule) -> bool {
    let conditions = rule.degraded.when.iter().chain(&rule.fatal.when);
    let is_event =
        |it: &Condition| matches!(it.hold, Hold::Within { .. }) || it.metric.ends_with("_increase");
    rule.source == "kernel_log" || conditions.clone().any(is_event)
}

/// Effect of a reading on one side's windows.
struct Observed {
    /// The first condition that holds.
    holding: Option<usize>,
    /// Whether all hold; true if there are none.
    all_hold: bool,
    /// Whether this reading met one.
    any_met: bool,
}

fn observe(
    windows: &mut [Window],
    conditions: &[Condition],
    now: TimeMs,
    reading: &Reading<'_>,
) -> Observed {
    let mut observed = Observed {
        holding: None,
        all_hold: true,
        any_met: false,
    };
    for (at, (window, condition)) in windows.iter_mut().zip(conditions).enumerate() {
        let holds = match value(reading, &condition.metric) {
            Some(value) if condition.is_about(reading.model) => {
                let is_met = condition.operator.holds(value, condition.value);
                observed.any_met |= is_met;
                window.observe(now, is_met)
            }
            _ => window.holds(now),
        };
        observed.all_hold &= holds;
        if holds && observed.holding.is_none() {
            observed.holding = Some(at);
        }
    }
    observed
}

fn value(reading: &Reading<'_>, metric: &str) -> Option<i64> {
    let found = reading.metrics.iter().find(|(name, _)| *name == metric);
    found.map(|(_, value)| *value)
}
