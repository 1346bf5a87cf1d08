//! Health of GPUs, adapters and hosts.

use jiff::Timestamp;
use muster_documents::{Change, Component, HealthState, RulesEffect};

use crate::output::{Cell, Column, Row, Tone, ago, counted, until};

/// `probation`, or `healthy, no gangs`.
pub(super) fn state_cell(state: &HealthState) -> Cell {
    let tone = match state.health_phase.as_str() {
        "healthy" if state.restrictions.is_empty() => Tone::Good,
        "" | "healthy" | "suspect" | "probation" | "checking" | "repairing" => Tone::Waiting,
        _ => Tone::Bad,
    };
    Cell::toned(state_text(state), tone)
}

fn state_text(state: &HealthState) -> String {
    let restriction = if state.keeps_off("everything") {
        ", nothing new"
    } else if state.keeps_off("gangs") {
        ", no gangs"
    } else {
        ""
    };
    format!("{}{restriction}", state.health_phase)
}

/// Whether a component is healthy without any record.
pub(crate) fn is_healthy(component: &Component) -> bool {
    component.phase == "healthy" && component.restrictions.is_empty()
}

/// Whether the user's name means this component: a host, or a GPU by `HOST:INDEX` or UUID.
pub(crate) fn is_called(component: &Component, name: &str) -> bool {
    let host = &component.host;
    let as_gpu = component.gpu_index.map(|index| format!("{host}:{index}"));
    let as_host = format!("host {name}");
    let uuid = component.component.split(' ').next();
    as_gpu.as_deref() == Some(name) || component.component == as_host || uuid == Some(name)
}

fn tone(component: &Component) -> Tone {
    match component.phase.as_str() {
        "healthy" if component.restrictions.is_empty() => Tone::Good,
        "healthy" | "suspect" | "checking" | "repairing" | "probation" => Tone::Waiting,
        _ => Tone::Bad,
    }
}

/// Condition for the return of a component to service.
fn next(component: &Component, now: Timestamp) -> String {
    if component.needs_operator {
        return "only an admin can unblock it".to_owned();
    }
    let action = Some(&component.pending_action).filter(|action| !action.is_empty());
    let wait = component.ready_at.map(|at| match &*component.phase {
        "probation" => format!("healthy {}", until(now, at)),
        _ => format!("check passes from {}", until(now, at)),
    });
    let restrictions = component.restrictions.iter();
    let restrictions = restrictions.map(|it| match &*it.what {
        "everything" => format!("nothing new while {} persists", it.rule),
        what => format!("no {what} while {} persists", it.rule),
    });
    let parts = action.cloned().into_iter().chain(wait);
    let parts: Vec<String> = parts.chain(restrictions).collect();
    parts.join(", ")
}

/// Cause of a component's state.
fn cause(component: &Component) -> String {
    let change = component.history.last();
    let change = change.map(|it| format!("{} by {}: {}", it.event, it.actor, it.evidence));
    let restriction = component.restrictions.first();
    let restriction =
        restriction.map(|it| format!("restricted by rule {}: {}", it.rule, it.evidence));
    match component.phase.as_str() {
        "healthy" => restriction.or(change),
        _ => change.or(restriction),
    }
    .unwrap_or_default()
}

impl Row for Component {
    const COLUMNS: &'static [Column] = &[
        Column::new("COMPONENT"),
        Column::new("PHASE"),
        Column::new("SINCE"),
        Column::new("STRIKES"),
        Column::new("NEXT"),
        Column::wide("MUTED"),
        Column::new("CAUSE"),
    ];

    fn cells(&self, now: Timestamp) -> Vec<Cell> {
        vec![
            (*self.component).into(),
            Cell::toned(&*self.phase, tone(self)),
            Cell::toned(ago(now, self.since), Tone::Faint),
            self.strikes.to_string().into(),
            next(self, now).into(),
            self.muted_rules.join(",").into(),
            cause(self).into(),
        ]
    }

    fn name(&self) -> String {
        self.component.clone()
    }
}

impl Row for Change {
    const COLUMNS: &'static [Column] = &[
        Column::new("WHEN"),
        Column::new("EVENT"),
        Column::new("BY"),
        Column::new("EVIDENCE"),
    ];

    fn cells(&self, now: Timestamp) -> Vec<Cell> {
        vec![
            Cell::toned(ago(now, self.at), Tone::Faint),
            (*self.event).into(),
            (*self.actor).into(),
            (*self.evidence).into(),
        ]
    }

    fn name(&self) -> String {
        self.event.clone()
    }
}

/// Several lines of text.
pub(crate) fn render_rules_effect(effect: &RulesEffect) -> String {
    let done = if effect.dry_run {
        "would be in force (dry run, nothing was changed)"
    } else {
        "are in force"
    };
    let since = effect.findings_since;
    let since = since.map_or_else(String::new, |at| format!(" (since {at})"));
    let mut text = format!(
        "{} {done}; on the last {}{since}: {} blocks more, {} fewer, {} as before\n",
        counted(effect.rules, "rule"),
        counted(effect.findings, "finding"),
        effect.added.len(),
        effect.dropped.len(),
        effect.kept,
    );
    if effect.findings_without_rule > 0 {
        text.push_str(&format!(
            "  {} of removed rules\n",
            counted(effect.findings_without_rule, "finding")
        ));
    }
    if !effect.not_evaluated.is_empty() {
        text.push_str(&format!(
            "  not evaluated, since workers report only readings beyond the current thresholds: {}\n",
            effect.not_evaluated.join(", ")
        ));
    }
    for (change, blocks) in [("more", &effect.added), ("fewer", &effect.dropped)] {
        for block in blocks {
            text.push_str(&format!(
                "  {change}: {} ({}) by {} at {}: {}\n",
                block.component, block.scope, block.rule, block.at, block.evidence
            ));
        }
    }
    text
}
