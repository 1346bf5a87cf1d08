//! A job with all known details.

use muster_documents::{Attribution, BasisKind, Exit, JobDetail};

use crate::output::{Cell, Column, Format, Screen, Table, Tone, ago, span, until};
use crate::parse::compress;
use crate::view::phase::phase_tone;
use crate::view::{job, unit};

const TASK_COLUMNS: &[Column] = &[
    Column::new("TASK"),
    Column::new("PHASE"),
    Column::new("HOST"),
    Column::new("GPUS"),
    Column::wide("GPU IDS"),
    Column::new("STEP"),
    Column::new("EXIT"),
];
const PAST_COLUMNS: &[Column] = &[
    Column::new("UNIT"),
    Column::new("ATTEMPT"),
    Column::new("LASTED"),
    Column::new("HOSTS"),
    Column::new("ENDED"),
    Column::new("CAUSE"),
];

/// Complete text: facts, running tasks, ended attempts, the newest checkpoints.
pub(crate) fn render(detail: &JobDetail, screen: &Screen) -> String {
    let mut facts = Table::new(&[Column::new(""), Column::new("")], false);
    for (key, value) in job::facts(&detail.job, screen.now()) {
        facts.push(vec![Cell::toned(key, Tone::Faint), value]);
    }
    for (position, group) in detail.spec.groups.iter().flatten().enumerate() {
        let command = group.command.join(" ");
        let name = group.name.as_deref().unwrap_or_default();
        let key = if position == 0 { "Command" } else { "" };
        let text = if name == "main" {
            command
        } else {
            format!("{name}: {command}")
        };
        facts.push(vec![Cell::toned(key, Tone::Faint), text.into()]);
        let execution = group.execution.as_ref();
        if let Some(container) = execution.and_then(|it| it.container.as_ref()) {
            let image = container.image.clone();
            facts.push(vec![Cell::toned("Image", Tone::Faint), image.into()]);
        }
    }
    push_checkpoints(detail, &mut facts, screen);
    push_gang_states(detail, &mut facts);
    push_counts(detail, &mut facts);
    for (key, text) in job::accounts(&detail.job) {
        facts.push(vec![Cell::toned(key, Tone::Faint), text.into()]);
    }
    push_allocations(detail, &mut facts, screen);
    let mut text = facts.render(false);
    text.push_str(&render_tasks(detail, screen));
    text.push_str(&render_past(detail));
    if detail.more_units {
        text.push_str("\n(more units: --units shows more)\n");
    }
    text
}

fn push_checkpoints(detail: &JobDetail, facts: &mut Table, screen: &Screen) {
    for unit in &detail.unit_list {
        let mut newest_first = unit.checkpoints.iter().rev();
        let good = newest_first.clone().find(|it| it.damaged.is_none());
        if let Some(newest) = good {
            let age = ago(screen.now(), newest.committed_at);
            let text = format!("step {}, {age}: {}", newest.step, newest.path);
            facts.push(vec![Cell::toned("Checkpoint", Tone::Faint), text.into()]);
        }
        let bad = newest_first.find_map(|it| Some((it.step, it.damaged.as_ref()?)));
        if let Some((step, reason)) = bad {
            let text = format!("step {step}: {reason}");
            facts.push(vec![Cell::toned("Damaged", Tone::Bad), text.into()]);
        }
        if let Some(interval_ms) = unit.checkpoint_interval_ms {
            let text = format!("unit {}: every {}", unit.index, span(interval_ms));
            facts.push(vec![Cell::toned("Save advice", Tone::Faint), text.into()]);
        }
    }
}

