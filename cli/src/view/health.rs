//! Health of GPUs, adapters and hosts.

use jiff::Timestamp;
use muster_proto::v1;
use serde::Serialize;

use crate::output::{Cell, Column, Row, Tone, ago, counted, instant, until};
use crate::view::word;

/// A component with a health record.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct ComponentView {
    component: String,
    host: String,
    gpu_index: Option<u32>,
    phase: String,
    since: String,
    ready_at: Option<String>,
    strikes: u32,
    by_hand: bool,
    wanted: String,
    kept_off: Vec<KeptOffView>,
    muted_rules: Vec<String>,
    history: Vec<ChangeView>,
    #[serde(skip)]
    since_ms: u64,
    #[serde(skip)]
    ready_at_ms: Option<u64>,
}

/// A hold of a rule on a component.
#[derive(Clone, Debug, Serialize)]
pub(super) struct KeptOffView {
    pub(super) rule: String,
    pub(super) what: String,
    pub(super) evidence: String,
    since: String,
}

/// A change of a component's state.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct ChangeView {
    event: String,
    actor: String,
    evidence: String,
    at: String,
    #[serde(skip)]
    at_ms: u64,
}

impl From<v1::ComponentHealth> for ComponentView {
    fn from(wire: v1::ComponentHealth) -> Self {
        Self {
            component: word::component(wire.component.as_ref(), &wire.host),
            host: wire.host,
            gpu_index: wire.gpu_index,
            phase: wire.phase,
            since: instant(wire.since_ms),
            ready_at: wire.ready_at_ms.map(instant),
            strikes: wire.strikes,
            by_hand: wire.by_hand,
            wanted: wire.wanted,
            kept_off: wire.kept_off.into_iter().map(Into::into).collect(),
            muted_rules: wire.muted_rules,
            history: wire.history.into_iter().map(Into::into).collect(),
            since_ms: wire.since_ms,
            ready_at_ms: wire.ready_at_ms,
        }
    }
}

impl From<v1::KeptOff> for KeptOffView {
    fn from(wire: v1::KeptOff) -> Self {
        Self {
            rule: wire.rule,
            what: wire.what,
            evidence: wire.evidence,
            since: instant(wire.since_ms),
        }
    }
}

impl From<v1::HealthChange> for ChangeView {
    fn from(wire: v1::HealthChange) -> Self {
        Self {
            event: wire.event,
            actor: wire.actor,
            evidence: wire.evidence,
            at: instant(wire.at_ms),
            at_ms: wire.at_ms,
        }
    }
}

impl ComponentView {
    /// Whether it is healthy without any record.
    pub(crate) fn is_healthy(&self) -> bool {
        self.phase == "healthy" && self.kept_off.is_empty()
    }

    /// Whether the user's name means this component: a host, or a GPU by `HOST:INDEX` or UUID.
    pub(crate) fn is_called(&self, name: &str) -> bool {
        let as_gpu = self.gpu_index.map(|index| format!("{}:{index}", self.host));
        let as_host = format!("host {name}");
        let uuid = self.component.split(' ').next();
        as_gpu.as_deref() == Some(name) || self.component == as_host || uuid == Some(name)
    }

    /// History of its state, oldest first.
    pub(crate) fn into_history(self) -> Vec<ChangeView> {
        self.history
    }

    fn tone(&self) -> Tone {
        match self.phase.as_str() {
            "healthy" if self.kept_off.is_empty() => Tone::Good,
            "healthy" => Tone::Waiting,
            "suspect" | "checking" | "repairing" | "probation" => Tone::Waiting,
            _ => Tone::Bad,
        }
    }

    /// Condition for its return to service.
    fn next(&self, now: Timestamp) -> String {
        let wanted = (!self.wanted.is_empty()).then(|| self.wanted.clone());
        let wait = self.ready_at_ms.map(|at| match self.phase.as_str() {
            "probation" => format!("healthy {}", until(now, at)),
            _ => format!("check passes from {}", until(now, at)),
        });
        if self.by_hand {
            return "only an admin can unblock it".to_owned();
        }
        let kept_off = self.kept_off.iter().map(|kept| match kept.what.as_str() {
            "everything" => format!("nothing new while {} persists", kept.rule),
            what => format!("no {what} while {} persists", kept.rule),
        });
        let parts: Vec<String> = wanted.into_iter().chain(wait).chain(kept_off).collect();
        parts.join(", ")
    }

