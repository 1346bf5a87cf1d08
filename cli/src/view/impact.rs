//! What a block hits.

use jiff::Timestamp;
use muster_proto::v1;
use serde::Serialize;

use crate::output::{Cell, Column, Row, Table, counted, instant, until};

/// What the block of one host or GPU hits.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct ImpactView {
    pub(crate) target: String,
    revision: u64,
    dry_run: bool,
    begins_at: Option<String>,
    gpus: u32,
    gpus_free: u32,
    jobs_total: u32,
    jobs: Vec<ImpactedJobView>,
    pool: String,
    pool_hosts_left: u32,
    pool_gpus_left: u32,
    takes_last: bool,
    #[serde(skip)]
    is_host: bool,
    #[serde(skip)]
    begins_at_ms: Option<u64>,
}

/// A job that a block hits.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct ImpactedJobView {
    id: u64,
    name: String,
    user: String,
    queue: String,
    units: u32,
    gpus: u32,
}

impl ImpactView {
    /// The answer to the block of a target, or to a dry run, and when it begins if it is planned ahead.
    pub(crate) fn new(
        (target, is_host): (&str, bool),
        (dry_run, begins_at_ms): (bool, Option<u64>),
        answer: v1::BlockResponse,
    ) -> Self {
        let impact = answer.impact.unwrap_or_default();
        let jobs = impact.jobs.into_iter().map(ImpactedJobView::from);
        Self {
            target: target.to_owned(),
            is_host,
            revision: answer.revision,
            dry_run,
            begins_at: begins_at_ms.map(instant),
            gpus: impact.gpus,
            gpus_free: impact.gpus_free,
            jobs_total: impact.jobs_total,
            jobs: jobs.collect(),
            pool: impact.pool,
            pool_hosts_left: impact.pool_hosts_left,
            pool_gpus_left: impact.pool_gpus_left,
            takes_last: impact.takes_last,
            begins_at_ms,
        }
    }

    /// One line, and a table of the jobs that are hit.
    pub(crate) fn render(&self, drain: bool, now: Timestamp) -> String {
        let done = match (self.dry_run, drain) {
            (true, true) => "would be drained",
            (true, false) => "would be blocked",
            (false, true) if self.begins_at_ms.is_some() => "to be drained",
            (false, false) if self.begins_at_ms.is_some() => "to be blocked",
            (false, true) => "draining",
            (false, false) => "blocked",
        };
        let begins = self.begins_at_ms.zip(self.begins_at.as_ref());
        let when = begins.map(|(ms, at)| format!(" {} ({at})", until(now, ms)));
        let when = when.unwrap_or_default();
        let fate = if drain { "moved away" } else { "going on" };
        let mut text = format!(
            "{} {done}{when}: {} out of placement ({} free), {} {fate}\n",
            self.target,
            counted(self.gpus, "GPU"),
            self.gpus_free,
            counted(self.jobs_total, "job")
        );
        text.extend(self.warning());
        if self.jobs.is_empty() {
            return text;
        }
        let mut table = Table::new(ImpactedJobView::COLUMNS, false);
        for job in &self.jobs {
            table.push(job.cells(now));
        }
        for line in table.render(true).lines() {
            text.push_str(&format!("  {line}\n"));
        }
        text
    }
}

impl ImpactView {
    /// That nothing of the pool is left, and what can be done about it.
    fn warning(&self) -> Option<String> {
        if !self.takes_last {
            return None;
        }
        let what = if self.is_host { "host" } else { "GPU" };
        let mut text = format!(
            "  warning: nothing else of pool {} takes work: it is the last {what} that does",
            self.pool
        );
        // A plan is not refused, and neither is a GPU: it is for the admin to know.
        if self.dry_run && self.is_host && self.begins_at_ms.is_none() {
            text.push_str("; without --force it stays in");
        }
        text.push('\n');
        Some(text)
    }
}

impl From<v1::ImpactedJob> for ImpactedJobView {
    fn from(job: v1::ImpactedJob) -> Self {
        Self {
            id: job.job_id,
            name: job.name,
            user: job.user,
            queue: job.queue,
            units: job.units,
            gpus: job.gpus,
        }
    }
}

impl Row for ImpactedJobView {
    const COLUMNS: &'static [Column] = &[
        Column::new("ID"),
        Column::new("NAME"),
        Column::new("USER"),
        Column::new("QUEUE"),
        Column::new("UNITS"),
        Column::new("GPUS"),
    ];
    const KEY: &'static str = "jobs";

    fn cells(&self, _now: Timestamp) -> Vec<Cell> {
        vec![
            self.id.to_string().into(),
            (*self.name).into(),
            (*self.user).into(),
            (*self.queue).into(),
            self.units.to_string().into(),
            self.gpus.to_string().into(),
        ]
    }

    fn name(&self) -> String {
        self.id.to_string()
    }
}
