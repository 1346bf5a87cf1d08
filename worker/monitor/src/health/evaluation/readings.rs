//! Evaluation of readings.

use muster_health::evaluate::{Reading, Transition};
use muster_model::health::{Component, Severity};

use crate::health::Sample;
use crate::health::evaluation::RuleEvaluator;

impl RuleEvaluator {
    /// Evaluates a reading by its rule.
    pub(super) fn sample(&mut self, sample: &Sample) {
        self.sample_with_evidence(sample, None);
    }

    /// Evaluates a reading by its rule; findings quote `line`, if given.
    pub(super) fn sample_with_evidence(&mut self, sample: &Sample, line: Option<&str>) {
        let now = self.now();
        let Some(rule) = self.rules.rule(&sample.rule) else {
            self.miss(&sample.rule);
            return;
        };
        let model = match &sample.component {
            Component::Gpu(gpu) => self.host.models.get(gpu),
            _ => None,
        };
        let metrics: Vec<(&str, i64)> = sample
            .metrics
            .iter()
            .map(|(name, value)| (&**name, *value))
            .collect();
        let reading = Reading {
            component: &sample.component,
            model: model.map_or("", String::as_str),
            metrics: &metrics,
        };
        let Some(transition) = self.readings.read(now, rule, &reading) else {
            return;
        };
        let evidence = match line {
            Some(line) => line.to_owned(),
            None => evidence(&transition, &metrics),
        };
        self.set_severity(&sample.rule, &sample.component, transition.severity);
        self.add_finding(
            &sample.rule,
            sample.component.clone(),
            transition.severity,
            &transition.metric,
            transition.measured,
            &evidence,
        );
    }
}

/// Description of the reading for operators.
fn evidence(transition: &Transition, metrics: &[(&str, i64)]) -> String {
    let read: Vec<String> = metrics
        .iter()
        .map(|(name, value)| format!("{name} is {value}"))
        .collect();
    let metrics = read.join(", ");
    if transition.severity == Severity::Healthy {
        metrics
    } else {
        format!("{metrics} ({})", transition.condition)
    }
}