    /// Cause of its state.
    fn cause(&self) -> String {
        let change = self.history.last();
        let change =
            change.map(|cause| format!("{} by {}: {}", cause.event, cause.actor, cause.evidence));
        let kept = self.kept_off.first();
        let kept = kept.map(|kept| format!("kept off by rule {}: {}", kept.rule, kept.evidence));
        match self.phase.as_str() {
            "healthy" => kept.or(change),
            _ => change.or(kept),
        }
        .unwrap_or_default()
    }
}

impl Row for ComponentView {
    const COLUMNS: &'static [Column] = &[
        Column::new("COMPONENT"),
        Column::new("PHASE"),
        Column::new("SINCE"),
        Column::new("STRIKES"),
        Column::new("NEXT"),
        Column::wide("MUTED"),
        Column::new("CAUSE"),
    ];
    const KEY: &'static str = "components";

    fn cells(&self, now: Timestamp) -> Vec<Cell> {
        vec![
            (*self.component).into(),
            Cell::toned(&*self.phase, self.tone()),
            Cell::toned(ago(now, self.since_ms), Tone::Faint),
            self.strikes.to_string().into(),
            self.next(now).into(),
            self.muted_rules.join(",").into(),
            self.cause().into(),
        ]
    }

    fn name(&self) -> String {
        self.component.clone()
    }
}

impl Row for ChangeView {
    const COLUMNS: &'static [Column] = &[
        Column::new("WHEN"),
        Column::new("EVENT"),
        Column::new("BY"),
        Column::new("EVIDENCE"),
    ];
    const KEY: &'static str = "changes";

    fn cells(&self, now: Timestamp) -> Vec<Cell> {
        vec![
            Cell::toned(ago(now, self.at_ms), Tone::Faint),
            (*self.event).into(),
            (*self.actor).into(),
            (*self.evidence).into(),
        ]
    }

    fn name(&self) -> String {
        self.event.clone()
    }
}

/// Effect of new rules on recent findings, applied or in a dry run.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct RulesEffectView {
    revision: u64,
    dry_run: bool,
    rules: u32,
    findings: u32,
    findings_without_rule: u32,
    added: Vec<WouldBlockView>,
    dropped: Vec<WouldBlockView>,
    kept: u32,
    findings_since: Option<String>,
    unjudged: Vec<String>,
}

/// A block that the rules would have set.
#[derive(Clone, Debug, Serialize)]
struct WouldBlockView {
    component: String,
    rule: String,
    scope: String,
    at: String,
    findings: u32,
    evidence: String,
}

impl From<v1::WouldBlock> for WouldBlockView {
    fn from(wire: v1::WouldBlock) -> Self {
        Self {
            component: word::component(wire.component.as_ref(), &wire.host),
            rule: wire.rule,
            scope: wire.scope,
            at: instant(wire.at_ms),
            findings: wire.findings,
            evidence: wire.evidence,
        }
    }
}

impl RulesEffectView {
    /// The cluster's answer.
    pub(crate) fn new(dry_run: bool, answer: v1::SetHealthRulesResponse) -> Self {
        Self {
            revision: answer.revision,
            dry_run,
            rules: answer.rules,
            findings: answer.findings,
            findings_without_rule: answer.findings_without_rule,
            added: answer.added.into_iter().map(Into::into).collect(),
            dropped: answer.dropped.into_iter().map(Into::into).collect(),
            kept: answer.kept,
            findings_since: answer.findings_since_ms.map(instant),
            unjudged: answer.unjudged,
        }
    }

    /// Several lines of text.
    pub(crate) fn render(&self) -> String {
        let done = if self.dry_run {
            "would be in force (dry run, nothing was changed)"
        } else {
            "are in force"
        };
        let since = { self.findings_since.as_ref() }
            .map_or_else(String::new, |at| format!(" (since {at})"));
        let mut text = format!(
            "{} {done}; on the last {}{since}: {} blocks more, {} fewer, {} as before\n",
            counted(self.rules, "rule"),
            counted(self.findings, "finding"),
            self.added.len(),
            self.dropped.len(),
            self.kept,
        );
        if self.findings_without_rule > 0 {
            text.push_str(&format!(
                "  {} of removed rules\n",
                counted(self.findings_without_rule, "finding")
            ));
        }
        if !self.unjudged.is_empty() {
            text.push_str(&format!(
                "  not evaluated, since workers report only readings beyond the current thresholds: {}\n",
                self.unjudged.join(", ")
            ));
        }
        for (word, blocks) in [("more", &self.added), ("fewer", &self.dropped)] {
            for block in blocks {
                text.push_str(&format!(
                    "  {word}: {} ({}) by {} at {}: {}\n",
                    block.component, block.scope, block.rule, block.at, block.evidence
                ));
            }
        }
        text
    }
}
