//! Health state of a host or GPU in lists.

use muster_proto::v1;
use serde::Serialize;

use crate::output::{Cell, Tone};
use crate::view::health::KeptOffView;

/// State of a host or GPU, with its rule, and its holds.
#[derive(Clone, Debug, Serialize)]
pub(super) struct HealthStandingView {
    health_phase: String,
    health_rule: String,
    kept_off: Vec<KeptOffView>,
}

impl HealthStandingView {
    pub(super) fn new(phase: String, rule: String, kept_off: Vec<v1::KeptOff>) -> Self {
        Self {
            health_phase: phase,
            health_rule: rule,
            kept_off: kept_off.into_iter().map(Into::into).collect(),
        }
    }

    /// `probation`, or `healthy, no gangs`.
    pub(super) fn cell(&self) -> Cell {
        Cell::toned(self.text(), self.tone())
    }

    fn text(&self) -> String {
        let most = if self.keeps_off("everything") {
            ", nothing new"
        } else if self.keeps_off("gangs") {
            ", no gangs"
        } else {
            ""
        };
        format!("{}{most}", self.health_phase)
    }

    fn keeps_off(&self, what: &str) -> bool {
        self.kept_off.iter().any(|kept| kept.what == what)
    }

    fn tone(&self) -> Tone {
        match self.health_phase.as_str() {
            "healthy" if self.kept_off.is_empty() => Tone::Good,
            "" | "healthy" | "suspect" | "probation" | "checking" | "repairing" => Tone::Waiting,
            _ => Tone::Bad,
        }
    }

    /// Reasons of its state, unless a block gives them: a component that still accepts work has no block.
    pub(super) fn reasons(&self) -> Vec<String> {
        let takes_work = matches!(self.health_phase.as_str(), "suspect" | "probation");
        let stands = (takes_work && !self.health_rule.is_empty())
            .then(|| format!("{} by rule {}", self.health_phase, self.health_rule));
        let gangs = self.kept_off.iter().filter(|kept| kept.what == "gangs");
        let gangs = gangs.map(|kept| format!("no gangs by rule {}: {}", kept.rule, kept.evidence));
        stands.into_iter().chain(gangs).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn standing(phase: &str, rule: &str, what: &[&str]) -> HealthStandingView {
        let kept_off = what.iter().map(|what| v1::KeptOff {
            rule: "flapping".to_owned(),
            what: (*what).to_owned(),
            evidence: "it fell silent 3 times".to_owned(),
            since_ms: 0,
        });
        HealthStandingView::new(phase.to_owned(), rule.to_owned(), kept_off.collect())
    }

    #[test]
    fn what_takes_work_says_why_it_is_watched_and_what_it_does_not_take() {
        let watched = standing("suspect", "history", &[]);
        assert_eq!(watched.reasons(), ["suspect by rule history"]);
        let flapping = standing("healthy", "", &["gangs"]);
        assert_eq!(flapping.text(), "healthy, no gangs");
        assert_eq!(
            flapping.reasons(),
            ["no gangs by rule flapping: it fell silent 3 times"]
        );
        // The rest is in its block.
        assert!(standing("checking", "history", &[]).reasons().is_empty());
        assert!(standing("healthy", "", &[]).reasons().is_empty());
    }
}