/// Consecutive counts: retries in place, and attempts without progress with their limit.
fn push_counts(detail: &JobDetail, facts: &mut Table) {
    for unit in &detail.unit_list {
        let index = unit.index;
        if unit.local_retries > 0 {
            let text = format!(
                "unit {index}: retried in place {} times in a row",
                unit.local_retries
            );
            facts.push(vec![Cell::toned("Retries", Tone::Faint), text.into()]);
        }
        let limit = match unit.without_progress_max {
            Some(max) => format!("fails at {max}"),
            None => "no limit".to_owned(),
        };
        if unit.without_progress > 0 || unit.without_progress_max.is_some() {
            let text = format!(
                "unit {index}: {} attempts in a row without a newer checkpoint ({limit})",
                unit.without_progress
            );
            facts.push(vec![Cell::toned("Progress", Tone::Faint), text.into()]);
        }
    }
}

fn push_gang_states(detail: &JobDetail, facts: &mut Table) {
    for unit in &detail.unit_list {
        if let Some(text) = unit.attempt.as_ref().and_then(unit::assembly) {
            facts.push(vec![Cell::toned("Gang", Tone::Faint), text.into()]);
        }
        let attempt = unit.attempt.as_ref();
        if let Some(vacancy) = attempt.and_then(|attempt| attempt.vacancy.as_ref()) {
            let (task, detail) = (vacancy.task, &vacancy.detail);
            let text = format!("continues without task {task}: {detail}");
            facts.push(vec![Cell::toned("Gang", Tone::Waiting), text.into()]);
        }
    }
}

fn push_allocations(detail: &JobDetail, facts: &mut Table, screen: &Screen) {
    for unit in &detail.unit_list {
        let attempt = unit.attempt.as_ref();
        let basis = attempt.and_then(|attempt| attempt.allocation_basis.as_ref());
        if let Some(basis) = basis.filter(|basis| basis.kind != BasisKind::Share) {
            let text = format!("unit {}: {}", unit.index, basis.text());
            facts.push(vec![Cell::toned("Allocation", Tone::Faint), text.into()]);
        }
        if let Some(claim) = &unit.claim {
            let at = claim.expected_at;
            let at = at.map_or_else(String::new, |at| format!(" ({})", until(screen.now(), at)));
            let text = format!("unit {}: {}{at}", unit.index, unit::claim_text(claim));
            facts.push(vec![Cell::toned("Reserved", Tone::Faint), text.into()]);
        }
    }
}

fn render_tasks(detail: &JobDetail, screen: &Screen) -> String {
    let wide = screen.format == Format::Wide;
    let mut table = Table::new(TASK_COLUMNS, wide);
    let mut rows = 0;
    let units = detail.unit_list.iter();
    for attempt in units.filter_map(|unit| unit.attempt.as_ref()) {
        for task in &attempt.tasks {
            rows += 1;
            let exit = task.exit.as_ref().map(Exit::text);
            table.push(vec![
                task.index.to_string().into(),
                Cell::toned(task.phase.as_str(), phase_tone(task.phase.as_str())),
                (*task.host).into(),
                task.gpus.len().to_string().into(),
                task.gpus.join(" ").into(),
                task.progress_step
                    .map_or_else(String::new, |step| step.to_string())
                    .into(),
                exit.or_else(|| attempt.stop_reason.clone())
                    .unwrap_or_default()
                    .into(),
            ]);
        }
    }
    if rows == 0 {
        return String::new();
    }
    format!("\n{}", table.render(true))
}

fn render_past(detail: &JobDetail) -> String {
    let mut table = Table::new(PAST_COLUMNS, false);
    let mut rows = 0;
    for unit in &detail.unit_list {
        for past in &unit.past_attempts {
            rows += 1;
            table.push(vec![
                unit.index.to_string().into(),
                past.number.to_string().into(),
                span(past.ended_at.ms.saturating_sub(past.placed_at.ms)).into(),
                compress(&past.hosts).into(),
                (*past.detail).into(),
                past.attribution
                    .as_ref()
                    .map(Attribution::text)
                    .unwrap_or_default()
                    .into(),
            ]);
        }
    }
    if rows == 0 {
        return String::new();
    }
    format!("\n{}", table.render(true))
}
