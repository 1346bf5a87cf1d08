//! A job with all known details.

use muster_client::JobDetail;
use muster_job_file::JobFile;
use muster_proto::v1;
use serde::Serialize;

use crate::output::{Cell, Column, Screen, Table, Tone, ago, span, until};
use crate::parse::compress;
use crate::view::blame::BlameView;
use crate::view::job::JobView;
use crate::view::unit::UnitView;
use crate::view::word::phase_tone;

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
    Column::new("BLAMED ON"),
];

/// A job, its specification and its units.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct JobDetailView {
    revision: u64,
    #[serde(flatten)]
    job: JobView,
    spec: JobFile,
    unit_list: Vec<UnitView>,
    more_units: bool,
}

impl From<JobDetail> for JobDetailView {
    fn from(detail: JobDetail) -> Self {
        let spec = detail.job.spec.as_ref().map(JobFile::from);
        Self {
            revision: detail.revision.get(),
            spec: spec.unwrap_or_default(),
            job: JobView::from(detail.job),
            unit_list: detail.units.into_iter().map(UnitView::from).collect(),
            more_units: detail.more_units,
        }
    }
}

impl JobDetailView {
    /// Adds the progress reported by tasks of the running attempt.
    pub(crate) fn add_progress(&mut self, said: &[v1::TaskProgress]) {
        let attempts = self.unit_list.iter_mut();
        for attempt in attempts.filter_map(|unit| unit.attempt.as_mut()) {
            for task in &mut attempt.tasks {
                let own = (task.index, task.epoch.unwrap_or(attempt.epoch));
                let of_task = |it: &&v1::TaskProgress| (it.task, it.epoch) == own;
                task.progress_step = said.iter().find(of_task).map(|it| it.step);
            }
        }
    }

    /// Complete text: facts, running tasks, ended attempts, the newest checkpoints.
    pub(crate) fn render(&self, screen: &Screen) -> String {
        let mut facts = Table::new(&[Column::new(""), Column::new("")], false);
        for (key, value) in self.job.facts(screen.now()) {
            facts.push(vec![Cell::toned(key, Tone::Faint), value]);
        }
        for (position, group) in self.spec.groups.iter().flatten().enumerate() {
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
        self.push_checkpoints(&mut facts, screen);
        self.push_assemblies(&mut facts);
        self.push_rows(&mut facts);
        for (key, text) in self.job.accounts() {
            facts.push(vec![Cell::toned(key, Tone::Faint), text.into()]);
        }
        self.push_grounds(&mut facts, screen);
        let mut text = facts.render(false);
        text.push_str(&self.render_tasks(screen));
        text.push_str(&self.render_past());
        if self.more_units {
            text.push_str("\n(more units: --units shows more)\n");
        }
        text
    }

    fn push_checkpoints(&self, facts: &mut Table, screen: &Screen) {
        for unit in &self.unit_list {
            let mut newest_first = unit.checkpoints.iter().rev();
            let good = newest_first.clone().find(|it| it.spoiled.is_none());
            if let Some(newest) = good {
                let age = ago(screen.now(), newest.committed_at_ms);
                let text = format!("step {}, {age}: {}", newest.step, newest.path);
                facts.push(vec![Cell::toned("Checkpoint", Tone::Faint), text.into()]);
            }
            let bad = newest_first.find_map(|it| Some((it.step, it.spoiled.as_ref()?)));
            if let Some((step, reason)) = bad {
                let text = format!("step {step}: {reason}");
                facts.push(vec![Cell::toned("Spoiled", Tone::Bad), text.into()]);
            }
            if let Some(interval_ms) = unit.checkpoint_interval_ms {
                let text = format!("unit {}: every {}", unit.index, span(interval_ms));
                facts.push(vec![Cell::toned("Save advice", Tone::Faint), text.into()]);
            }
        }
    }

    /// Consecutive counts: retries in place, and attempts without progress with their limit.
    fn push_rows(&self, facts: &mut Table) {
        for unit in &self.unit_list {
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

    fn push_assemblies(&self, facts: &mut Table) {
        for unit in &self.unit_list {
            if let Some(text) = unit.attempt.as_ref().and_then(|attempt| attempt.assembly()) {
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

    fn push_grounds(&self, facts: &mut Table, screen: &Screen) {
        for unit in &self.unit_list {
            let standing = unit.attempt.as_ref().and_then(|it| it.standing.as_ref());
            if let Some(standing) = standing.filter(|standing| !standing.is_ordinary()) {
                let text = format!("unit {}: {}", unit.index, standing.text());
                facts.push(vec![Cell::toned("Standing", Tone::Faint), text.into()]);
            }
            if let Some(claim) = &unit.claim {
                let at = claim.expected_at_ms;
                let at =
                    at.map_or_else(String::new, |at| format!(" ({})", until(screen.now(), at)));
                let text = format!("unit {}: {}{at}", unit.index, claim.text());
                facts.push(vec![Cell::toned("Reserved", Tone::Faint), text.into()]);
            }
        }
    }

    fn render_tasks(&self, screen: &Screen) -> String {
        let wide = screen.format == crate::output::Format::Wide;
        let mut table = Table::new(TASK_COLUMNS, wide);
        let mut rows = 0;
        for attempt in self
            .unit_list
            .iter()
            .filter_map(|unit| unit.attempt.as_ref())
        {
            for task in &attempt.tasks {
                rows += 1;
                let exit = task.exit.as_ref().map(super::unit::ExitView::text);
                table.push(vec![
                    task.index.to_string().into(),
                    Cell::toned(&*task.phase, phase_tone(&task.phase)),
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

    fn render_past(&self) -> String {
        let mut table = Table::new(PAST_COLUMNS, false);
        let mut rows = 0;
        for unit in &self.unit_list {
            for past in &unit.past {
                rows += 1;
                table.push(vec![
                    unit.index.to_string().into(),
                    past.number.to_string().into(),
                    span(past.lasted_ms).into(),
                    compress(&past.hosts).into(),
                    (*past.detail).into(),
                    past.blame
                        .as_ref()
                        .map(BlameView::text)
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
}
